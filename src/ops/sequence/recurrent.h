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

/* Operands of the two kernels of an operator, in the order in which they are
 * lowered. The weights are absent, or their gradient not wanted. */
enum { F_OUT, F_GATES, F_X, F_W, F_B, F_WEIGHTS };
enum {
    D_X,
    D_STATE,
    D_LAST,
    D_WEIGHTS,
    D_G,
    D_OUT,
    D_GATES,
    D_W,
    D_OF_WEIGHTS
};

/* The product of a slice's states, h W + b forward, backward by W transposed;
 * and scratch for it and for `room` floats of each row, which
 * fl_recurrent_scratch() gives. */
fleet_status fl_recurrent_prepare(fl_instance *in, int gates);
fleet_status fl_recurrent_prepare_grad(fl_instance *in, int gates,
                                       int64_t room);
void fl_recurrent_finish(fl_instance *in);
float *fl_recurrent_scratch(const fl_instance *in, const fl_range *r);

/* Where a row has its numbers of a step, backward. */
typedef struct fl_recurrent_row {
    float *dx, *ds, *last, *da;
    const float *g, *out, *gates, *weight;
} fl_recurrent_row;

/* Of step t of the range's first row; `kept`: numbers of a unit in gates. */
static inline fl_recurrent_row fl_recurrent_row_of(const fl_instance *in,
                                                   const fl_range *r, int64_t t,
                                                   int gates, int kept)
{
    const fl_recurrent *c = in->step->config;
    int64_t u = c->units;
    bool has = in->arg[D_OF_WEIGHTS].base, wants = in->arg[D_WEIGHTS].base;

    return (fl_recurrent_row){
        .dx = fl_rows_f32(in, D_X, r) + t * gates * u,
        .ds = fl_rows_f32(in, D_STATE, r) + t * gates * u,
        .last = fl_rows_f32(in, D_LAST, r) + t * u,
        .da = wants ? fl_rows_f32(in, D_WEIGHTS, r) + t : NULL,
        .g = fl_rows_f32(in, D_G, r) + t * u,
        .out = fl_rows_f32(in, D_OUT, r) + t * u,
        .gates = fl_rows_f32(in, D_GATES, r) + t * kept * u,
        .weight = has ? fl_rows_f32(in, D_OF_WEIGHTS, r) + t : NULL,
    };
}

static inline void fl_recurrent_row_next(fl_recurrent_row *p,
                                         const fl_recurrent *c, int gates,
                                         int kept)
{
    int64_t n = c->len * c->units;

    p->dx += gates * n;
    p->ds += gates * n;
    p->last += n;
    p->da = p->da ? p->da + c->len : NULL;
    p->g += n;
    p->out += n;
    p->gates += kept * n;
    p->weight = p->weight ? p->weight + c->len : NULL;
}

/* --- the operator --------------------------------------------------------- */

fleet_status fl_recurrent_infer(fl_node *n, int gates);

/* `kept` as above. */
void fl_recurrent_forward(fl_lowering *l, const fl_node *n, int gates, int kept,
                          const fl_kernel *kernel);
void fl_recurrent_gradient(fl_lowering *l, const fl_node *n, int gates,
                           const fl_kernel *kernel);

/* x W_x + b_x by a layer, then the operator. */
fleet_var *fl_recurrent_build(fleet_program *p, const fl_op *op, int gates,
                              fleet_var *x, int64_t units, fleet_var *weights,
                              const fleet_recurrent_options *options);
