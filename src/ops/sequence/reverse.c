/* reverse.c - a sample's values from the last to the first. What is done twice
 * is undone, so that the gradient goes the same way. */
#include "ops/sequence/reverse.h"

#include <string.h>

#include <fleet/sequence.h>

#include "ops/ops.h"

enum { OUT, IN, MASK };

static fleet_status run(const fl_instance *in, const fl_range *r)
{
    const fl_reverse *c = in->step->config;
    const float *x = fl_rows_f32(in, IN, r);
    const float *mask = in->arg[MASK].base ? fl_rows_f32(in, MASK, r) : NULL;
    float *out = fl_rows_f32(in, OUT, r);
    size_t bytes = (size_t)c->cols * sizeof *out;

    for (int64_t i = fl_range_rows(in, OUT, r); i > 0; i--) {
        int64_t n = fl_reverse_count(c, mask);

        for (int64_t t = 0; t < c->len; t++)
            memcpy(out + t * c->cols, x + fl_reverse_from(t, n) * c->cols,
                   bytes);
        x += c->len * c->cols;
        out += c->len * c->cols;
        mask = mask ? mask + c->len : NULL;
    }
    return FLEET_OK;
}

static const fl_kernel kernel = {
    .name = "sequence_reverse", .split = FL_SPLIT_ROWS, .run = run};

static fleet_status infer(fl_node *n)
{
    const fleet_var *mask = fl_input_of(n, 1);
    const fl_shape *x = &n->in[0]->shape;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(x) || x->n_dim < 2)
        return fl_want_shape(n, 0, "[-1,T,...]");
    if (mask) {
        FL_TRY(fl_want_dtype(n, 1, FLEET_FLOAT32));
        if (mask->shape.n_dim != 2 || mask->shape.dim[0] != x->dim[0] ||
            mask->shape.dim[1] != x->dim[1])
            return fl_fail(FLEET_ESHAPE,
                           "sequence_reverse: \"%s\" has shape %s; expected "
                           "[-1,T] for \"%s\" %s",
                           mask->name, fl_shape_print(&mask->shape).chars,
                           n->in[0]->name, fl_shape_print(x).chars);
    }
    fl_set_out(n, 0, x);
    return FLEET_OK;
}

static fleet_status emit(fl_lowering *l, const fl_node *n, int to, int from)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_reverse c = {x->dim[1], fl_shape_cols(x) / x->dim[1]};

    FL_EMIT(l, &kernel, n, fl_config(l, &c, sizeof c), FL_W(to), FL_R(from),
            FL_R(fl_value_of(l, fl_input_of(n, 1))));
    return FLEET_OK;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    return emit(l, n, fl_value_of(l, n->out[0]), fl_value_of(l, n->in[0]));
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    int g = fl_gradient_of(l, n->out[0]), to = fl_gradient_to(l, n->in[0]);

    return to >= 0 ? emit(l, n, to, g) : FLEET_OK;
}

const fl_op fl_op_sequence_reverse = {
    .name = "sequence_reverse",
    .n_out = 1,
    .least_in = 1,
    .most_in = 2, /* the last: the mask */
    .traits = FL_OP_LEARNS_FIRST,
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_sequence_reverse(fleet_program *p, fleet_var *x,
                                  fleet_var *mask)
{
    return mask ? fl_build_of_two(p, &fl_op_sequence_reverse, x, mask, NULL, 0)
                : fl_build_of_one(p, &fl_op_sequence_reverse, x, NULL, 0);
}
