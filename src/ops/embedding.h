/* embedding.h - the configurations of the kernels of embedding.c, for both
 * their halves. */
#pragma once

#include <stdint.h>

#include <fleet/nn.h>

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
