/* embedding.h - the configurations of the kernels of embedding.c, for both
 * their halves. */
#pragma once

#include <stdint.h>

#include <fleet/nn.h>

#include "runtime/store/lookup_kernels.h"

/* embedding         out <- ids, W
 * embedding.grad    dW <- ids, g */
typedef struct fl_embedding_config {
    int64_t rows, dim, per_row; /* ids of a sample */
    int64_t padding;            /* -1: none */
} fl_embedding_config;

/* sequence_pool     out <- x */
typedef struct fl_pool_config {
    fleet_combiner combiner;
} fl_pool_config;

/* n numbers of a sample; of none it is 0. */
FL_EVERYWHERE float fl_pool_numbers(const float *x, int64_t n,
                                    fleet_combiner combiner)
{
    float all = n > 0 ? x[0] : 0.0f;

    if (combiner == FLEET_FIRST || combiner == FLEET_LAST)
        return n > 0 && combiner == FLEET_LAST ? x[n - 1] : all;
    for (int64_t i = 1; i < n; i++) {
        if (combiner != FLEET_MAX)
            all += x[i];
        else if (x[i] > all)
            all = x[i];
    }
    return all * fl_combiner_factor(combiner, n);
}
