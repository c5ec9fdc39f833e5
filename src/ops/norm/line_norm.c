/* line_norm.c - what is normalized line by line: layer_norm, l2_normalize, and
 * a cosine that is made of l2_normalize.
 *
 *   l2_normalize  y = x / r, r = sqrt(max(sum x^2, epsilon))
 *                 dx = (g - y sum g y) / r, or g / r where r is of epsilon
 *   layer_norm    z = (x - mean) / sqrt(variance + epsilon), y = z w + b
 *                 dx = (h - mean h - z mean (h z)) / deviation, h = g w
 *                 dw = sum g z, db = sum g
 */
#include "ops/norm/line_norm.h"

#include <math.h>
#include <string.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"
#include "runtime/simd/simd.h"

enum { LANES = 8, COLUMNS = 64 };

/* The sum of a b, in one order for each n; lanes wait for nothing. */
static float dot(const float *a, const float *b, int64_t n)
{
    float part[LANES] = {0}, sum = 0.0f;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < LANES; k++)
        sum += part[k];
    return sum;
}

static int64_t lines_of(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;

    return fl_range_count(in, 0, r) / c->n;
}

/* --- l2_normalize --------------------------------------------------------- */

static float inverse_of(const fl_line_norm *c, float sum)
{
    return 1.0f / sqrtf(sum < c->epsilon ? c->epsilon : sum);
}

static fleet_status l2_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    float *y = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t i = lines_of(in, r); i > 0; i--, y += c->n, x += c->n) {
        float inverse = inverse_of(c, dot(x, x, c->n));

        fl_simd_best()->scale(y, x, inverse, 0.0f, c->n);
    }
    return FLEET_OK;
}

static fleet_status l2_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *x = fl_rows_f32(in, 2, r);

    for (int64_t i = lines_of(in, r); i > 0; i--) {
        float sum = dot(x, x, c->n), inverse = inverse_of(c, sum);
        float along =
            sum < c->epsilon ? 0.0f : dot(g, x, c->n) * inverse * inverse;

        for (int64_t j = 0; j < c->n; j++)
            dx[j] = inverse * (g[j] - along * x[j]);
        dx += c->n, g += c->n, x += c->n;
    }
    return FLEET_OK;
}

/* --- layer_norm ----------------------------------------------------------- */

enum { Y, STATS, X, W, B };

static fleet_status layer_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    const fl_simd *simd = fl_simd_best();
    float *y = fl_rows_f32(in, Y, r), *stats = fl_rows_f32(in, STATS, r);
    const float *x = fl_rows_f32(in, X, r);
    const float *w = c->has_w ? fl_ptr(in, W) : NULL;
    const float *b = c->has_b ? fl_ptr(in, B) : NULL;

    for (int64_t i = lines_of(in, r); i > 0; i--, x += c->n, y += c->n) {
        float mean = simd->row_sum(x, c->n) / (float)c->n, inverse;

        simd->scale(y, x, 1.0f, -mean, c->n);
        inverse = 1.0f / sqrtf(dot(y, y, c->n) / (float)c->n + c->epsilon);
        simd->scale(y, y, inverse, 0.0f, c->n);
        if (w)
            simd->mul(y, y, w, c->n);
        if (b)
            simd->add(y, y, b, c->n);
        *stats++ = mean;
        *stats++ = inverse;
    }
    return FLEET_OK;
}

enum { DX, G, OF_X, OF_STATS, OF_W };

static fleet_status layer_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    float *dx = fl_rows_f32(in, DX, r);
    const float *g = fl_rows_f32(in, G, r), *x = fl_rows_f32(in, OF_X, r);
    const float *stats = fl_rows_f32(in, OF_STATS, r);
    const float *w = c->has_w ? fl_ptr(in, OF_W) : NULL;

    for (int64_t i = lines_of(in, r); i > 0; i--, stats += 2) {
        float mean = stats[0], inverse = stats[1], h_mean, along;

        if (w)
            fl_simd_best()->mul(dx, g, w, c->n);
        else
            memcpy(dx, g, (size_t)c->n * sizeof *dx);
        h_mean = fl_simd_best()->row_sum(dx, c->n) / (float)c->n;
        along = dot(dx, x, c->n) / (float)c->n - h_mean * mean;
        along *= inverse * inverse; /* the mean of h z, over the deviation */
        for (int64_t j = 0; j < c->n; j++)
            dx[j] = inverse * (dx[j] - h_mean - (x[j] - mean) * along);
        dx += c->n, g += c->n, x += c->n;
    }
    return FLEET_OK;
}

/* A part has COLUMNS columns, of all lines. */
static fleet_status columns_prepare(fl_instance *in)
{
    const fl_line_norm *c = in->step->config;

    in->n_part = (int)((c->n + COLUMNS - 1) / COLUMNS);
    return FLEET_OK;
}

static int64_t whole_lines(const fl_instance *in, int i, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;

    return r->batch * in->arg[i].factor * in->arg[i].cols / c->n;
}

static int64_t end_of_part(const fl_line_norm *c, const fl_range *r)
{
    int64_t end = (r->begin + 1) * COLUMNS;

    return end < c->n ? end : c->n;
}

static fleet_status dw_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    int64_t first = r->begin * COLUMNS, end = end_of_part(c, r);
    float *dw = fl_ptr(in, 0);
    const float *g = fl_ptr(in, 1), *x = fl_ptr(in, 2), *stats = fl_ptr(in, 3);

    for (int64_t j = first; j < end; j++)
        dw[j] = 0.0f;
    for (int64_t i = whole_lines(in, 1, r); i > 0; i--, stats += 2) {
        for (int64_t j = first; j < end; j++)
            dw[j] += g[j] * ((x[j] - stats[0]) * stats[1]);
        g += c->n, x += c->n;
    }
    return FLEET_OK;
}

static fleet_status db_run(const fl_instance *in, const fl_range *r)
{
    const fl_line_norm *c = in->step->config;
    int64_t first = r->begin * COLUMNS;

    fl_simd_best()->col_sum((float *)fl_ptr(in, 0) + first,
                            (const float *)fl_ptr(in, 1) + first, c->n,
                            whole_lines(in, 1, r), end_of_part(c, r) - first);
    return FLEET_OK;
}

#define ROWS(id, title)                                                        \
    static const fl_kernel id = {                                              \
        .name = title, .split = FL_SPLIT_ROWS, .run = id##_run};
#define COLUMN_PARTS(id, title)                                                \
    static const fl_kernel id = {.name = title,                                \
                                 .split = FL_SPLIT_PARTS,                      \
                                 .prepare = columns_prepare,                   \
                                 .run = id##_run};

ROWS(l2, "l2_normalize")
ROWS(l2_grad, "l2_normalize.grad")
ROWS(layer, "layer_norm")
ROWS(layer_grad, "layer_norm.grad")
COLUMN_PARTS(dw, "layer_norm.dw")
COLUMN_PARTS(db, "layer_norm.db")

/* --- shapes, lowering ----------------------------------------------------- */

static fleet_status check_x(const fl_node *n)
{
    double epsilon = fl_node_float(n, "epsilon");

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(&n->in[0]->shape) || n->in[0]->shape.n_dim < 2)
        return fl_want_shape(n, 0, "[-1,N]");
    if (!(epsilon > 0) || !isfinite((float)epsilon))
        return fl_fail(FLEET_EINVAL,
                       "%s: epsilon %g is not a finite number above 0",
                       n->op->name, epsilon);
    return FLEET_OK;
}

/* Numbers of the dimensions from `axis` on. */
static int64_t numbers_from(const fl_shape *x, int64_t axis)
{
    int64_t n = 1;

    for (int64_t i = axis; i < x->n_dim; i++)
        n *= x->dim[i];
    return n;
}

static const void *config_of(fl_lowering *l, const fl_node *n, int64_t axis)
{
    fl_line_norm c = {.n = numbers_from(&n->in[0]->shape, axis),
                      .epsilon = (float)fl_node_float(n, "epsilon"),
                      .has_w = fl_input_of(n, 1) != NULL,
                      .has_b = fl_input_of(n, 2) != NULL};

    return fl_config(l, &c, sizeof c);
}

static fleet_status l2_infer(fl_node *n)
{
    FL_TRY(check_x(n));
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static fleet_status l2_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &l2, n, config_of(l, n, n->in[0]->shape.n_dim - 1),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status l2_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, &l2_grad, n, config_of(l, n, n->in[0]->shape.n_dim - 1),
                FL_W(to), FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status layer_infer(fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis");
    const fl_shape *x = &n->in[0]->shape;

    FL_TRY(check_x(n));
    FL_TRY(fl_want_axis(n, 1));
    for (int i = 1; i < n->n_in; i++)
        if (fl_input_of(n, i)) {
            FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
            if (fl_shape_batched(&n->in[i]->shape) ||
                n->in[i]->shape.n_dim != 1 ||
                n->in[i]->shape.dim[0] != numbers_from(x, axis))
                return fl_want_shape(n, i, "one number for each of a line");
        }
    fl_set_out(n, 0, x);
    return FLEET_OK;
}

static fleet_status layer_forward(fl_lowering *l, const fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;
    int64_t axis = fl_node_int(n, "axis");
    fl_shape s =
        fl_shape_2(x->dim[0], 2 * (fl_shape_cols(x) / numbers_from(x, axis)));
    int stats = fl_temp(l, "stats", FLEET_FLOAT32, &s);

    l->node[n->id].saved = stats;
    FL_EMIT(l, &layer, n, config_of(l, n, axis),
            FL_W(fl_value_of(l, n->out[0])), FL_W(stats),
            FL_R(fl_value_of(l, n->in[0])),
            FL_R(fl_value_of(l, fl_input_of(n, 1))),
            FL_R(fl_value_of(l, fl_input_of(n, 2))));
    return FLEET_OK;
}

static fleet_status layer_gradient(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n, fl_node_int(n, "axis"));
    int g = fl_gradient_of(l, n->out[0]), stats = l->node[n->id].saved;
    int x = fl_value_of(l, n->in[0]), to;

    if ((to = fl_gradient_to(l, n->in[0])) >= 0)
        FL_EMIT(l, &layer_grad, n, c, FL_W(to), FL_R(g), FL_R(x), FL_R(stats),
                FL_R(fl_value_of(l, fl_input_of(n, 1))));
    if ((to = fl_gradient_to(l, fl_input_of(n, 1))) >= 0)
        FL_EMIT(l, &dw, n, c, FL_W(to), FL_R(g), FL_R(x), FL_R(stats));
    if ((to = fl_gradient_to(l, fl_input_of(n, 2))) >= 0)
        FL_EMIT(l, &db, n, c, FL_W(to), FL_R(g));
    return FLEET_OK;
}

const fl_op fl_op_l2_normalize = {
    .name = "l2_normalize",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "epsilon:f",
    .infer = l2_infer,
    .forward = l2_forward,
    .gradient = l2_gradient,
};

const fl_op fl_op_layer_norm = {
    .name = "layer_norm",
    .n_out = 1,
    .least_in = 1,
    .most_in = 3,
    .attrs = "axis:i epsilon:f",
    .infer = layer_infer,
    .forward = layer_forward,
    .gradient = layer_gradient,
};

/* --- builders ------------------------------------------------------------- */

fleet_var *fleet_l2_normalize(fleet_program *p, fleet_var *x, float epsilon)
{
    fl_attr attr = FL_ATTR_FLOAT("epsilon", epsilon != 0 ? epsilon : 1e-12f);

    return fl_build_of_one(p, &fl_op_l2_normalize, x, &attr, 1);
}

fleet_var *fleet_cos_sim(fleet_program *p, fleet_var *x, fleet_var *y)
{
    fleet_var *both;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, y))
        return NULL;
    if (!fl_shape_equal(&x->shape, &y->shape))
        return fl_program_failed(
            p,
            fl_fail(FLEET_ESHAPE, "cos_sim: \"%s\" %s and \"%s\" %s do not fit",
                    x->name, fl_shape_print(&x->shape).chars, y->name,
                    fl_shape_print(&y->shape).chars));
    x = fleet_l2_normalize(p, x, 0);
    y = x ? fleet_l2_normalize(p, y, 0) : NULL;
    both = y ? fleet_mul(p, x, y) : NULL;
    return both ? fleet_reduce_sum(p, both, both->shape.n_dim - 1, 1) : NULL;
}

fleet_var *fleet_layer_norm(fleet_program *p, fleet_var *x,
                            const fleet_layer_norm_options *options)
{
    static const fleet_layer_norm_options defaults;
    const fleet_layer_norm_options *o = options ? options : &defaults;
    const fleet_initializer one = {FLEET_INIT_CONSTANT, 1, 0};
    const fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    int axis = o->begin_norm_axis ? o->begin_norm_axis : 1;
    fl_attr attr[] = {
        FL_ATTR_INT("axis", axis),
        FL_ATTR_FLOAT("epsilon", o->epsilon != 0 ? o->epsilon : 1e-5f)};
    fleet_var *in[3] = {x};
    const char *name;
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    name = o->name ? o->name : fl_program_name(p, "layer_norm");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    s = fl_shape_1(axis > 0 ? numbers_from(&x->shape, axis) : 1);
    if (!o->no_scale)
        in[1] = fl_program_param(p, name, "w", &s, &o->scale, one);
    if (!o->no_shift)
        in[2] = fl_program_param(p, name, "b", &s, &o->shift, zero);
    return fl_program_ok(p)
               ? fl_program_add(p, &fl_op_layer_norm, in, 3, attr, 2)
               : NULL;
}
