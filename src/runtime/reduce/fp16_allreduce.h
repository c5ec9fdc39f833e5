/* fp16_allreduce.h - strategy.fp16_allreduce: gradients travel as float16. */
#ifndef FL_RUNTIME_REDUCE_FP16_ALLREDUCE_H
#define FL_RUNTIME_REDUCE_FP16_ALLREDUCE_H

#include "runtime/reduce/buckets.h"

/* The sum over the ranks of a bucket, rounded before and after. */
fl_bucket_emitter fl_emit_fp16_all_reduce;

#endif
