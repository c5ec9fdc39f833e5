/* sampling.h - negative samples that are left out of a training pass. */
#pragma once

#include "data/layout/batch_buffer.h"
#include "data/layout/spec.h"

/* Take the rows out of a parsed batch whose label is 0 and whose draw is not
 * below spec->negative_rate. The draw of a sample is a function of the spec's
 * seed, the file's name without its folder and the number of the line. */
void fl_sampling_drop(const fl_stream_spec *spec, const fl_layout *l,
                      fl_batch_buffer *buffer);
