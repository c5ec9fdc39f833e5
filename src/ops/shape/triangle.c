/* triangle.c - lower_triangle: of a square matrix what lies below its diagonal,
 * and its gradient, which is zeros elsewhere. */
#include "ops/shape/triangle.h"

#include <string.h>

#include <fleet/ops.h>

#include "ops/ops.h"

static fl_triangle_config config_of(const fl_node *n)
{
    return (fl_triangle_config){n->in[0]->shape.dim[1],
                                fl_node_int(n, "diagonal") != 0};
}

static fleet_status lower_infer(fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_triangle_config c;
    fl_shape out;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(x) || x->n_dim != 3 || x->dim[1] != x->dim[2])
        return fl_want_shape(n, 0, "[-1,N,N]");
    c = config_of(n);
    if (fl_triangle_at(&c, c.n) < 1)
        return fl_want_shape(n, 0, "[-1,N,N], N at least 2");
    out = fl_shape_2(x->dim[0], fl_triangle_at(&c, c.n));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status lower_run(const fl_instance *in, const fl_range *r)
{
    const fl_triangle_config *c = in->step->config;
    int64_t rows = fl_range_rows(in, 0, r);
    float *out = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < c->n; i++, x += c->n) {
            int64_t n = i + c->diagonal;

            memcpy(out, x, (size_t)n * sizeof *out);
            out += n;
        }
    return FLEET_OK;
}

static fleet_status lower_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_triangle_config *c = in->step->config;
    int64_t rows = fl_range_rows(in, 0, r);
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r);

    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < c->n; i++, dx += c->n) {
            int64_t n = i + c->diagonal;

            memcpy(dx, g, (size_t)n * sizeof *dx);
            memset(dx + n, 0, (size_t)(c->n - n) * sizeof *dx);
            g += n;
        }
    return FLEET_OK;
}

static const fl_kernel lower = {
    .name = "lower_triangle", .split = FL_SPLIT_ROWS, .run = lower_run};
static const fl_kernel lower_grad = {.name = "lower_triangle.grad",
                                     .split = FL_SPLIT_ROWS,
                                     .run = lower_grad_run};

static fleet_status lower_forward(fl_lowering *l, const fl_node *n)
{
    fl_triangle_config c = config_of(n);

    FL_EMIT(l, &lower, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status lower_gradient(fl_lowering *l, const fl_node *n)
{
    fl_triangle_config c = config_of(n);
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, &lower_grad, n, fl_config(l, &c, sizeof c), FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_lower_triangle = {
    .name = "lower_triangle",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "diagonal:i",
    .infer = lower_infer,
    .forward = lower_forward,
    .gradient = lower_gradient,
};

fleet_var *fleet_lower_triangle(fleet_program *p, fleet_var *x, int diagonal)
{
    return fl_build_of_one(p, &fl_op_lower_triangle, x,
                           &FL_ATTR_INT("diagonal", diagonal != 0), 1);
}
