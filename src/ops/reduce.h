/* reduce.h - the configurations of the kernels of reduce.c, for both their
 * halves. */
#pragma once

#include <stdint.h>

#include "base/host_device.h"

/* A row of x is [outer, n, inner]; of the sum it is [outer, inner].
 *
 *   reduce_sum, reduce_sum.grad    fl_sum_config: the sum times scale
 *   reduce_most                    out <- x: the largest of sign x, times sign
 *   reduce_most.grad               dx <- g, x, out
 */
typedef struct fl_sum_config {
    int64_t outer, n, inner;
    float scale, sign;
} fl_sum_config;

/* Where the first of the n numbers lies that is the largest, or NaN as it
 * is. */
FL_EVERYWHERE int64_t fl_first_most(const float *x, const fl_sum_config *c,
                                    float most)
{
    int64_t j = 0;

    while (j + 1 < c->n && x[j * c->inner] != most &&
           (x[j * c->inner] == x[j * c->inner] || most == most))
        j++;
    return j;
}
