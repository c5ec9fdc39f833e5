/* dropout.c - dropout (Srivastava et al. 2014), scaled in training, so that
 * nothing is to be done elsewhere.
 *
 * Which elements are kept is a function of the handle's seed, the node, the
 * batch's number in the whole training (fl_update_now) and the element's place
 * in the batch: neither threads nor the number of workers change it, and the
 * gradient draws it once more in place of keeping a mask.
 */
#include "ops/norm/dropout.h"

#include <fleet/ops.h>

#include "ops/ops.h"
#include "runtime/device/context.h"
#include "runtime/graph/program.h"

enum { OUT, IN, NUMBERS };

static void drop_row(const fl_dropout *c, float *out, const float *x,
                     int64_t batch, int64_t row)
{
    for (int64_t j = 0; j < c->cols; j += FL_DROPOUT_BLOCK) {
        fl_rng4 draw = fl_dropout_draw(c, batch, row, j / FL_DROPOUT_BLOCK);
        int64_t n = c->cols - j;

        n = n < FL_DROPOUT_BLOCK ? n : FL_DROPOUT_BLOCK;
        for (int64_t k = 0; k < n; k++)
            out[j + k] = draw.v[k] < c->below ? 0.0f : c->scale * x[j + k];
    }
}

static fleet_status dropout_run(const fl_instance *in, const fl_range *r)
{
    const fl_dropout *c = in->step->config;
    const fl_update_now *now = c->below > 0 ? fl_ptr(in, NUMBERS) : NULL;
    int64_t batch = now ? now->batch : 0;
    int64_t first = r->begin * in->arg[OUT].factor;
    int64_t rows = fl_range_rows(in, OUT, r);
    float *out = fl_rows_f32(in, OUT, r);
    const float *x = fl_rows_f32(in, IN, r);

    for (int64_t i = 0; i < rows; i++)
        drop_row(c, out + i * c->cols, x + i * c->cols, batch, first + i);
    return FLEET_OK;
}

static const fl_kernel kernel = {
    .name = "dropout", .split = FL_SPLIT_ROWS, .run = dropout_run};

static fleet_status dropout_infer(fl_node *n)
{
    double rate = fl_node_float(n, "rate");

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(&n->in[0]->shape))
        return fl_want_shape(n, 0, "a batch");
    if (!(rate >= 0 && rate < 1))
        return fl_fail(FLEET_EINVAL, "dropout: rate %g is not in [0, 1)", rate);
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static bool does_nothing(const fl_lowering *l, const fl_node *n)
{
    return !l->plan->training || fl_node_float(n, "rate") == 0;
}

static void emit(fl_lowering *l, const fl_node *n, int to, int from)
{
    double rate = does_nothing(l, n) ? 0 : fl_node_float(n, "rate");
    fl_dropout c = {.seed = l->program->context->seed,
                    .stream = UINT64_C(1) << 63 | (uint64_t)n->stream << 40,
                    .below = (uint32_t)(rate * 0x1p32),
                    .scale = (float)(1.0 / (1.0 - rate)),
                    .cols = fl_shape_cols(&n->in[0]->shape)};

    FL_EMIT(l, &kernel, n, fl_config(l, &c, sizeof c), FL_W(to), FL_R(from),
            FL_R(c.below > 0 ? fl_update_value(l) : -1));
}

static fleet_status dropout_forward(fl_lowering *l, const fl_node *n)
{
    int x = fl_value_of(l, n->in[0]);

    if (does_nothing(l, n) && x >= 0 && l->value[n->out[0]->id] < 0)
        fl_value_view(l, n->out[0], x);
    else
        emit(l, n, fl_value_of(l, n->out[0]), x);
    return FLEET_OK;
}

static fleet_status dropout_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        emit(l, n, to, fl_gradient_of(l, n->out[0]));
    return FLEET_OK;
}

const fl_op fl_op_dropout = {
    .name = "dropout",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "rate:f",
    .infer = dropout_infer,
    .forward = dropout_forward,
    .gradient = dropout_gradient,
};

fleet_var *fleet_dropout(fleet_program *p, fleet_var *x, float rate)
{
    return fl_build_of_one(p, &fl_op_dropout, x, &FL_ATTR_FLOAT("rate", rate),
                           1);
}
