/* reverse.h - the configuration of the kernels of reverse.c, for both halves.
 *
 *   sequence_reverse   out <- x, mask   mask may be absent
 */
#pragma once

#include <stdint.h>

#include "base/host_device.h"

typedef struct fl_reverse {
    int64_t len, cols; /* places of a sample, and numbers of a place */
} fl_reverse;

/* How many values a sample has: up to the first 0 of its mask. */
FL_EVERYWHERE int64_t fl_reverse_count(const fl_reverse *c, const float *mask)
{
    int64_t n = 0;

    while (n < c->len && (!mask || mask[n] != 0.0f))
        n++;
    return n;
}

/* Where the value of place t comes from, of n values. */
FL_EVERYWHERE int64_t fl_reverse_from(int64_t t, int64_t n)
{
    return t < n ? n - 1 - t : t;
}
