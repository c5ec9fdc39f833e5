/* stream.h - a stream: the fixed, ordered sequence of batches that one reader
 * of a list of files sees.
 *
 * Samples are cut into batches in the order of the files, across their ends;
 * only the last batch may be short. What a stream yields is a function of its
 * spec alone, never of n_thread or of timing.
 */
#ifndef FL_DATA_STREAM_H
#define FL_DATA_STREAM_H

#include <fleet/dataset.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

/* Dense buffers hold a multiple of this many rows; those past the batch are
 * there to be written over by kernels that work on whole blocks. */
enum { FL_ROW_PAD = 128 };

/* Where the numbers of standardize come from: one pass over all the training
 * files. One entry per csv column that wants it, in the order of slots and,
 * inside a slot, of columns. */
typedef struct fl_statistics {
    int n;
    double *mean;
    double *deviation; /* of the population; 1 where it would be 0 */
} fl_statistics;

fleet_status fl_statistics_copy(fl_statistics *s, const fl_statistics *from);
void fl_statistics_done(fl_statistics *s);
fleet_status fl_statistics_save(const fl_statistics *s, fl_json **json);
fleet_status fl_statistics_load(fl_statistics *s, const fl_at *at);

typedef struct fl_stream_spec {
    fleet_format format;
    const fleet_slot *slots; /* kept, not copied: must outlive the stream */
    int n_slot;
    int64_t batch_size;
    int n_thread;
    const char *pipe_command; /* NULL: none */
    int64_t shuffle;
    uint64_t seed; /* of the shuffle: already mixed with pass and file */
    char separator, comment;
    int header;
    int64_t skip_lines;
    const char *missing;
    const fl_statistics *statistics; /* NULL: no slot standardizes */

    const char *const *files; /* sorted; idx: images, labels */
    int n_file;

    /* of every share_count batches, the share_index-th is ours */
    int64_t share_index, share_count; /* 0, 1: all */
    fl_log *log;
} fl_stream_spec;

/* Files of these formats bring their slots with them. */
static inline bool fl_format_has_slots(fleet_format format)
{
    return format == FLEET_CRITEO || format == FLEET_IDX;
}

/* The slots that FLEET_CRITEO and FLEET_IDX have by themselves; NULL for the
 * other formats. For idx, images is the path whose header gives the width. */
fleet_status fl_stream_own_slots(fleet_format format, const char *images,
                                 const fleet_slot **slots, int *n_slot);
void fl_stream_free_own_slots(const fleet_slot *slots, int n_slot);

/* FLEET_ECONFIG or FLEET_EINVAL for a spec that cannot be: columns and dim that
 * do not agree, a transform that the dtype does not have, n_thread < 1, ... The
 * statistics may still be missing. */
fleet_status fl_stream_check(const fl_stream_spec *spec);

/* The parts of it that need no files: all but slots and files; slots, *at is
 * the one that is refused. */
fleet_status fl_stream_check_options(const fl_stream_spec *spec);
fleet_status fl_stream_check_slots(const fl_stream_spec *spec, int *at);

typedef struct fl_slot_data {
    void *values;     /* [rows, dim] of the slot's dtype, or all ids in a row */
    int64_t *offsets; /* ragged: rows + 1 of them, the first is 0; else NULL */
} fl_slot_data;

typedef struct fl_batch {
    int64_t index; /* in the stream, before it was shared out: 0, 1, ... */
    int64_t rows;
    double share;       /* of the input that was read by then: 0 to 1 */
    fl_slot_data *slot; /* as in the spec */
} fl_batch;

typedef struct fl_stream fl_stream;

/* Check the spec, open the first files and start the threads. */
fleet_status fl_stream_open(fl_stream **stream, const fl_stream_spec *spec);

/* The next batch, or FLEET_EEND after the last. An error ends the stream: it is
 * reported in its place in the order, after all batches before it, and then
 * again by every further call. At most four batches may be held. */
fleet_status fl_stream_next(fl_stream *stream, fl_batch **batch);
void fl_stream_release(fl_stream *stream, fl_batch *batch);

/* At any time: stops and joins the threads, ends children. Never blocks on
 * data. NULL is fine. */
void fl_stream_close(fl_stream *stream);

/* One pass over spec's files, all of them whatever the share, for the columns
 * of spec's slots that standardize. */
fleet_status fl_stream_statistics(const fl_stream_spec *spec,
                                  fl_statistics *statistics);

#endif
