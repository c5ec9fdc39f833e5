/* fp16_allreduce.h - strategy.fp16_allreduce: gradients travel as float16. */
#pragma once

#include "runtime/reduce/bucket_layout.h"

/* The sum over the ranks of a bucket, rounded before and after. */
fl_bucket_emitter fl_emit_fp16_all_reduce;
