/* elementwise.h - how the operands of add, sub and mul are walked; see
 * elementwise.c. */
#ifndef FL_OPS_ELEMENTWISE_H
#define FL_OPS_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

#include <fleet/program.h>

typedef enum fl_arithmetic { FL_ADD, FL_SUB, FL_MUL } fl_arithmetic;

/* How an operand is walked: strides by the result's dimensions but the rows. */
typedef struct fl_walk {
    int64_t stride[FLEET_MAX_DIM];
    bool batched; /* has rows of its own */
    bool block_is_one;
} fl_walk;

typedef struct fl_elementwise {
    fl_arithmetic op;
    int n_dim; /* of the result, without the rows and the block */
    int64_t dim[FLEET_MAX_DIM];
    int64_t block, n_block; /* elements of one; blocks of a row */
    fl_walk a, b;           /* the operands */
} fl_elementwise;

/* elementwise         out <- a, b
 * elementwise.grad    d <- g [, the other operand: mul] */
typedef struct fl_elementwise_grad {
    fl_elementwise c;
    bool of_b;    /* which operand d is the gradient of */
    float sign;   /* of g in d, unless mul */
    int64_t size; /* elements of d's rows, or of d without a batch */
} fl_elementwise_grad;

#endif
