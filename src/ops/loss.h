/* loss.h - the configurations of the kernels of loss.c, for both their
 * halves. */
#pragma once

#include <stdint.h>

/* softmax         y <- x
 * softmax.grad    dx <- g, y */
typedef struct fl_softmax_config {
    int64_t classes;
} fl_softmax_config;

extern const struct fl_kernel fl_kernel_softmax_grad;

/* log_loss         loss <- p, label
 * log_loss.grad    dp <- g, p, label */
typedef struct fl_log_loss_config {
    float epsilon;
} fl_log_loss_config;
