/* elementwise.h - how the operands of operators of two values are walked; see
 * elementwise.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/program.h>

#include "runtime/graph/strides.h"

typedef enum fl_arithmetic {
    FL_ADD,
    FL_SUB,
    FL_MUL,
    FL_FORMULA /* one of binaries.def and comparisons.def */
} fl_arithmetic;

/* How an operand is walked: strides by the result's dimensions but the rows. */
typedef struct fl_walk {
    int64_t stride[FLEET_MAX_DIM];
    bool batched; /* has rows of its own */
    bool block_is_one;
} fl_walk;

typedef struct fl_elementwise {
    fl_arithmetic op;
    int formula; /* of FL_FORMULA: FL_BINARY_NAME */
    int n_dim;   /* of the result, without the rows and the block */
    int64_t dim[FLEET_MAX_DIM];
    int64_t block, n_block; /* elements of one; blocks of a row */
    fl_walk a, b;           /* the operands */
} fl_elementwise;

/* Where block i of a row begins in an operand. */
FL_EVERYWHERE int64_t fl_walk_block(const fl_elementwise *c, const fl_walk *w,
                                    int64_t i)
{
    return fl_strides_at(c->n_dim, c->dim, w->stride, i);
}

/* elementwise         out <- a, b
 * elementwise.grad    d <- g [, the other operand: mul]
 *                     d <- g, a, b                       of a formula */
typedef struct fl_elementwise_grad {
    fl_elementwise c;
    bool of_b;    /* which operand d is the gradient of */
    float sign;   /* of g in d: add, sub */
    int64_t size; /* elements of d's rows, or of d without a batch */
} fl_elementwise_grad;
