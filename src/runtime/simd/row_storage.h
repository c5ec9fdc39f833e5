/* row_storage.h - a row's weights in fewer bits: as float16, bfloat16, or
 * integers of 8 bits times a power of two that the row has; read into floats,
 * and written, rounded to nearest or at random.
 *
 * At random: a number between two that can be stored becomes the upper one with
 * the probability of its distance from the lower one, so that the mean of what
 * is stored is the number, and small updates are not lost (Gupta et al. 2015).
 * The probabilities are multiples of 2^-16, of float16 of 2^-13, exact but for
 * denormal numbers. The random bits are a function of a seed and the column.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/nn.h>

/* The largest dim of a row that is not float32: a row in floats has to fit on
 * the stack. */
enum { FL_MOST_NARROW_DIM = 2048 };

/* Floats of memory that the weights take; the states follow. Of 8 bits the
 * first one is the power of two. */
static inline int64_t fl_storage_words(fleet_row_storage s, int64_t dim)
{
    switch (s) {
    case FLEET_ROW_FLOAT16:
    case FLEET_ROW_BFLOAT16:
        return (dim + 1) / 2;
    case FLEET_ROW_INT8:
        return 1 + (dim + 3) / 4;
    default:
        return dim;
    }
}

/* out: dim floats. */
typedef void fl_read_weights(fleet_row_storage s, float *out, const float *row,
                             int64_t dim);

/* seed NULL: to nearest; what was read is written as it was. Finite numbers
 * that are too large become the largest ones; infinities stay that, or with 8
 * bits NaN, as the whole row then is. */
typedef void fl_write_weights(fleet_row_storage s, float *row, const float *w,
                              int64_t dim, const uint64_t *seed);
