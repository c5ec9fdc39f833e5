/* column_norm.h - what batch_norm.c and data_norm.c have in common: columns of
 * a batch are normalized by statistics that a step before has stored
 * (batch_norm.h).
 */
#pragma once

#include "ops/norm/batch_norm.h"
#include "ops/ops.h"

/* y and dx from the statistics. */
extern const fl_kernel fl_kernel_column_norm, fl_kernel_column_norm_grad;

/* How many columns x has; 1 of a shape that fl_want_columns() refuses. */
int64_t fl_columns_of(const fleet_var *x);

/* The first input is [-1, ..., N] of floats; another one has one float for each
 * of its columns. */
fleet_status fl_want_columns(const fl_node *n);
fleet_status fl_want_one_each(const fl_node *n, int in);

/* prepare() of a kernel whose part has FL_COLUMN_PART columns of all lines, and
 * which ones. */
enum { FL_COLUMN_PART = 64 };
typedef struct fl_column_part {
    int64_t first, n;
} fl_column_part;

fleet_status fl_split_columns(fl_instance *in);
fl_column_part fl_column_part_of(const fl_batch_norm *c, const fl_range *r);

/* From mean and variance: the other columns of stats. w: NULL is 1. */
void fl_finish_stats(const fl_batch_norm *c, float *stats, const float *w,
                     fl_column_part k);

/* Of operand i in the whole batch, whatever the range. */
int64_t fl_batch_lines(const fl_instance *in, int i, const fl_range *r);

/* NULL: the step has none. */
static inline void *fl_optional_ptr(const fl_instance *in, int i)
{
    return in->step->operand[i].value >= 0 ? fl_ptr(in, i) : NULL;
}
