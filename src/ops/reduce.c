/* reduce.c - sums, means and extremes over dimensions, the mean of everything,
 * and expand, whose gradient is a sum. */
#include <inttypes.h>
#include <string.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "ops/reduce.h"
#include "runtime/simd/simd.h"

/* --- over the parts that a sum was computed in ---------------------------- */

static fleet_status parts_run(const fl_instance *in, const fl_range *r)
{
    const fl_arg *parts = &in->arg[1];

    (void)r;
    fl_simd_best()->col_sum(fl_ptr(in, 0), fl_ptr(in, 1), parts->ld,
                            parts->rows, parts->cols);
    return FLEET_OK;
}

const fl_kernel fl_kernel_sum_parts = {.name = "parts.sum",
                                       .split = FL_SPLIT_PARTS,
                                       .n_part = 1,
                                       .run = parts_run};

/* --- over one dimension: [outer, n, inner] of a row becomes [outer, inner] */

static fleet_status axis_infer(fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis");
    const fl_shape *x = &n->in[0]->shape;
    fl_shape out = *x;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(fl_want_axis(n, 1));
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

/* Of the wider one of both shapes. */
static fl_sum_config config_of(const fl_shape *x, int64_t axis)
{
    fl_sum_config c = {1, x->dim[axis], 1, 1.0f, 1.0f};

    for (int i = 1; i < x->n_dim; i++) {
        if (i < axis)
            c.outer *= x->dim[i];
        else if (i > axis)
            c.inner *= x->dim[i];
    }
    return c;
}

static const fl_sum_config *make_config(fl_lowering *l, const fl_node *n)
{
    fl_sum_config c = config_of(&n->in[0]->shape, fl_node_int(n, "axis"));

    if (n->op == &fl_op_reduce_mean)
        c.scale = 1.0f / (float)c.n;
    if (n->op == &fl_op_reduce_min)
        c.sign = -1.0f;
    return fl_config(l, &c, sizeof c);
}

static fleet_status sum_run(const fl_instance *in, const fl_range *r)
{
    const fl_sum_config *c = in->step->config;
    const fl_simd *simd = fl_simd_best();
    float *out = fl_rows_f32(in, 0, r), *first = out;
    const float *x = fl_rows_f32(in, 1, r);
    int64_t rows = fl_range_rows(in, 0, r) * c->outer;

    for (int64_t i = 0; i < rows; i++, out += c->inner, x += c->n * c->inner) {
        if (c->inner == 1)
            *out = simd->row_sum(x, c->n);
        else
            simd->col_sum(out, x, c->inner, c->n, c->inner);
    }
    if (c->scale != 1.0f)
        simd->scale(first, first, c->scale, 0.0f, out - first);
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
                dx[k] = c->scale * g[k];
    return FLEET_OK;
}

/* NaN among them is the result. */
static fleet_status most_run(const fl_instance *in, const fl_range *r)
{
    const fl_sum_config *c = in->step->config;
    float *out = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);
    int64_t rows = fl_range_rows(in, 0, r) * c->outer;

    for (int64_t i = 0; i < rows; i++, out += c->inner) {
        for (int64_t j = 0; j < c->n; j++, x += c->inner)
            for (int64_t k = 0; k < c->inner; k++)
                if (j == 0 || c->sign * x[k] > c->sign * out[k] || x[k] != x[k])
                    out[k] = x[k];
    }
    return FLEET_OK;
}

/* Of equal ones the first gets the gradient. */
static fleet_status most_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_sum_config *c = in->step->config;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *x = fl_rows_f32(in, 2, r);
    const float *y = fl_rows_f32(in, 3, r);
    int64_t rows = fl_range_rows(in, 0, r) * c->outer;
    int64_t size = c->n * c->inner;

    memset(dx, 0, (size_t)(rows * size) * sizeof *dx);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < c->inner; k++) {
            int64_t at = fl_first_most(x + k, c, y[k]);

            dx[at * c->inner + k] = g[k];
        }
        dx += size, x += size;
        g += c->inner, y += c->inner;
    }
    return FLEET_OK;
}

static const fl_kernel_pair kernel_sum = FL_KERNEL_PAIR("reduce_sum", sum_run);
static const fl_kernel_pair kernel_sum_grad =
    FL_KERNEL_PAIR("reduce_sum.grad", sum_grad_run);
static const fl_kernel_pair kernel_most =
    FL_KERNEL_PAIR("reduce_most", most_run);
static const fl_kernel_pair kernel_most_grad =
    FL_KERNEL_PAIR("reduce_most.grad", most_grad_run);

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

static fleet_status most_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, fl_kernel_for(&kernel_most, n->in[0]), n, make_config(l, n),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status most_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, fl_kernel_for(&kernel_most_grad, n->in[0]), n,
                make_config(l, n), FL_W(to), FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, n->in[0])),
                FL_R(fl_value_of(l, n->out[0])));
    return FLEET_OK;
}

#define AXIS_OP(title, way)                                                    \
    const fl_op fl_op_reduce_##title = {                                       \
        .name = "reduce_" #title,                                              \
        .n_out = 1,                                                            \
        .least_in = 1,                                                         \
        .most_in = 1,                                                          \
        .attrs = "axis:i keep_dim:i",                                          \
        .infer = axis_infer,                                                   \
        .forward = way##_forward,                                              \
        .gradient = way##_gradient,                                            \
    };                                                                         \
                                                                               \
    fleet_var *fleet_reduce_##title(fleet_program *p, fleet_var *x, int axis,  \
                                    int keep_dim)                              \
    {                                                                          \
        return add_axis_op(p, &fl_op_reduce_##title, x, axis, keep_dim);       \
    }

static fleet_var *add_axis_op(fleet_program *p, const fl_op *op, fleet_var *x,
                              int axis, int keep_dim)
{
    fl_attr attr[] = {FL_ATTR_INT("axis", axis),
                      FL_ATTR_INT("keep_dim", keep_dim != 0)};

    return fl_build_of_one(p, op, x, attr, 2);
}

AXIS_OP(sum, sum)
AXIS_OP(mean, sum)
AXIS_OP(max, most)
AXIS_OP(min, most)

/* Several dimensions are one after the other, the last one first, so that the
 * numbers of those before it stay. */
fleet_var *fleet_reduce(fleet_program *p, fleet_var *x,
                        fleet_reduction reduction, const int *axes, int n_axis,
                        int keep_dim)
{
    static const fl_op *const ops[] = {&fl_op_reduce_sum, &fl_op_reduce_mean,
                                       &fl_op_reduce_max, &fl_op_reduce_min};
    bool over[FLEET_MAX_DIM] = {false};
    int n_dim;

    if (!fl_builder_ready(p, x))
        return NULL;
    if ((unsigned)reduction > FLEET_REDUCE_MIN)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL, "reduce: reduction %d does not exist",
                       (int)reduction));
    if (n_axis < 0)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL, "reduce: over %d dimensions", n_axis));
    n_dim = x->shape.n_dim;
    for (int i = 1; i < n_dim; i++)
        over[i] = n_axis == 0;
    for (int i = 0; i < n_axis; i++) {
        if (!axes || axes[i] < 1 || axes[i] >= n_dim || over[axes[i]])
            return fl_program_failed(
                p, fl_fail(FLEET_EINVAL,
                           "reduce: axis %d of shape %s; expected 1 to %d, "
                           "each once",
                           axes ? axes[i] : 0, fl_shape_print(&x->shape).chars,
                           n_dim - 1));
        over[axes[i]] = true;
    }
    for (int i = n_dim - 1; x && i > 0; i--)
        if (over[i])
            x = add_axis_op(p, ops[reduction], x, i, keep_dim);
    return x;
}

/* --- expand: a dimension of 1 becomes one of `times` ---------------------- */

static fleet_status expand_infer(fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis"), times = fl_node_int(n, "times");
    fl_shape out = n->in[0]->shape;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (axis < 1 || axis >= out.n_dim || out.dim[axis] != 1)
        return fl_fail(FLEET_EINVAL,
                       "expand: axis %" PRId64 " of \"%s\" %s; expected one "
                       "from 1 to %d that has 1",
                       axis, n->in[0]->name, fl_shape_print(&out).chars,
                       out.n_dim - 1);
    if (times < 1)
        return fl_fail(FLEET_EINVAL,
                       "expand: %" PRId64 " times; expected 1 or "
                       "more",
                       times);
    out.dim[axis] = times;
    FL_TRY(fl_shape_check_result("expand", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static const void *expand_config(fl_lowering *l, const fl_node *n)
{
    fl_sum_config c = config_of(&n->out[0]->shape, fl_node_int(n, "axis"));

    return fl_config(l, &c, sizeof c);
}

static fleet_status expand_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, fl_kernel_for(&kernel_sum_grad, n->in[0]), n,
            expand_config(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status expand_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, fl_kernel_for(&kernel_sum, n->in[0]), n, expand_config(l, n),
                FL_W(to), FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_expand = {
    .name = "expand",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "axis:i times:i",
    .infer = expand_infer,
    .forward = expand_forward,
    .gradient = expand_gradient,
};

fleet_var *fleet_expand(fleet_program *p, fleet_var *x, int axis, int64_t times)
{
    fl_attr attr[] = {FL_ATTR_INT("axis", axis), FL_ATTR_INT("times", times)};

    return fl_build_of_one(p, &fl_op_expand, x, attr, 2);
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
    return fl_build_of_one(p, &fl_op_mean, x, NULL, 0);
}
