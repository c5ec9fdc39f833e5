/* fc_kernels.h - the steps that a fully connected layer is made of. Operands:
 *
 *   forward  out <- x, W [, b]     small.forward  the same
 *   mask     g <- out              g times the activation's derivative
 *   pack     wt <- W               W transposed
 *   dx       dx <- g, W or wt      small.dx       dx <- g, W
 *   dw       dW <- x, g            small.dw       the same
 *   db       db <- g
 *
 * On a GPU dw and small.dw write db, too, as a fourth operand, and there is no
 * pack.
 */
#pragma once

#include "ops/activation.h"
#include "runtime/plan/kernel.h"

typedef struct fl_fc_config {
    int64_t k, n;
    fl_activation activation;
    bool bias;
    bool packed; /* dx reads wt */
} fl_fc_config;

extern const fl_kernel fl_kernel_fc_forward, fl_kernel_fc_small_forward,
    fl_kernel_fc_mask, fl_kernel_fc_pack, fl_kernel_fc_dx,
    fl_kernel_fc_small_dx, fl_kernel_fc_dw, fl_kernel_fc_small_dw,
    fl_kernel_fc_db;
