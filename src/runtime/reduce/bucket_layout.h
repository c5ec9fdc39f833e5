/* buckets.h - a group's gradient is reduced bucket by bucket: whole parameters
 * that lie side by side, in the order in which their gradients are ready. */
#ifndef FL_RUNTIME_REDUCE_BUCKETS_H
#define FL_RUNTIME_REDUCE_BUCKETS_H

#include "runtime/plan/lower.h"

/* Adds the steps of n floats of a group, from `offset` on. */
typedef void fl_bucket_emitter(fl_lowering *l, const fl_dense *d,
                               int64_t offset, int64_t n);

/* For each bucket of the parameters that this process updates. */
void fl_each_bucket(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);

/* For each parameter that is pushed, alone. */
void fl_each_pushed(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);

#endif
