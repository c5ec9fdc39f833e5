/* column_sums.h - sums of a matrix's columns, as gradients of biases are. */
#pragma once

#include "runtime/device/cuda/cuda.h"

/* What such a sum needs, in device memory. */
typedef struct fl_column_sums {
    float *left;       /* by block and column; NULL: one block has all rows */
    unsigned *arrived; /* by tile of columns: how many of its blocks have come;
                          0 between launches */
} fl_column_sums;

/* For a matrix of that size; memory that *s has already is left as it is. */
fleet_status fl_column_sums_prepare(fl_device *d, fl_queue *q, int64_t rows,
                                    int64_t cols, fl_column_sums *s);
void fl_column_sums_done(fl_device *d, fl_column_sums *s);

/* to[cols] = the sums of x[rows, cols], whose rows are ld elements apart. The
 * order of a sum depends on the number of rows alone. */
fleet_status fl_cuda_sum_columns(fl_queue *q, const fl_column_sums *s,
                                 fleet_dtype dtype, const void *x, int64_t ld,
                                 int64_t rows, int64_t cols, float *to);
