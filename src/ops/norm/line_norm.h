/* line_norm.h - the configurations of the kernels of line_norm.c, for both
 * their halves. A row of x is lines of n numbers.
 *
 *   l2_normalize, l2_normalize.grad     dx <- g, x
 *   layer_norm       y, stats <- x [, w] [, b]
 *   layer_norm.grad  dx <- g, x, stats [, w]
 *   layer_norm.dw    dw <- g, x, stats
 *   layer_norm.db    db <- g
 *
 * stats has of each line its mean and 1 / its deviation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_line_norm {
    int64_t n;
    float epsilon;
    bool has_w, has_b;
} fl_line_norm;
