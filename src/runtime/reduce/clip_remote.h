/* clip_remote.h - the clip by global norm of ranks, where servers or other
 * ranks keep a part of the parameters. */
#pragma once

#include "runtime/plan/lower.h"

/* Squares of a dense gradient that ranks have summed: a double for each block
 * of the parameter. */
typedef struct fl_param_norm {
    const fl_param *param;
    int value;
} fl_param_norm;

fleet_status fl_emit_clip_remote(fl_lowering *l, const fl_param_norm *norm,
                                 int n);
