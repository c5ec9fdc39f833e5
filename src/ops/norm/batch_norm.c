/* batch_norm.c - each column less its mean over the batch, over its deviation
 * (Ioffe, Szegedy 2015):
 *
 *   z = (x - mean) / sqrt(variance + epsilon), y = z w + b
 *   dx = (g - sum g / N - z sum (g z) / N) w / deviation, of N lines
 *   dw = sum g z, db = sum g
 *
 * Where nothing is trained mean and variance are moving averages, two
 * parameters. What they get as a gradient is the batch's mean and variance, and
 * an update moves them towards it (fleet_param_attr.average): so workers,
 * merged batches, servers and saves know nothing of them.
 */
#include "ops/norm/column_norm.h"
#include "ops/norm/sync_batch_norm.h"

#include <math.h>
#include <string.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"
#include "runtime/plan/gradients.h"
#include "runtime/reduce/sync_sums.h"
#include "runtime/simd/simd.h"

/* --- batch_norm.stats, batch_norm.fixed ----------------------------------- */

enum { STATS, X, OF_W, MEAN = X, VARIANCE, FIXED_W };

static fleet_status stats_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    const int64_t lines = fl_batch_lines(in, X, r);
    const float *x = (const float *)fl_ptr(in, X) + k.first;
    float *stats = fl_ptr(in, STATS);
    float *mean = stats + FL_NORM_MEAN * c->n + k.first;
    double sum[FL_COLUMN_PART] = {0}, square[FL_COLUMN_PART] = {0};

    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < k.n; j++)
            sum[j] += (double)x[i * c->n + j];
    for (int64_t j = 0; j < k.n; j++)
        mean[j] = (float)(sum[j] / (double)lines);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < k.n; j++) {
            double d = (double)(x[i * c->n + j] - mean[j]);

            square[j] += d * d;
        }
    for (int64_t j = 0; j < k.n; j++)
        stats[FL_NORM_VARIANCE * c->n + k.first + j] =
            (float)(square[j] / (double)lines);
    fl_finish_stats(c, stats, fl_optional_ptr(in, OF_W), k);
    return FLEET_OK;
}

static fleet_status fixed_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    float *stats = fl_ptr(in, STATS);
    size_t size = (size_t)k.n * sizeof *stats;

    memcpy(stats + FL_NORM_MEAN * c->n + k.first,
           (const float *)fl_ptr(in, MEAN) + k.first, size);
    memcpy(stats + FL_NORM_VARIANCE * c->n + k.first,
           (const float *)fl_ptr(in, VARIANCE) + k.first, size);
    fl_finish_stats(c, stats, fl_optional_ptr(in, FIXED_W), k);
    return FLEET_OK;
}

/* --- batch_norm.sums, batch_norm.grad ------------------------------------- */

enum { SUMS, DW, DB, SUMS_G, SUMS_X, SUMS_STATS };

static fleet_status sums_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    const int64_t lines = fl_batch_lines(in, SUMS_G, r);
    const float *g = (const float *)fl_ptr(in, SUMS_G) + k.first;
    const float *x = (const float *)fl_ptr(in, SUMS_X) + k.first;
    const float *stats = (const float *)fl_ptr(in, SUMS_STATS) + k.first;
    float *sums = (float *)fl_ptr(in, SUMS) + k.first;
    float *dw = fl_optional_ptr(in, DW), *db = fl_optional_ptr(in, DB);
    double of_g[FL_COLUMN_PART] = {0}, of_gx[FL_COLUMN_PART] = {0};

    for (int64_t i = 0; i < lines; i++, g += c->n, x += c->n)
        for (int64_t j = 0; j < k.n; j++) {
            of_g[j] += (double)g[j];
            of_gx[j] +=
                (double)g[j] * (double)(x[j] - stats[FL_NORM_MEAN * c->n + j]);
        }
    for (int64_t j = 0; j < k.n; j++) {
        double inverse = (double)stats[FL_NORM_INVERSE * c->n + j];

        sums[FL_NORM_G * c->n + j] = (float)of_g[j];
        sums[FL_NORM_GZ * c->n + j] = (float)(of_gx[j] * inverse);
    }
    if (dw)
        memcpy(dw + k.first, sums + FL_NORM_GZ * c->n,
               (size_t)k.n * sizeof *dw);
    if (db)
        memcpy(db + k.first, sums + FL_NORM_G * c->n, (size_t)k.n * sizeof *db);
    return FLEET_OK;
}

/* --- batch_norm.moving ---------------------------------------------------- */

enum { DMEAN, DVARIANCE, MOVING_STATS, SCALING };

/* An update divides gradients by the loss's scale: these are none. */
static fleet_status moving_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const float *stats = fl_ptr(in, MOVING_STATS);
    const fl_scaling *scaling = fl_optional_ptr(in, SCALING);
    float scale = scaling ? scaling->scale : 1.0f;

    (void)r;
    fl_simd_best()->scale(fl_ptr(in, DMEAN), stats + FL_NORM_MEAN * c->n, scale,
                          0.0f, c->n);
    fl_simd_best()->scale(fl_ptr(in, DVARIANCE),
                          stats + FL_NORM_VARIANCE * c->n, scale, 0.0f, c->n);
    return FLEET_OK;
}

#define COLUMN_PARTS(id, title)                                                \
    static const fl_kernel id = {.name = title,                                \
                                 .split = FL_SPLIT_PARTS,                      \
                                 .prepare = fl_split_columns,                  \
                                 .run = id##_run};

COLUMN_PARTS(stats, "batch_norm.stats")
COLUMN_PARTS(fixed, "batch_norm.fixed")
COLUMN_PARTS(sums, "batch_norm.sums")
static const fl_kernel moving = {.name = "batch_norm.moving",
                                 .split = FL_SPLIT_PARTS,
                                 .n_part = 1,
                                 .run = moving_run};

/* --- shapes, lowering ----------------------------------------------------- */

enum { IN_X, IN_MEAN, IN_VARIANCE, IN_W, IN_B, N_IN };

static fleet_status infer(fl_node *n)
{
    double epsilon = fl_node_float(n, "epsilon");

    FL_TRY(fl_want_columns(n));
    if (!(epsilon > 0) || !isfinite((float)epsilon))
        return fl_fail(FLEET_EINVAL,
                       "batch_norm: epsilon %g is not a finite number above 0",
                       epsilon);
    for (int i = IN_MEAN; i < n->n_in; i++)
        if (i <= IN_VARIANCE || fl_input_of(n, i))
            FL_TRY(fl_want_one_each(n, i));
    fl_set_out(n, 0, &n->in[IN_X]->shape);
    return FLEET_OK;
}

/* Are the moving averages used, and not the batch's? */
static bool is_fixed(const fl_lowering *l, const fl_node *n)
{
    return !l->plan->training || fl_node_int(n, "use_global_stats") != 0;
}

static const void *config_of(fl_lowering *l, const fl_node *n)
{
    fl_batch_norm c = {.n = fl_columns_of(n->in[IN_X]),
                       .epsilon = (float)fl_node_float(n, "epsilon")};

    return fl_config(l, &c, sizeof c);
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n);
    fl_shape shape = fl_shape_2(FL_NORM_STATS, fl_columns_of(n->in[IN_X]));
    int x = fl_value_of(l, n->in[IN_X]);
    int w = fl_value_of(l, fl_input_of(n, IN_W));
    int of = fl_temp(l, "stats", FLEET_FLOAT32, &shape);

    l->node[n->id].saved = of;
    if (is_fixed(l, n))
        FL_EMIT(l, &fixed, n, c, FL_W(of), FL_R(fl_value_of(l, n->in[IN_MEAN])),
                FL_R(fl_value_of(l, n->in[IN_VARIANCE])), FL_R(w));
    else if (fl_is_sync_norm(l, n))
        fl_emit_sync_stats(l, n, c, (fl_sync_norm){of, x, w});
    else
        FL_EMIT(l, &stats, n, c, FL_W(of), FL_R(x), FL_R(w));
    FL_EMIT(l, &fl_kernel_column_norm, n, c, FL_W(fl_value_of(l, n->out[0])),
            FL_R(x), FL_R(of), FL_R(fl_value_of(l, fl_input_of(n, IN_B))));
    return FLEET_OK;
}

static void emit_moving(fl_lowering *l, const fl_node *n, const void *c)
{
    int mean = fl_gradient_to(l, fl_input_of(n, IN_MEAN));
    int variance = fl_gradient_to(l, fl_input_of(n, IN_VARIANCE));

    if (mean >= 0 && variance >= 0)
        FL_EMIT(l, &moving, n, c, FL_W(mean), FL_W(variance),
                FL_R(l->node[n->id].saved),
                FL_R(fl_is_scaled(l) ? fl_scaling_value(l) : -1));
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n);
    const fl_shape shape = fl_shape_2(FL_NORM_SUMS, fl_columns_of(n->in[IN_X]));
    int g = fl_gradient_of(l, n->out[0]), x = fl_value_of(l, n->in[IN_X]);
    int of = l->node[n->id].saved, dw, db, to, all = -1, moments = -1;

    if (!is_fixed(l, n))
        emit_moving(l, n, c);
    to = fl_gradient_to(l, n->in[IN_X]);
    dw = fl_gradient_to(l, fl_input_of(n, IN_W));
    db = fl_gradient_to(l, fl_input_of(n, IN_B));
    if (dw >= 0 || db >= 0 || (to >= 0 && !is_fixed(l, n))) {
        all = fl_temp(l, "sums", FLEET_FLOAT32, &shape);
        FL_EMIT(l, &sums, n, c, FL_W(all), FL_W(dw), FL_W(db), FL_R(g), FL_R(x),
                FL_R(of));
    }
    if (to >= 0 && !is_fixed(l, n) && fl_is_sync_norm(l, n)) {
        fl_emit_sync_sum(l, all, FL_WIRE_F32); /* dw and db are this rank's */
        moments = fl_sync_moments(of);
    }
    if (to >= 0)
        FL_EMIT(l, &fl_kernel_column_norm_grad, n, c, FL_W(to), FL_R(g),
                FL_R(x), FL_R(of), FL_R(is_fixed(l, n) ? -1 : all),
                FL_R(moments));
    return FLEET_OK;
}

const fl_op fl_op_batch_norm = {
    .name = "batch_norm",
    .n_out = 1,
    .least_in = 3,
    .most_in = N_IN,
    .attrs = "epsilon:f use_global_stats:i",
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

/* --- builders ------------------------------------------------------------- */

static fleet_var *average_of(fleet_program *p, const char *name,
                             const char *what, const fl_shape *s,
                             const fleet_batch_norm_options *o, float first)
{
    const fleet_initializer init = {FLEET_INIT_CONSTANT, first, 0};
    fleet_param_attr attr = {.average = o->momentum != 0 ? o->momentum : 0.9f,
                             .ps = o->ps};

    return fl_program_param(p, name, what, s, &attr, init);
}

static fleet_status check_momentum(float momentum)
{
    if (momentum >= 0 && momentum < 1)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "batch_norm: momentum %g is not in [0, 1)",
                   (double)momentum);
}

fleet_var *fleet_batch_norm(fleet_program *p, fleet_var *x,
                            const fleet_batch_norm_options *options)
{
    static const fleet_batch_norm_options defaults;
    const fleet_batch_norm_options *o = options ? options : &defaults;
    const fleet_initializer one = {FLEET_INIT_CONSTANT, 1, 0};
    const fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fl_attr attr[] = {
        FL_ATTR_FLOAT("epsilon", o->epsilon != 0 ? o->epsilon : 1e-5f),
        FL_ATTR_INT("use_global_stats", o->use_global_stats != 0)};
    fleet_var *in[N_IN] = {x};
    const char *name;
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (check_momentum(o->momentum) != FLEET_OK)
        return fl_program_failed(p, FLEET_EINVAL);
    name = o->name ? o->name : fl_program_name(p, "batch_norm");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    s = fl_shape_1(fl_columns_of(x));
    in[IN_MEAN] = average_of(p, name, "mean", &s, o, 0);
    in[IN_VARIANCE] = average_of(p, name, "variance", &s, o, 1);
    if (!o->no_scale)
        in[IN_W] = fl_program_param(p, name, "w", &s, &o->scale, one);
    if (!o->no_shift)
        in[IN_B] = fl_program_param(p, name, "b", &s, &o->shift, zero);
    return fl_program_ok(p)
               ? fl_program_add(p, &fl_op_batch_norm, in, N_IN, attr, 2)
               : NULL;
}

/* alpha x + p (x - alpha x) */
fleet_var *fleet_dice(fleet_program *p, fleet_var *x,
                      const fleet_dice_options *options)
{
    static const fleet_dice_options defaults;
    const fleet_dice_options *o = options ? options : &defaults;
    const fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_batch_norm_options inner = {.name = o->name,
                                      .momentum = o->momentum,
                                      .epsilon =
                                          o->epsilon != 0 ? o->epsilon : 1e-8f,
                                      .no_scale = 1,
                                      .no_shift = 1,
                                      .ps = o->ps};
    fleet_var *share, *alpha, *least;
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!inner.name)
        inner.name = fl_program_name(p, "dice");
    if (!inner.name)
        return fl_program_failed(p, FLEET_ENOMEM);
    share = fleet_sigmoid(p, fleet_batch_norm(p, x, &inner));
    s = fl_shape_1(fl_columns_of(x));
    alpha = share
                ? fl_program_param(p, inner.name, "alpha", &s, &o->alpha, zero)
                : NULL;
    if (!alpha)
        return NULL;
    least = fleet_mul(p, x, alpha);
    return fleet_add(p, least, fleet_mul(p, share, fleet_sub(p, x, least)));
}
