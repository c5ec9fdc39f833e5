/* metrics.c - accuracy and AUC: no gradient passes. */
#include <inttypes.h>
#include <math.h>

#include <fleet/metrics.h>
#include <fleet/nn.h>

#include "ops/metrics.h"
#include "ops/ops.h"

/* The label of a row, whatever its dtype. */
static double label_of(const fl_instance *in, int i, int64_t row)
{
    return fl_number_at(fl_ptr(in, i), in->arg[i].dtype == FLEET_FLOAT32, row);
}

static fleet_status metric_infer(fl_node *n, int64_t most_cols,
                                 const char *what)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_shape one = fl_shape_1(1);

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(fl_want_label(n, 1, fl_shape_cols(x) <= 2));
    if (!fl_shape_batched(x) || x->n_dim != 2 || x->dim[1] > most_cols)
        return fl_want_shape(n, 0, what);
    FL_TRY(fl_want_rows(n, 1));
    fl_set_out(n, 0, &one);
    return FLEET_OK;
}

/* --- accuracy: out <- x, label ------------------------------------------- */

static fleet_status accuracy_infer(fl_node *n)
{
    return metric_infer(n, INT32_MAX, "[-1,C]");
}

static fleet_status accuracy_run(const fl_instance *in, const fl_range *r)
{
    const float *x = fl_ptr(in, 1);
    int64_t c = in->arg[1].cols, n = r->batch * in->arg[1].factor, right = 0;

    for (int64_t i = 0; i < n; i++)
        right += (double)fl_best_class(x + i * c, c) == label_of(in, 2, i);
    *(float *)fl_ptr(in, 0) = (float)right / (float)n;
    return FLEET_OK;
}

static const fl_kernel accuracy = {
    .name = "accuracy", .split = FL_SPLIT_PARTS, .run = accuracy_run};

static fleet_status accuracy_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &accuracy, n, NULL, FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])), FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

const fl_op fl_op_accuracy = {
    .name = "accuracy",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .infer = accuracy_infer,
    .forward = accuracy_forward,
};

fleet_var *fleet_accuracy(fleet_program *p, fleet_var *x, fleet_var *label)
{
    return fl_build_of_two(p, &fl_op_accuracy, x, label, NULL, 0);
}

/* --- auc.count: pos, neg <- p, label; auc: out <- pos, neg ---------------- */

enum { IN_P, IN_LABEL, IN_POS, IN_NEG };

static fleet_status auc_infer(fl_node *n)
{
    for (int i = IN_POS; i <= IN_NEG; i++)
        if (n->in[i]->kind != FL_VAR_STATE || n->in[i]->dtype != FLEET_INT64 ||
            n->in[i]->shape.n_dim != 1 ||
            !fl_shape_equal(&n->in[i]->shape, &n->in[IN_POS]->shape))
            return fl_want_shape(n, i, "a histogram");
    return metric_infer(n, 2, "[-1,1] or [-1,2]");
}

static fleet_status bad_row(const char *what, double got, int64_t row)
{
    return fl_fail(isnan(got) ? FLEET_ENUMERIC : FLEET_EINVAL,
                   "auc: %s %g in row %" PRId64 " of the batch; expected %s",
                   what, got, row,
                   *what == 'l' ? "0 or 1" : "a number from 0 to 1");
}

static fleet_status count_run(const fl_instance *in, const fl_range *r)
{
    int64_t *pos = fl_ptr(in, 0), *neg = fl_ptr(in, 1);
    int64_t buckets = in->arg[0].rows, c = in->arg[2].cols;
    int64_t n = r->batch * in->arg[2].factor;
    const float *p = fl_ptr(in, 2);

    for (int64_t i = 0; i < n; i++) { /* all of the batch is counted, or none */
        double x = (double)p[i * c + c - 1], label = label_of(in, 3, i);

        if (!fl_is_probability(x))
            return bad_row("probability", x, i);
        if (!fl_is_0_or_1(label))
            return bad_row("label", label, i);
    }
    for (int64_t i = 0; i < n; i++) {
        double x = (double)p[i * c + c - 1], label = label_of(in, 3, i);
        int64_t at = (int64_t)(x * (double)buckets);

        if (at >= buckets)
            at = buckets - 1;
        (label == 1.0 ? pos : neg)[at]++;
    }
    return FLEET_OK;
}

double fleet_metrics_auc_of(const int64_t *pos, const int64_t *neg, int64_t n)
{
    double area = 0, above_pos = 0, above_neg = 0;

    for (int64_t i = pos && neg ? n : 0; i-- > 0;) {
        double p = (double)pos[i], q = (double)neg[i];

        area += q * (above_pos + p / 2);
        above_pos += p;
        above_neg += q;
    }
    return above_pos > 0 && above_neg > 0 ? area / (above_pos * above_neg)
                                          : 0.5;
}

static fleet_status auc_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    *(float *)fl_ptr(in, 0) = (float)fleet_metrics_auc_of(
        fl_ptr(in, 1), fl_ptr(in, 2), in->arg[1].rows);
    return FLEET_OK;
}

static const fl_kernel auc_count = {
    .name = "auc.count", .split = FL_SPLIT_PARTS, .run = count_run};
static const fl_kernel auc = {
    .name = "auc", .split = FL_SPLIT_PARTS, .run = auc_run};

static fleet_status auc_forward(fl_lowering *l, const fl_node *n)
{
    int pos = fl_value_of(l, n->in[IN_POS]),
        neg = fl_value_of(l, n->in[IN_NEG]);

    FL_EMIT(l, &auc_count, n, NULL, FL_RW(pos), FL_RW(neg),
            FL_R(fl_value_of(l, n->in[IN_P])),
            FL_R(fl_value_of(l, n->in[IN_LABEL])));
    FL_EMIT(l, &auc, n, NULL, FL_W(fl_value_of(l, n->out[0])), FL_R(pos),
            FL_R(neg));
    return FLEET_OK;
}

const fl_op fl_op_auc = {
    .name = "auc",
    .n_out = 1,
    .least_in = 4,
    .most_in = 4,
    .infer = auc_infer,
    .forward = auc_forward,
};

fleet_var *fleet_auc(fleet_program *p, fleet_var *x, fleet_var *label,
                     int64_t buckets)
{
    fl_shape shape = fl_shape_1(buckets ? buckets : 4096);
    fleet_var *in[4] = {x, label};
    const char *name;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (shape.dim[0] < 2 || shape.dim[0] > (1 << 24)) {
        fl_fail(FLEET_EINVAL, "auc: %" PRId64 " buckets; expected 2 to 2^24",
                buckets);
        return fl_program_failed(p, FLEET_EINVAL);
    }
    name = fl_program_name(p, "auc_state");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    in[IN_POS] = fl_program_state(p, name, "pos", FLEET_INT64, &shape);
    in[IN_NEG] = fl_program_state(p, name, "neg", FLEET_INT64, &shape);
    return fl_program_add(p, &fl_op_auc, in, 4, NULL, 0);
}
