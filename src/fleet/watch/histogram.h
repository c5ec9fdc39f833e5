/* histogram.h - how many of some numbers lie where: buckets of one width from
 * the least to the most. */
#pragma once

#include <stdint.h>

enum { FL_BUCKETS = 64 };

/* What is not finite is counted in `nonfinite` and nowhere else. */
typedef struct fl_histogram {
    int64_t n, nonfinite;
    double least, most, sum, squares; /* 0 of none */
    int64_t count[FL_BUCKETS];
} fl_histogram;

void fl_histogram_of(fl_histogram *h, const float *x, int64_t n);

/* Where the bucket ends; the last one at `most`. */
double fl_histogram_limit(const fl_histogram *h, int bucket);
