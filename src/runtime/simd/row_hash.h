/* row_hash.h - the hash of a row's bits (runtime/store/live_hash.h), for the
 * files that are compiled once per instruction set: hash_rows of simd.h, and
 * rules, which hash a row as it changes. Sums of products in lanes of 32 bits:
 * the same on every instruction set. */
#pragma once

#include "base/hash.h"
#include "runtime/simd/simd.h"

typedef uint32_t fl_hash_vec
    __attribute__((vector_size(32), aligned(4), may_alias));

enum { FL_HASH_NEXT = 0x3c6ef372 }; /* even: factors stay odd */

/* The words that are left, from a multiple of 8 on. */
static inline void fl_hash_tail(fl_hash_vec *sum, const float *row, int64_t n,
                                uint32_t factor)
{
    fl_hash_vec x = {0};

    __builtin_memcpy(&x, row, (size_t)n * sizeof *row);
    *sum += x * factor;
}

/* Of a row of that many words, whose key is mixed. */
static inline void fl_hash_row(fl_hash_vec *to, uint64_t mixed,
                               const float *row, int64_t words)
{
    fl_hash_vec by = ((uint32_t)mixed | 1) - (fl_hash_vec){0}, sum = by;

    for (; words >= FL_HASH_LANES; words -= FL_HASH_LANES) {
        sum += *(const fl_hash_vec *)(const void *)row * by;
        by += FL_HASH_NEXT;
        row += FL_HASH_LANES;
    }
    if (words > 0)
        fl_hash_tail(&sum, row, words, by[0]);
    *to = sum;
}
