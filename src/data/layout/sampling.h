/* sampling.h - samples that are left out of a training pass: a share of the
 * negative ones, and what is not drawn by its weight. */
#pragma once

#include "data/layout/batch_buffer.h"
#include "data/layout/spec.h"

bool fl_sampling_drops(const fl_stream_spec *spec);
void fl_sampling_none(fl_stream_spec *spec);

/* FLEET_EFORMAT: a row of a parsed batch is drawn by a weight below 0. */
fleet_status fl_sampling_check(const fl_stream_spec *spec, const fl_layout *l,
                               const fl_batch_buffer *buffer);

/* Take the rows out of a parsed batch whose draw is not below their chance:
 * spec->negative_rate where the label is 0, times weight / spec->draw_most. The
 * draw of a sample is a function of the spec's seed, the file's name without
 * its folder and the number of the line. */
void fl_sampling_drop(const fl_stream_spec *spec, const fl_layout *l,
                      fl_batch_buffer *buffer);
