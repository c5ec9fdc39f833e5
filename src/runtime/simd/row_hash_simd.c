/* row_hash_simd.c - hash_rows of simd.h. */
#include "runtime/simd/row_hash.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_hash)(fl_simd *t);

enum { AHEAD = 16 }; /* rows asked for before they are needed */
enum { LINE = 64 };  /* bytes of a cache line */

static inline void ask_for(const float *row, int64_t words)
{
    const char *at = (const char *)row, *end = (const char *)(row + words);

    for (; at < end; at += LINE)
        __builtin_prefetch(at, 1);
}

static void hash_rows(const fl_row_hash *h, const float *const *row, int64_t n,
                      bool out)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t mixed = fl_mix(h->key[i]);
        fl_hash_vec sum,
            *at = (fl_hash_vec *)(void *)h->to[mixed >> FL_HASH_SHIFT];

        if (i + AHEAD < n)
            ask_for(row[i + AHEAD], h->words);
        fl_hash_row(&sum, mixed, row[i], h->words);
        *at = out ? *at - sum : *at + sum;
    }
}

void FL_SIMD(fl_simd_hash)(fl_simd *t)
{
    t->hash_rows = hash_rows;
}
