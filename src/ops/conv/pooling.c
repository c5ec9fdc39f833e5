/* pooling.c - the largest numbers of windows, or their means. Planes are by
 * themselves; a window's largest number is found again for the gradient. */
#include "ops/conv/pooling.h"

#include <inttypes.h>
#include <string.h>

#include <fleet/conv.h>

#include "ops/conv/window.h"
#include "ops/ops.h"

/* --- kernels -------------------------------------------------------------- */

static int64_t planes(const fl_instance *in, const fl_range *r, int i)
{
    const fl_pooling *c = in->step->config;

    return fl_range_rows(in, i, r) * c->channels;
}

static float mean_of(const fl_pooling *c, const float *plane,
                     const fl_pooling_window *w)
{
    float sum = 0.0f;

    for (int64_t i = w->first[0]; i < w->end[0]; i++)
        for (int64_t j = w->first[1]; j < w->end[1]; j++)
            sum += plane[i * c->x[1] + j];
    return sum / fl_pooling_count(c, w);
}

enum { F_OUT, F_X };

static fleet_status run(const fl_instance *in, const fl_range *r, bool mean)
{
    const fl_pooling *c = in->step->config;
    float *out = fl_rows_f32(in, F_OUT, r);
    const float *x = fl_rows_f32(in, F_X, r);

    for (int64_t p = planes(in, r, F_OUT); p > 0; p--) {
        for (int64_t i = 0; i < c->y[0]; i++)
            for (int64_t j = 0; j < c->y[1]; j++) {
                fl_pooling_window w = fl_pooling_window_at(c, i, j);

                *out++ =
                    mean ? mean_of(c, x, &w) : x[fl_pooling_largest(c, x, &w)];
            }
        x += c->x[0] * c->x[1];
    }
    return FLEET_OK;
}

static fleet_status max_run(const fl_instance *in, const fl_range *r)
{
    return run(in, r, false);
}

static fleet_status average_run(const fl_instance *in, const fl_range *r)
{
    return run(in, r, true);
}

enum { D_DX, D_G, D_X };

static void spread_mean(const fl_pooling *c, float *dx, float g,
                        const fl_pooling_window *w)
{
    g /= fl_pooling_count(c, w);
    for (int64_t i = w->first[0]; i < w->end[0]; i++)
        for (int64_t j = w->first[1]; j < w->end[1]; j++)
            dx[i * c->x[1] + j] += g;
}

/* x NULL: of means. */
static void grad_plane(const fl_pooling *c, float *dx, const float *g,
                       const float *x)
{
    memset(dx, 0, (size_t)(c->x[0] * c->x[1]) * sizeof *dx);
    for (int64_t i = 0; i < c->y[0]; i++)
        for (int64_t j = 0; j < c->y[1]; j++, g++) {
            fl_pooling_window w = fl_pooling_window_at(c, i, j);

            if (x)
                dx[fl_pooling_largest(c, x, &w)] += *g;
            else
                spread_mean(c, dx, *g, &w);
        }
}

static fleet_status grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_pooling *c = in->step->config;
    float *dx = fl_rows_f32(in, D_DX, r);
    const float *g = fl_rows_f32(in, D_G, r);
    const float *x = in->step->n_operand > D_X ? fl_rows_f32(in, D_X, r) : NULL;
    int64_t size = c->x[0] * c->x[1];

    for (int64_t p = planes(in, r, D_G), i = 0; i < p; i++)
        grad_plane(c, dx + i * size, g + i * c->y[0] * c->y[1],
                   x ? x + i * size : NULL);
    return FLEET_OK;
}

static const fl_kernel kernel_max = {
    .name = "pool.max", .split = FL_SPLIT_ROWS, .run = max_run};
static const fl_kernel kernel_max_grad = {
    .name = "pool.max.grad", .split = FL_SPLIT_ROWS, .run = grad_run};
static const fl_kernel kernel_average = {
    .name = "pool.average", .split = FL_SPLIT_ROWS, .run = average_run};
static const fl_kernel kernel_average_grad = {
    .name = "pool.average.grad", .split = FL_SPLIT_ROWS, .run = grad_run};

/* --- shapes --------------------------------------------------------------- */

static int dims_of(const fl_node *n)
{
    return n->op == &fl_op_pool1d ? 1 : 2;
}

static fleet_status find_results(const fl_node *n, fl_pooling *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->padding[i] >= c->size[i])
            return fl_fail(FLEET_EINVAL,
                           "%s: padding %" PRId64 " of windows of %" PRId64
                           "; expected less",
                           n->op->name, c->padding[i], c->size[i]);
        if (c->size[i] > c->x[i] + 2 * c->padding[i])
            return fl_fail(FLEET_ESHAPE,
                           "%s: windows of %" PRId64
                           " are larger than \"%s\" %s with its padding",
                           n->op->name, c->size[i], n->in[0]->name,
                           fl_shape_print(&n->in[0]->shape).chars);
        c->y[i] = (c->x[i] + 2 * c->padding[i] - c->size[i]) / c->stride[i] + 1;
    }
    return FLEET_OK;
}

static fleet_status read_config(const fl_node *n, fl_pooling *c)
{
    const fl_shape *x = &n->in[0]->shape;
    int dims = dims_of(n);

    *c = (fl_pooling){.channels = x->dim[1],
                      .x = {1, 1},
                      .count_padding = fl_node_int(n, "count_padding") != 0};
    for (int i = 0; i < dims; i++)
        c->x[2 - dims + i] = x->dim[2 + i];
    FL_TRY(fl_window_pair(n, dims, "size", 1, 1, c->size));
    FL_TRY(fl_window_pair(n, dims, "stride", 1, 1, c->stride));
    FL_TRY(fl_window_pair(n, dims, "padding", 0, 0, c->padding));
    return find_results(n, c);
}

static bool is_average(const fl_node *n)
{
    return fl_node_int(n, "kind") == FLEET_POOL_AVERAGE;
}

static fleet_status infer(fl_node *n)
{
    int64_t kind = fl_node_int(n, "kind");
    fl_shape out = n->in[0]->shape;
    int dims = dims_of(n);
    fl_pooling c;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(&out) || out.n_dim != dims + 2)
        return fl_want_shape(n, 0, dims == 1 ? "[-1,C,L]" : "[-1,C,H,W]");
    if (kind != FLEET_POOL_MAX && kind != FLEET_POOL_AVERAGE)
        return fl_fail(FLEET_EINVAL, "%s: kind %" PRId64 " does not exist",
                       n->op->name, kind);
    FL_TRY(read_config(n, &c));
    if (c.count_padding && !is_average(n))
        return fl_fail(FLEET_EINVAL, "%s: count_padding is of averages",
                       n->op->name);
    for (int i = 0; i < dims; i++)
        out.dim[2 + i] = c.y[2 - dims + i];
    FL_TRY(fl_shape_check_result(n->op->name, &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* --- lowering ------------------------------------------------------------- */

static const fl_pooling *make_config(fl_lowering *l, const fl_node *n)
{
    fl_pooling c;

    /* infer() has had no fault with it */
    return read_config(n, &c) == FLEET_OK ? fl_config(l, &c, sizeof c) : NULL;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, is_average(n) ? &kernel_average : &kernel_max, n,
            make_config(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    int g = fl_gradient_of(l, n->out[0]), dx = fl_gradient_to(l, n->in[0]);

    if (dx < 0)
        return FLEET_OK;
    if (is_average(n))
        FL_EMIT(l, &kernel_average_grad, n, make_config(l, n), FL_W(dx),
                FL_R(g));
    else
        FL_EMIT(l, &kernel_max_grad, n, make_config(l, n), FL_W(dx), FL_R(g),
                FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

#define POOL                                                                   \
    .n_out = 1, .least_in = 1, .most_in = 1,                                   \
    .attrs = "kind:i size:v stride:v padding:v count_padding:i",               \
    .infer = infer, .forward = forward, .gradient = gradient

const fl_op fl_op_pool1d = {.name = "pool1d", POOL};
const fl_op fl_op_pool2d = {.name = "pool2d", POOL};

/* --- builders ------------------------------------------------------------- */

static fleet_var *build(fleet_program *p, const fl_op *op, fleet_var *x,
                        const fleet_pool_options *o, int dims)
{
    int64_t stride[2];

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!o)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "%s: it needs the size of a window, in "
                       "options, which are NULL",
                       op->name));
    if (dims == 1 && (o->size[1] || o->stride[1] || o->padding[1]))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "%s: size, stride and padding have one number, and the "
                       "second one is 0",
                       op->name));
    for (int i = 0; i < dims; i++)
        stride[i] = o->stride[i] ? o->stride[i] : o->size[i];
    fl_attr attr[] = {FL_ATTR_INT("kind", o->kind),
                      FL_ATTR_INTS("size", o->size, dims),
                      FL_ATTR_INTS("stride", stride, dims),
                      FL_ATTR_INTS("padding", o->padding, dims),
                      FL_ATTR_INT("count_padding", o->count_padding != 0)};

    return fl_program_add(p, op, &x, 1, attr, 5);
}

fleet_var *fleet_pool2d(fleet_program *p, fleet_var *x,
                        const fleet_pool_options *options)
{
    return build(p, &fl_op_pool2d, x, options, 2);
}

fleet_var *fleet_pool1d(fleet_program *p, fleet_var *x,
                        const fleet_pool_options *options)
{
    return build(p, &fl_op_pool1d, x, options, 1);
}
