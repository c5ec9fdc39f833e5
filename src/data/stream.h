/* stream.h - a stream: the fixed, ordered sequence of batches that one reader
 * of a list of files sees.
 *
 * Samples are cut into batches in the order of the files, across their ends;
 * only the last batch may be short. What a stream yields is a function of its
 * spec alone, never of n_thread or of timing.
 */
#pragma once

#include "data/layout/batch.h"
#include "data/layout/spec.h"

typedef struct fl_stream fl_stream;

/* Check the spec, open the first files and start the threads. */
fleet_status fl_stream_open(fl_stream **stream, const fl_stream_spec *spec);

/* The next batch, or FLEET_EEND after the last. An error ends the stream: it is
 * reported in its place in the order, after all batches before it, and then
 * again by every further call. At most the spec's most_held may be held. */
fleet_status fl_stream_next(fl_stream *stream, fl_batch **batch);

/* Lines that were left out so far, of this share: also lines before
 * first_batch, so that a pass that goes on counts as a whole one does; of
 * memory all that its load has left out. */
int64_t fl_stream_bad_lines(const fl_stream *stream);

void fl_stream_release(fl_stream *stream, fl_batch *batch);

/* At any time: stops and joins the threads, ends children. Never blocks on
 * data. NULL is fine. */
void fl_stream_close(fl_stream *stream);

/* One pass over spec's files, all of them whatever the share, for the columns
 * of spec's slots that standardize. */
fleet_status fl_stream_statistics(const fl_stream_spec *spec,
                                  fl_statistics *statistics);
