/* batch_norm.h - the configuration of the kernels of batch_norm.c, data_norm.c
 * and column_norm.c, for both their halves. x is lines of n numbers, of which
 * each column is normalized by itself.
 *
 *   batch_norm.stats   stats <- x [, w]       of the batch
 *   batch_norm.fixed   stats <- mean, variance [, w]   the moving ones
 *   batch_norm.moments   moments <- x   which ranks then sum
 *   batch_norm.combined  stats <- moments [, w]
 *   column_norm        y <- x, stats [, b]
 *   batch_norm.sums    sums [, dw] [, db] <- g, x, stats
 *   column_norm.grad   dx <- g, x, stats [, sums] [, moments]
 *                      no sums: of batch_norm.fixed; moments: of the lines of
 *                      all ranks, as sums then are
 *   batch_norm.moving  dmean, dvariance <- stats [, loss scaling]
 *
 *   data_norm.stats    stats <- size, sum, squares
 *   data_norm.sums     dsize, dsum, dsquares <- x, stats [, loss scaling]
 *
 * column_norm.c has what both do by the statistics.
 */
#pragma once

#include <stdint.h>

#include "base/host_device.h"

typedef struct fl_batch_norm {
    int64_t n;
    float epsilon;
} fl_batch_norm;

/* stats: n numbers of each. FL_NORM_SCALE is w over the deviation. */
enum {
    FL_NORM_MEAN,
    FL_NORM_VARIANCE,
    FL_NORM_INVERSE,
    FL_NORM_SCALE,
    FL_NORM_STATS
};

/* sums: of g, and of g z, where z is what is normalized, before w and b. */
enum { FL_NORM_G, FL_NORM_GZ, FL_NORM_SUMS };

/* moments: doubles, n sums of x, n of its squares, and the number of lines. */
FL_EVERYWHERE int64_t fl_norm_moments(int64_t n)
{
    return 2 * n + 1;
}
