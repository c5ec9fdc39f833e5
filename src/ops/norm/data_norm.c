/* data_norm.c - each column less the mean of all that was trained on, over the
 * root of its mean square, as Fleet's data_norm:
 *
 *   y = (x - sum / size) sqrt(size / squares),   dx = g sqrt(size / squares)
 *
 * size, sum and squares are parameters (fleet_param_attr.average) that follow
 * what a batch has of lines, of x, and of (x - mean)^2 + epsilon. Fleet adds
 * these up and lets them fade; moving averages are the same but for a factor
 * that all three have, and that ratios do without.
 */
#include <math.h>

#include <fleet/nn.h>

#include "ops/norm/column_norm.h"
#include "runtime/graph/program.h"
#include "runtime/plan/gradients.h"

/* --- data_norm.stats ------------------------------------------------------ */

enum { STATS, SIZE, SUM, SQUARES };

static fleet_status stats_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const float *size = fl_ptr(in, SIZE), *sum = fl_ptr(in, SUM);
    const float *squares = fl_ptr(in, SQUARES);
    float *stats = fl_ptr(in, STATS);

    (void)r;
    for (int64_t j = 0; j < c->n; j++) {
        float scale = sqrtf(size[j] / squares[j]);

        stats[FL_NORM_MEAN * c->n + j] = sum[j] / size[j];
        stats[FL_NORM_VARIANCE * c->n + j] = squares[j] / size[j];
        stats[FL_NORM_INVERSE * c->n + j] = scale;
        stats[FL_NORM_SCALE * c->n + j] = scale;
    }
    return FLEET_OK;
}

/* --- data_norm.sums ------------------------------------------------------- */

enum { DSIZE, DSUM, DSQUARES, X, OF_STATS, SCALING };

static fleet_status sums_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    const int64_t lines = fl_batch_lines(in, X, r);
    const float *x = (const float *)fl_ptr(in, X) + k.first;
    const float *mean =
        (const float *)fl_ptr(in, OF_STATS) + FL_NORM_MEAN * c->n + k.first;
    const fl_scaling *scaling = fl_optional_ptr(in, SCALING);
    const double scale = scaling ? (double)scaling->scale : 1.0;
    double sum[FL_COLUMN_PART] = {0}, squares[FL_COLUMN_PART] = {0};

    for (int64_t i = 0; i < lines; i++, x += c->n)
        for (int64_t j = 0; j < k.n; j++) {
            double d = (double)(x[j] - mean[j]);

            sum[j] += (double)x[j];
            squares[j] += d * d;
        }
    for (int64_t j = 0; j < k.n; j++) {
        double more = squares[j] + (double)lines * (double)c->epsilon;

        ((float *)fl_ptr(in, DSIZE))[k.first + j] =
            (float)((double)lines * scale);
        ((float *)fl_ptr(in, DSUM))[k.first + j] = (float)(sum[j] * scale);
        ((float *)fl_ptr(in, DSQUARES))[k.first + j] = (float)(more * scale);
    }
    return FLEET_OK;
}

static const fl_kernel stats = {.name = "data_norm.stats",
                                .split = FL_SPLIT_PARTS,
                                .n_part = 1,
                                .run = stats_run};
static const fl_kernel sums = {.name = "data_norm.sums",
                               .split = FL_SPLIT_PARTS,
                               .prepare = fl_split_columns,
                               .run = sums_run};

/* --- shapes, lowering ----------------------------------------------------- */

enum { IN_X, IN_SIZE, IN_SUM, IN_SQUARES, N_IN };

static fleet_status infer(fl_node *n)
{
    double epsilon = fl_node_float(n, "epsilon");

    FL_TRY(fl_want_columns(n));
    if (!(epsilon >= 0) || !isfinite((float)epsilon))
        return fl_fail(FLEET_EINVAL,
                       "data_norm: epsilon %g is not a finite number from 0 on",
                       epsilon);
    for (int i = IN_SIZE; i < N_IN; i++)
        FL_TRY(fl_want_one_each(n, i));
    fl_set_out(n, 0, &n->in[IN_X]->shape);
    return FLEET_OK;
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
    int of = fl_temp(l, "stats", FLEET_FLOAT32, &shape);

    l->node[n->id].saved = of;
    FL_EMIT(l, &stats, n, c, FL_W(of), FL_R(fl_value_of(l, n->in[IN_SIZE])),
            FL_R(fl_value_of(l, n->in[IN_SUM])),
            FL_R(fl_value_of(l, n->in[IN_SQUARES])));
    FL_EMIT(l, &fl_kernel_column_norm, n, c, FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[IN_X])), FL_R(of), FL_R(-1));
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n);
    int of = l->node[n->id].saved, x = fl_value_of(l, n->in[IN_X]);
    int size = fl_gradient_to(l, n->in[IN_SIZE]);
    int sum = fl_gradient_to(l, n->in[IN_SUM]);
    int squares = fl_gradient_to(l, n->in[IN_SQUARES]);
    int to = fl_gradient_to(l, n->in[IN_X]);

    if (size >= 0 && sum >= 0 && squares >= 0)
        FL_EMIT(l, &sums, n, c, FL_W(size), FL_W(sum), FL_W(squares), FL_R(x),
                FL_R(of), FL_R(fl_is_scaled(l) ? fl_scaling_value(l) : -1));
    if (to >= 0)
        FL_EMIT(l, &fl_kernel_column_norm_grad, n, c, FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])), FL_R(x), FL_R(of), FL_R(-1),
                FL_R(-1));
    return FLEET_OK;
}

const fl_op fl_op_data_norm = {
    .name = "data_norm",
    .n_out = 1,
    .least_in = N_IN,
    .most_in = N_IN,
    .attrs = "epsilon:f",
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

/* --- the builder ---------------------------------------------------------- */

fleet_var *fleet_data_norm(fleet_program *p, fleet_var *x,
                           const fleet_data_norm_options *options)
{
    static const fleet_data_norm_options defaults;
    const fleet_data_norm_options *o = options ? options : &defaults;
    const float fades =
        o->summary_decay_rate != 0 ? o->summary_decay_rate : 0.9999999f;
    const float size = o->batch_size != 0 ? o->batch_size : 1e4f;
    const float squares = o->batch_square_sum != 0 ? o->batch_square_sum : 1e4f;
    const fleet_param_attr attr = {.average = fades, .ps = o->ps};
    const float first[] = {size, o->batch_sum, squares};
    static const char *const what[] = {"size", "sum", "squares"};
    fl_attr epsilon =
        FL_ATTR_FLOAT("epsilon", o->epsilon != 0 ? o->epsilon : 1e-5f);
    fleet_var *in[N_IN] = {x};
    const char *name;
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!(size > 0 && squares > 0 && fades > 0 && fades < 1))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "data_norm: batch_size %g and batch_square_sum %g must "
                       "be above 0, summary_decay_rate %g in (0, 1)",
                       (double)size, (double)squares, (double)fades));
    name = o->name ? o->name : fl_program_name(p, "data_norm");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    s = fl_shape_1(fl_columns_of(x));
    for (int i = 0; i < N_IN - 1; i++)
        in[1 + i] =
            fl_program_param(p, name, what[i], &s, &attr,
                             (fleet_initializer){FLEET_INIT_CONSTANT,
                                                 (1 - fades) * first[i], 0});
    return fl_program_ok(p)
               ? fl_program_add(p, &fl_op_data_norm, in, N_IN, &epsilon, 1)
               : NULL;
}
