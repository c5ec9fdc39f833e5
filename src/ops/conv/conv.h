/* conv.h - the configuration of the kernels of conv.c, for both their halves.
 *
 *   conv      out <- x, W [, b]
 *   conv.dx   dx <- g, W
 *   conv.dw   sums <- x, g     a sum for each part of the images, which
 *                              fl_kernel_sum_parts adds up
 *   conv.db   db <- g
 */
#pragma once

#include "ops/dnnl.h"

typedef struct fl_conv {
    fl_conv_shape shape;
    bool bias;
    int64_t part; /* images of a part of conv.dw; the last may have fewer */
} fl_conv;
