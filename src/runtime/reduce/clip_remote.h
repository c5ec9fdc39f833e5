/* clip_remote.h - the clip by global norm where rows are remote and dense
 * parameters are not. */
#pragma once

#include "runtime/plan/lower.h"

/* n values with squares of dense gradients, count[i] doubles in the i-th. */
fleet_status fl_emit_clip_rows(fl_lowering *l, const fl_operand *norm,
                               const int *count, int n);
