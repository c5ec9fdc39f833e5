/* zipf.h - ranks by Zipf's law: rank i, from 0, is as likely as
 * (i + 1)^-exponent. */
#pragma once

#include <stdint.h>

typedef struct zipf {
    int64_t n;       /* ranks */
    double exponent; /* 0: all are as likely */

    double first, last, squeeze; /* made by zipf_begin() */
} zipf;

void zipf_begin(zipf *z);

/* The rank that is the number-th of that sequence of the seed. */
int64_t zipf_draw(const zipf *z, uint64_t seed, uint64_t stream,
                  uint64_t number);

/* What a rank's power is divided by to be its probability. */
double zipf_sum(const zipf *z);
