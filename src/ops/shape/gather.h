/* gather.h - the configurations of the kernels of gather.c, for both halves. */
#pragma once

#include <stdint.h>

/* gather         out [M, inner] <- x [N, inner], index [M]    of each sample
 * gather.grad    dx <- g, index
 * one_hot        out [M, inner] <- ids [M]: inner is the depth
 * cast           out <- ids, of any shape; without a configuration */
typedef struct fl_gather_config {
    int64_t n, m, inner;
} fl_gather_config;
