/* reduce.c - reduce_sum over one dimension, and the mean of everything. */
#include <inttypes.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "ops/reduce.h"
#include "runtime/simd/simd.h"

/* --- reduce_sum: [outer, n, inner] of a row becomes [outer, inner] -------- */

static fleet_status sum_infer(fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis");
    const fl_shape *x = &n->in[0]->shape;
    fl_shape out = *x;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (axis < 1 || axis >= x->n_dim)
        return fl_fail(FLEET_EINVAL,
                       "reduce_sum: axis %" PRId64 " of shape "
                       "%s; expected 1 to %d",
                       axis, fl_shape_print(x).chars, x->n_dim - 1);
    if (fl_node_int(n, "keep_dim")) {
        out.dim[axis] = 1;
    } else {
        for (int i = (int)axis; i + 1 < out.n_dim; i++)
            out.dim[i] = out.dim[i + 1];
        out.n_dim--;
    }
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static const fl_sum_config *make_config(fl_lowering *l, const fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis");
    const fl_shape *x = &n->in[0]->shape;
    fl_sum_config c = {1, x->dim[axis], 1};

    for (int i = 1; i < x->n_dim; i++) {
        if (i < axis)
            c.outer *= x->dim[i];
        else if (i > axis)
            c.inner *= x->dim[i];
    }
    return fl_config(l, &c, sizeof c);
}

static fleet_status sum_run(const fl_instance *in, const fl_range *r)
{
    const fl_sum_config *c = in->step->config;
    const fl_simd *simd = fl_simd_best();
    float *out = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);
    int64_t rows = fl_range_rows(in, 0, r) * c->outer;

    for (int64_t i = 0; i < rows; i++, out += c->inner, x += c->n * c->inner) {
        if (c->inner == 1)
            *out = simd->row_sum(x, c->n);
        else
            simd->col_sum(out, x, c->inner, c->n, c->inner);
    }
    return FLEET_OK;
}

static fleet_status sum_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_sum_config *c = in->step->config;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r);
    int64_t rows = fl_range_rows(in, 0, r) * c->outer;

    for (int64_t i = 0; i < rows; i++, g += c->inner)
        for (int64_t j = 0; j < c->n; j++, dx += c->inner)
            for (int64_t k = 0; k < c->inner; k++)
                dx[k] = g[k];
    return FLEET_OK;
}

static const fl_kernel_pair kernel_sum = FL_KERNEL_PAIR("reduce_sum", sum_run);
static const fl_kernel_pair kernel_sum_grad =
    FL_KERNEL_PAIR("reduce_sum.grad", sum_grad_run);

static fleet_status sum_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, fl_kernel_for(&kernel_sum, n->in[0]), n, make_config(l, n),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status sum_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, fl_kernel_for(&kernel_sum_grad, n->in[0]), n,
                make_config(l, n), FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_reduce_sum = {
    .name = "reduce_sum",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "axis:i keep_dim:i",
    .infer = sum_infer,
    .forward = sum_forward,
    .gradient = sum_gradient,
};

fleet_var *fleet_reduce_sum(fleet_program *p, fleet_var *x, int axis,
                            int keep_dim)
{
    fl_attr attr[] = {FL_ATTR_INT("axis", axis),
                      FL_ATTR_INT("keep_dim", keep_dim != 0)};

    return fl_builder_ready(p, x)
               ? fl_program_add(p, &fl_op_reduce_sum, &x, 1, attr, 2)
               : NULL;
}

/* --- mean ---------------------------------------------------------------- */

static fleet_status mean_infer(fl_node *n)
{
    fl_shape one = fl_shape_1(1);

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    fl_set_out(n, 0, &one);
    return FLEET_OK;
}

static int64_t elements(const fl_arg *a, int64_t batch)
{
    return (a->factor ? batch * a->factor : a->rows) * a->cols;
}

static fleet_status mean_run(const fl_instance *in, const fl_range *r)
{
    const float *x = fl_ptr(in, 1);
    int64_t n = elements(&in->arg[1], r->batch);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    *(float *)fl_ptr(in, 0) = (float)(sum / (double)n);
    return FLEET_OK;
}

static fleet_status mean_grad_run(const fl_instance *in, const fl_range *r)
{
    float *dx = fl_rows_f32(in, 0, r);
    int64_t n = fl_range_count(in, 0, r);
    float g =
        *(const float *)fl_ptr(in, 1) / (float)elements(&in->arg[0], r->batch);

    for (int64_t i = 0; i < n; i++)
        dx[i] = g;
    return FLEET_OK;
}

static const fl_kernel mean = {
    .name = "mean", .split = FL_SPLIT_PARTS, .run = mean_run};
static const fl_kernel_pair kernel_mean_grad =
    FL_KERNEL_PAIR("mean.grad", mean_grad_run);

static fleet_status mean_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &mean, n, NULL, FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status mean_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, fl_kernel_for(&kernel_mean_grad, n->in[0]), n, NULL,
                FL_W(to), FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_mean = {
    .name = "mean",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .infer = mean_infer,
    .forward = mean_forward,
    .gradient = mean_gradient,
};

fleet_var *fleet_mean(fleet_program *p, fleet_var *x)
{
    return fl_builder_ready(p, x)
               ? fl_program_add(p, &fl_op_mean, &x, 1, NULL, 0)
               : NULL;
}
