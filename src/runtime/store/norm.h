/* norm.h - the arithmetic of the clip by global norm, which one process, its
 * workers and servers must do alike to the bit: squares in double, per dense
 * block in index order, per row, rows in key order per bucket.
 */
#pragma once

#include <stdlib.h>

#include "runtime/store/table_api.h"

/* The sum of the squares of grad * scale. */
static inline double fl_square_sum(const float *grad, int64_t n, float scale)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)(grad[i] * scale);

        sum += x * x;
    }
    return sum;
}

static inline bool fl_all_finite(const float *x, int64_t n)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] - x[i]; /* 0, or NaN for good */
    return sum == 0;
}

/* A row that is about to be changed. */
typedef struct fl_norm_row {
    uint64_t key;
    const float *grad;
    int bucket;
} fl_norm_row;

static inline fl_norm_row fl_norm_row_of(uint64_t key, const float *grad)
{
    return (fl_norm_row){key, grad, fl_bucket_of(fl_mix(key))};
}

static inline int fl_norm_by_bucket_and_key(const void *a, const void *b)
{
    const fl_norm_row *x = a, *y = b;

    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Into the order in which they are added up. */
static inline void fl_norm_sort(fl_norm_row *row, int64_t n)
{
    if (n > 1)
        qsort(row, (size_t)n, sizeof *row, fl_norm_by_bucket_and_key);
}
