/* reduce_scatter.h - plan steps of strategy.sharding from stage 2 on: ranks sum
 * a group's gradient bucket by bucket while the backward pass goes on, and each
 * keeps the sum of its own part alone. */
#pragma once

#include "runtime/plan/lower.h"

/* For each bucket of a group's gradient. Until its sum is begun a bucket lies
 * in memory of the iteration, which other values use before and afterwards;
 * d->gradient is the part, and d->first where it begins, from then on. */
void fl_emit_reduce_scatter(fl_lowering *l, fl_dense *d);

/* After the last group's: the update waits for the last bucket. */
void fl_emit_reduce_scatter_end(fl_lowering *l);
