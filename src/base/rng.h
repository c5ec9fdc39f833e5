/* rng.h - random numbers as a function of (seed, stream, index): nothing is
 * carried from call to call, so that any element of any sequence can be made
 * anywhere, in any order, by any number of threads.
 *
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011.
 */
#pragma once

#include "base/rng_draw.h"

uint64_t fl_rng_below(uint64_t seed, uint64_t stream, uint64_t index,
                      uint64_t n); /* [0, n), n > 0 */

/* n elements, from the index-th of the sequence on: index must be a multiple
 * of 4 so that each block is made once. */
void fl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index, float low,
                    float high, float *out, int64_t n);
void fl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index, float mean,
                   float deviation, float *out, int64_t n);

/* A normal distribution cut at two deviations. */
void fl_rng_truncated_normal(uint64_t seed, uint64_t stream, uint64_t index,
                             float mean, float deviation, float *out,
                             int64_t n);
