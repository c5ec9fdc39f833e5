/* error_metrics.c - the operator "metric": sums over all samples since
 * fleet_metrics_reset(), and what they say. No gradient passes. */
#include "ops/math/error_metrics.h"

#include <inttypes.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

enum { IN_X, IN_LABEL, IN_SUMS };
enum { SUMS, X, LABEL };

/* --- kernels -------------------------------------------------------------- */

static fleet_status bad_sample(const fl_error_metric *c, double x, double label,
                               int64_t row)
{
    if (isnan(x) || isnan(label))
        return fl_fail(FLEET_ENUMERIC,
                       "metric: %s is nan in row %" PRId64 " of the batch",
                       isnan(x) ? "x" : "label", row);
    return fl_fail(FLEET_EINVAL,
                   "metric: x %g and label %g in row %" PRId64
                   " of the batch; expected %s",
                   x, label, row,
                   fl_metric_is_binary(c->kind)
                       ? "a number from 0 to 1, and 0 or 1"
                       : "a finite difference");
}

/* All of the batch, or nothing. */
static fleet_status add_run(const fl_instance *in, const fl_range *r)
{
    const fl_error_metric *c = in->step->config;
    bool binary = fl_metric_is_binary(c->kind);
    int64_t cols = in->arg[X].cols, rows = r->batch * in->arg[X].factor;
    int64_t step = binary ? cols : 1; /* of two columns the second counts */
    bool is_float = in->arg[LABEL].dtype == FLEET_FLOAT32;
    double *sums = fl_ptr(in, SUMS), add[FL_METRIC_SUMS] = {0};
    const float *x = fl_ptr(in, X);
    const void *label = fl_ptr(in, LABEL);

    for (int64_t i = 0; i < rows * cols / step; i++) {
        double at = (double)x[(i + 1) * step - 1];
        double want = fl_number_at(label, is_float, i);

        if (!fl_metric_takes(c->kind, at, want))
            return bad_sample(c, at, want, i * step / cols);
        if (c->kind >= FLEET_METRIC_PRECISION) {
            add[fl_metric_cell(at, want, c->threshold)]++;
        } else {
            double error = fl_metric_error(c->kind, at, want);

            add[0]++;
            add[1] += c->kind == FLEET_METRIC_LOG_LOSS ? -log(error) : error;
        }
    }
    for (int i = 0; i < FL_METRIC_SUMS; i++)
        sums[i] += add[i];
    return FLEET_OK;
}

static fleet_status metric_run(const fl_instance *in, const fl_range *r)
{
    const fl_error_metric *c = in->step->config;

    (void)r;
    *(float *)fl_ptr(in, 0) = (float)fl_metric_of(c->kind, fl_ptr(in, 1));
    return FLEET_OK;
}

static const fl_kernel add = {
    .name = "metric.add", .split = FL_SPLIT_PARTS, .run = add_run};
static const fl_kernel metric = {
    .name = "metric", .split = FL_SPLIT_PARTS, .run = metric_run};

/* --- shapes, lowering ----------------------------------------------------- */

static fleet_status check_shapes(const fl_node *n, bool binary)
{
    const fl_shape *x = &n->in[IN_X]->shape, *y = &n->in[IN_LABEL]->shape;

    if (binary) {
        if (!fl_shape_batched(x) || x->n_dim != 2 || x->dim[1] > 2)
            return fl_want_shape(n, IN_X, "[-1,1] or [-1,2]");
        FL_TRY(fl_want_label(n, IN_LABEL, true));
        return fl_want_rows(n, IN_LABEL);
    }
    if (!fl_shape_batched(x))
        return fl_want_shape(n, IN_X, "a batch");
    if (n->in[IN_LABEL]->dtype != FLEET_INT64 || n->in[IN_LABEL]->ragged)
        FL_TRY(fl_want_dtype(n, IN_LABEL, FLEET_FLOAT32));
    if (!fl_shape_equal(x, y))
        return fl_want_shape(n, IN_LABEL, "that of x");
    return FLEET_OK;
}

static fleet_status check_kind(int64_t kind)
{
    return kind >= FLEET_METRIC_MAE && kind <= FLEET_METRIC_F1
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "metric: kind %" PRId64 " does not exist", kind);
}

static fleet_status infer(fl_node *n)
{
    int64_t kind = fl_node_int(n, "kind");
    double threshold = fl_node_float(n, "threshold");
    const fleet_var *sums = n->in[IN_SUMS];
    fl_shape one = fl_shape_1(1), four = fl_shape_1(FL_METRIC_SUMS);

    FL_TRY(check_kind(kind));
    if (!(threshold > 0 && threshold < 1))
        return fl_fail(FLEET_EINVAL, "metric: threshold %g is not in (0, 1)",
                       threshold);
    if (sums->kind != FL_VAR_STATE || sums->dtype != FLEET_FLOAT64 ||
        !fl_shape_equal(&sums->shape, &four))
        return fl_want_shape(n, IN_SUMS, "sums of float64, [4]");
    FL_TRY(fl_want_dtype(n, IN_X, FLEET_FLOAT32));
    FL_TRY(check_shapes(n, fl_metric_is_binary((int)kind)));
    fl_set_out(n, 0, &one);
    return FLEET_OK;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    fl_error_metric c = {.kind = (int)fl_node_int(n, "kind"),
                         .threshold = (float)fl_node_float(n, "threshold")};
    int sums = fl_value_of(l, n->in[IN_SUMS]);

    FL_EMIT(l, &add, n, fl_config(l, &c, sizeof c), FL_RW(sums),
            FL_R(fl_value_of(l, n->in[IN_X])),
            FL_R(fl_value_of(l, n->in[IN_LABEL])));
    FL_EMIT(l, &metric, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(sums));
    return FLEET_OK;
}

const fl_op fl_op_metric = {
    .name = "metric",
    .n_out = 1,
    .least_in = 3,
    .most_in = 3,
    .attrs = "kind:i threshold:f",
    .infer = infer,
    .forward = forward,
};

/* By kind: programs of a handle share states by their names. */
static const char *const stems[] = {[FLEET_METRIC_MAE] = "mae_state",
                                    [FLEET_METRIC_RMSE] = "rmse_state",
                                    [FLEET_METRIC_LOG_LOSS] = "log_loss_state",
                                    [FLEET_METRIC_PRECISION] =
                                        "precision_state",
                                    [FLEET_METRIC_RECALL] = "recall_state",
                                    [FLEET_METRIC_F1] = "f1_state"};

fleet_var *fleet_metric(fleet_program *p, fleet_metric_kind kind, fleet_var *x,
                        fleet_var *label, float threshold)
{
    const fl_shape shape = fl_shape_1(FL_METRIC_SUMS);
    fl_attr attr[] = {
        FL_ATTR_INT("kind", (int)kind),
        FL_ATTR_FLOAT("threshold", threshold != 0 ? threshold : 0.5f)};
    fleet_var *in[3] = {x, label};
    const char *name;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (check_kind((int64_t)kind) != FLEET_OK)
        return fl_program_failed(p, FLEET_EINVAL);
    if (threshold != 0 && kind <= FLEET_METRIC_LOG_LOSS)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "metric: threshold %g is for precision, recall and F1",
                       (double)threshold));
    name = fl_program_name(p, stems[kind]);
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    in[IN_SUMS] = fl_program_state(p, name, "sums", FLEET_FLOAT64, &shape);
    return fl_program_add(p, &fl_op_metric, in, 3, attr, 2);
}
