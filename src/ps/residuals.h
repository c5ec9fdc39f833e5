/* residuals.h - error feedback of pushes that travel in fewer bytes
 * (ps/codec.h; Seide et al. 2014, "1-bit stochastic gradient descent";
 * Karimireddy et al. 2019, "Error feedback fixes SignSGD"). What a push of a
 * row or a block has rounded away is kept by the worker, and added to its next
 * push of them: the sum of what has travelled is the sum of all gradients but
 * for one rounding.
 *
 * A push is written once: what is sent again are the same bytes. Residuals
 * change when it is on its way, all at once: a push that could not be made
 * leaves them as they were. */
#pragma once

#include "ps/codec.h"
#include "ps/partition.h"

typedef struct fl_residuals fl_residuals;

/* Of all dense weights and, as rows are pushed, of rows: a float for each
 * number. The partition must stay. */
fleet_status fl_residuals_create(fl_residuals **r, const fl_partition *layout);
void fl_residuals_destroy(fl_residuals *r); /* NULL is fine */

/* A push is about to be written: one before it that was not kept was none. */
void fl_residuals_begin(fl_residuals *r);

/* Residuals of a block (of n numbers), or of rows of a table, are added to the
 * values, which the caller then writes with `rest`, and leaves where they are
 * until fl_residuals_keep(). Each row and block once in a push. */
fleet_status fl_residuals_add_block(fl_residuals *r, uint64_t key,
                                    float *values, int64_t n);
fleet_status fl_residuals_add_rows(fl_residuals *r, int table,
                                   const uint64_t *key, float *values,
                                   int64_t n);

/* The push is on its way: what its values are now are the residuals. */
void fl_residuals_keep(fl_residuals *r);

/* All are 0 again: what they belonged to was replaced by a load. */
void fl_residuals_forget(fl_residuals *r); /* NULL is fine */
