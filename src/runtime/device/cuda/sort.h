/* sort.h - positions by key: a stable radix sort, so that equal keys stay in
 * the order of their positions and sums over them have one order. */
#pragma once

#include "runtime/device/cuda/cuda.h"

/* Arrays of `most` in device memory. */
typedef struct fl_sorted {
    uint64_t *key;      /* by rank */
    uint32_t *position; /* by rank: where that key was */
} fl_sorted;

/* Parts of a step's scratch begin at multiples of 256 bytes. */
static inline size_t fl_padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Bytes of scratch for up to `most` keys. */
size_t fl_sort_scratch(int64_t most);

/* Sort the first *n of `key` (device memory, as n) by their low `bits`; the
 * result lies in the scratch. key stays as it is. */
fleet_status fl_sort(fl_queue *q, const uint64_t *key, const int64_t *n,
                     int64_t most, int bits, void *scratch, fl_sorted *out);
