/* batch_matmul.h - the configuration of the kernel "batch_matmul", for both its
 * halves: out [m, n] <- a [m, k] b [k, n], `count` of each in a row of the
 * batch; ta: a is stored [k, m]; tb: b [n, k]. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_batch_matmul {
    int64_t count, m, n, k;
    bool ta, tb;
} fl_batch_matmul;
