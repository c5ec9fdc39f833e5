/* triangle.h - the configuration of the kernels of triangle.c, for both halves:
 * the lower triangle of n rows of n, a row after the other. */
#pragma once

#include <stdint.h>

#include "base/host_device.h"

typedef struct fl_triangle_config {
    int64_t n;
    int64_t diagonal; /* 1: with it, else 0 */
} fl_triangle_config;

/* Where row i begins in the triangle; of i = n how much it has. */
FL_EVERYWHERE int64_t fl_triangle_at(const fl_triangle_config *c, int64_t i)
{
    return i * (i - 1) / 2 + c->diagonal * i;
}
