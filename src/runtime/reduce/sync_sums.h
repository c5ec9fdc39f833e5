/* sync_sums.h - sums over the ranks in the middle of an iteration, forward and
 * backward: of strategy.sync_batch_norm.
 *
 * Ranks agree on the update before the forward pass of a plan that has some, so
 * that all of them run it, or have joined and add zeros. All such steps of a
 * plan, and the reductions of gradients behind them, have one order, which is
 * the same on all ranks. */
#pragma once

#include "runtime/device/comm.h"
#include "runtime/plan/lower.h"

/* Does this training sum in the middle? */
bool fl_has_sync_sums(const fl_lowering *l);

/* The sum over the ranks, in place, of the value's bytes as numbers of that
 * type, FL_WIRE_F32 or FL_WIRE_F64, in the host's memory. */
void fl_emit_sync_sum(fl_lowering *l, int value, fl_wire_type type);
