/* bucket_layout.h - gradient buckets: a flat buffer's gradient is reduced in
 * buckets, whole parameters side by side, in the order in which their gradients
 * are ready. all_reduce_steps.h has the steps that reduce a bucket. */
#pragma once

#include "runtime/plan/lower.h"

/* Adds the steps of n floats of a group, from `offset` on. */
typedef void fl_bucket_emitter(fl_lowering *l, const fl_dense *d,
                               int64_t offset, int64_t n);

/* For each bucket of the parameters that this process updates. */
void fl_each_bucket(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);

/* For each parameter that is pushed, alone. */
void fl_each_pushed(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);
