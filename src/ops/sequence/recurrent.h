/* recurrent.h - what gru.c and lstm.c share: steps of a state h [B, H] through
 * x [B, T, G H], G numbers of each unit for each step, with a product h W
 * between them, and weights of updates [B, T].
 */
#pragma once

#include <fleet/sequence.h>

#include "ops/dnnl.h"
#include "ops/ops.h"
#include "ops/sequence/recurrent_config.h"

enum { FL_RECURRENT_X, FL_RECURRENT_W, FL_RECURRENT_B, FL_RECURRENT_WEIGHTS };

/* --- kernels -------------------------------------------------------------- */

typedef struct fl_recurrent_state {
    fl_matmul *matmul;
    size_t product; /* bytes of the product's own scratch */
} fl_recurrent_state;

/* Rows of a full slice of operand i. */
int64_t fl_recurrent_slice(const fl_instance *in, int i);

/* A product of a slice's states, and scratch for it and for `room` floats of
 * each row of operand `like`, which fl_recurrent_scratch() gives. */
fleet_status fl_recurrent_prepare(fl_instance *in, int like,
                                  const fl_matmul_spec *spec, int64_t room);
void fl_recurrent_finish(fl_instance *in);
float *fl_recurrent_scratch(const fl_instance *in, const fl_range *r);

/* --- the operator --------------------------------------------------------- */

const fleet_var *fl_recurrent_weights(const fl_node *n);
int64_t fl_recurrent_units(const fl_node *n, int gates);
fleet_status fl_recurrent_infer(fl_node *n, int gates);

/* Values for each step of each sample: as x lies; as rows of a matrix. */
int fl_recurrent_temp(fl_lowering *l, const fl_node *n, const char *name,
                      int64_t cols);
int fl_recurrent_rows(fl_lowering *l, const fl_node *n, const char *name,
                      int64_t cols);

const void *fl_recurrent_config(fl_lowering *l, const fl_node *n, int gates);

/* dW and db: sums over the batch, of states before steps and the gradients of
 * what is made of them, as rows. */
void fl_recurrent_sums(fl_lowering *l, const fl_node *n, int gates, int last,
                       int state);

/* x W_x + b_x by a layer, then the operator. */
fleet_var *fl_recurrent_build(fleet_program *p, const fl_op *op, int gates,
                              fleet_var *x, int64_t units, fleet_var *weights,
                              const fleet_recurrent_options *options);
