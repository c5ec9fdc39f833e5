/* reduce.h - the configurations of the kernels of reduce.c, for both their
 * halves. */
#pragma once

#include <stdint.h>

/* A row of x is [outer, n, inner]; of the sum it is [outer, inner]. */
typedef struct fl_sum_config {
    int64_t outer, n, inner;
} fl_sum_config;
