/* loss.c - softmax and the losses, one number per sample.
 *
 *   softmax            y_c = e^x_c / sum e^x     dx = y (g - sum g y)
 *   cross_entropy      -log p_label              dp_label = -g / p_label
 *   softmax_with_cross_entropy                   dx = g (y - [c = label])
 *   sigmoid_cross_entropy
 *       max(x, 0) - x t + log(1 + e^-|x|)        dx = g (sigmoid(x) - t)
 *   log_loss  -t log(p + e) - (1 - t) log(1 - p + e)
 *                                      dp = g ((1 - t) / (1 - p + e) - t /
 *                                              (p + e))
 */
#include <inttypes.h>
#include <math.h>

#include <fleet/nn.h>

#include "ops/loss.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

/* --- labels -------------------------------------------------------------- */

static fleet_status per_sample(fl_node *n, int64_t least_cols, const char *what)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_shape out;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(x) || x->n_dim != 2 || x->dim[1] < least_cols ||
        (least_cols == 1 && x->dim[1] != 1))
        return fl_want_shape(n, 0, what);
    FL_TRY(fl_want_rows(n, 1));
    out = fl_shape_2(x->dim[0], 1);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* Data that feed the labels are checked while they are read, too, where their
 * file and line are known. */
static void bound_labels(const fl_node *n, int64_t to)
{
    fleet_var *label = n->in[1];

    if (label->labels_to == 0 || to < label->labels_to)
        label->labels_to = to;
}

/* As many classes as the input has columns. */
static fleet_status infer_classes(fl_node *n)
{
    FL_TRY(fl_want_label(n, 1, false));
    FL_TRY(per_sample(n, 2, "[-1,C] with at least 2 classes"));
    bound_labels(n, n->in[0]->shape.dim[1] - 1);
    return FLEET_OK;
}

static fleet_status class_of(const fl_instance *in, int i, int64_t row,
                             int64_t classes, int64_t *label)
{
    *label = ((const int64_t *)fl_ptr(in, i))[row];
    if (*label >= 0 && *label < classes)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: label \"%s\" is %" PRId64 " in row %" PRId64 " of the "
                   "batch, which is not a class from 0 to %" PRId64,
                   in->step->node->op->name, in->step->node->in[1]->name,
                   *label, row, classes - 1);
}

static float target_of(const fl_instance *in, int i, int64_t row)
{
    if (in->arg[i].dtype == FLEET_INT64)
        return (float)((const int64_t *)fl_ptr(in, i))[row];
    return ((const float *)fl_ptr(in, i))[row];
}

/* The same on the way forward, where it is checked. */
static fleet_status read_target(const fl_instance *in, int i, int64_t row,
                                float *t)
{
    *t = target_of(in, i, row);
    if (*t >= 0.0f && *t <= 1.0f)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: label \"%s\" is %g in row %" PRId64 " of the batch, "
                   "expected 0 to 1",
                   in->step->node->op->name, in->step->node->in[1]->name,
                   (double)*t, row);
}

/* --- softmax ------------------------------------------------------------- */

static fleet_status softmax_infer(fl_node *n)
{
    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(&n->in[0]->shape) || n->in[0]->shape.n_dim < 2)
        return fl_want_shape(n, 0, "[-1,C]");
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static int64_t classes_of(const fl_instance *in)
{
    return ((const fl_softmax_config *)in->step->config)->classes;
}

static fleet_status softmax_run(const fl_instance *in, const fl_range *r)
{
    const fl_simd *simd = fl_simd_best();
    int64_t c = classes_of(in), n = fl_count(in, 0, r) / c;
    float *y = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < n; i++)
        simd->softmax(y + i * c, x + i * c, c);
    return FLEET_OK;
}

static fleet_status softmax_grad_run(const fl_instance *in, const fl_range *r)
{
    int64_t c = classes_of(in), n = fl_count(in, 0, r) / c;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *y = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++, dx += c, g += c, y += c) {
        float dot = 0.0f;

        for (int64_t j = 0; j < c; j++)
            dot += g[j] * y[j];
        for (int64_t j = 0; j < c; j++)
            dx[j] = y[j] * (g[j] - dot);
    }
    return FLEET_OK;
}

/* --- cross_entropy: loss <- p, label; dp <- g, p, label ------------------- */

static fleet_status ce_run(const fl_instance *in, const fl_range *r)
{
    int64_t c = in->arg[1].cols, n = fl_range_rows(in, 0, r), label;
    int64_t first = r->begin * in->arg[0].factor;
    float *loss = fl_rows_f32(in, 0, r);
    const float *p = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < n; i++) {
        FL_TRY(class_of(in, 2, first + i, c, &label));
        loss[i] = -logf(p[i * c + label]);
    }
    return FLEET_OK;
}

static fleet_status ce_grad_run(const fl_instance *in, const fl_range *r)
{
    int64_t c = in->arg[0].cols, n = fl_range_rows(in, 0, r), label;
    int64_t first = r->begin * in->arg[0].factor;
    float *dp = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *p = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++) {
        FL_TRY(class_of(in, 3, first + i, c, &label));
        for (int64_t j = 0; j < c; j++)
            dp[i * c + j] = 0.0f;
        dp[i * c + label] = -g[i] / p[i * c + label];
    }
    return FLEET_OK;
}

/* --- softmax_with_cross_entropy: loss, y <- x, label; dx <- g, y, label --- */

static fleet_status sce_infer(fl_node *n)
{
    FL_TRY(infer_classes(n));
    fl_set_out(n, 1, &n->in[0]->shape);
    return FLEET_OK;
}

/* log(sum e^x) - x_label = log(1 / y_label), kept from cancelling by taking it
 * from the logits and not from the rounded probability. */
static float loss_of(const float *x, int64_t c, int64_t label)
{
    float most = x[0], sum = 0.0f;

    for (int64_t j = 1; j < c; j++)
        most = x[j] > most ? x[j] : most;
    for (int64_t j = 0; j < c; j++)
        sum += expf(x[j] - most);
    return logf(sum) - (x[label] - most);
}

static fleet_status sce_run(const fl_instance *in, const fl_range *r)
{
    const fl_simd *simd = fl_simd_best();
    int64_t c = in->arg[2].cols, n = fl_range_rows(in, 0, r), label;
    int64_t first = r->begin * in->arg[0].factor;
    float *loss = fl_rows_f32(in, 0, r), *y = fl_rows_f32(in, 1, r);
    const float *x = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++) {
        FL_TRY(class_of(in, 3, first + i, c, &label));
        simd->softmax(y + i * c, x + i * c, c);
        loss[i] = loss_of(x + i * c, c, label);
    }
    return FLEET_OK;
}

static fleet_status sce_grad_run(const fl_instance *in, const fl_range *r)
{
    int64_t c = in->arg[0].cols, n = fl_range_rows(in, 0, r), label;
    int64_t first = r->begin * in->arg[0].factor;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *y = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++) {
        FL_TRY(class_of(in, 3, first + i, c, &label));
        for (int64_t j = 0; j < c; j++)
            dx[i * c + j] = g[i] * y[i * c + j];
        dx[i * c + label] = g[i] * (y[i * c + label] - 1.0f);
    }
    return FLEET_OK;
}

/* --- binary losses: loss <- x, t; dx <- g, x, t --------------------------- */

static fleet_status binary_infer(fl_node *n)
{
    FL_TRY(fl_want_label(n, 1, true));
    FL_TRY(per_sample(n, 1, "[-1,1]"));
    bound_labels(n, 1);
    return FLEET_OK;
}

static fleet_status sigmoid_ce_run(const fl_instance *in, const fl_range *r)
{
    int64_t n = fl_range_rows(in, 0, r), first = r->begin * in->arg[0].factor;
    float *loss = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < n; i++) {
        float t;

        FL_TRY(read_target(in, 2, first + i, &t));
        loss[i] = fmaxf(x[i], 0.0f) - x[i] * t + log1pf(expf(-fabsf(x[i])));
    }
    return FLEET_OK;
}

static fleet_status sigmoid_ce_grad_run(const fl_instance *in,
                                        const fl_range *r)
{
    int64_t n = fl_range_rows(in, 0, r), first = r->begin * in->arg[0].factor;
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *x = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++)
        dx[i] =
            g[i] * (1.0f / (1.0f + expf(-x[i])) - target_of(in, 3, first + i));
    return FLEET_OK;
}

static float epsilon_of(const fl_instance *in)
{
    return ((const fl_log_loss_config *)in->step->config)->epsilon;
}

static fleet_status log_loss_run(const fl_instance *in, const fl_range *r)
{
    int64_t n = fl_range_rows(in, 0, r), first = r->begin * in->arg[0].factor;
    float e = epsilon_of(in), *loss = fl_rows_f32(in, 0, r);
    const float *p = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < n; i++) {
        float t;

        FL_TRY(read_target(in, 2, first + i, &t));
        loss[i] = -t * logf(p[i] + e) - (1.0f - t) * logf(1.0f - p[i] + e);
    }
    return FLEET_OK;
}

static fleet_status log_loss_grad_run(const fl_instance *in, const fl_range *r)
{
    int64_t n = fl_range_rows(in, 0, r), first = r->begin * in->arg[0].factor;
    float e = epsilon_of(in), *dp = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r), *p = fl_rows_f32(in, 2, r);

    for (int64_t i = 0; i < n; i++) {
        float t = target_of(in, 3, first + i);

        dp[i] = g[i] * ((1.0f - t) / (1.0f - p[i] + e) - t / (p[i] + e));
    }
    return FLEET_OK;
}

#define KERNEL(id, title)                                                      \
    static const fl_kernel id = {                                              \
        .name = title, .split = FL_SPLIT_ROWS, .run = id##_run};

KERNEL(softmax, "softmax")
KERNEL(ce, "cross_entropy")
KERNEL(ce_grad, "cross_entropy.grad")
KERNEL(sce, "softmax_ce")
KERNEL(sce_grad, "softmax_ce.grad")
KERNEL(sigmoid_ce, "sigmoid_ce")
KERNEL(sigmoid_ce_grad, "sigmoid_ce.grad")
KERNEL(log_loss, "log_loss")
KERNEL(log_loss_grad, "log_loss.grad")

const fl_kernel fl_kernel_softmax_grad = {
    .name = "softmax.grad", .split = FL_SPLIT_ROWS, .run = softmax_grad_run};

/* --- lowering ------------------------------------------------------------ */

static const void *softmax_config(fl_lowering *l, const fl_node *n)
{
    const fl_shape *s = &n->in[0]->shape;
    fl_softmax_config c = {s->dim[s->n_dim - 1]};

    return fl_config(l, &c, sizeof c);
}

static fleet_status softmax_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &softmax, n, softmax_config(l, n),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status softmax_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, &fl_kernel_softmax_grad, n, softmax_config(l, n), FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, n->out[0])));
    return FLEET_OK;
}

/* Of the losses only log_loss has a configuration. */
static const void *loss_config(fl_lowering *l, const fl_node *n)
{
    fl_log_loss_config c;

    if (!fl_node_attr(n, "epsilon"))
        return NULL;
    c.epsilon = (float)fl_node_float(n, "epsilon");
    return fl_config(l, &c, sizeof c);
}

/* The losses differ in their kernels alone. */
static fleet_status loss_forward(fl_lowering *l, const fl_node *n,
                                 const fl_kernel *k)
{
    FL_EMIT(l, k, n, loss_config(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])), FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

static fleet_status loss_gradient(fl_lowering *l, const fl_node *n,
                                  const fl_kernel *k, const fleet_var *from)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, k, n, loss_config(l, n), FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])), FL_R(fl_value_of(l, from)),
                FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

static fleet_status sce_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &sce, n, NULL, FL_W(fl_value_of(l, n->out[0])),
            FL_W(fl_value_of(l, n->out[1])), FL_R(fl_value_of(l, n->in[0])),
            FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

static fleet_status sce_gradient(fl_lowering *l, const fl_node *n)
{
    if (fl_gradient_of(l, n->out[1]) >= 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "softmax_with_cross_entropy: the loss cannot depend on "
                       "its softmax (\"%s\"): use fleet_softmax()",
                       n->out[1]->name);
    return loss_gradient(l, n, &sce_grad, n->out[1]);
}

#define LOSS_OP(op, kernel)                                                    \
    static fleet_status op##_forward(fl_lowering *l, const fl_node *n)         \
    {                                                                          \
        return loss_forward(l, n, &kernel);                                    \
    }                                                                          \
                                                                               \
    static fleet_status op##_gradient(fl_lowering *l, const fl_node *n)        \
    {                                                                          \
        return loss_gradient(l, n, &kernel##_grad, n->in[0]);                  \
    }

LOSS_OP(cross_entropy, ce)
LOSS_OP(sigmoid_cross_entropy, sigmoid_ce)
LOSS_OP(log_loss, log_loss)

const fl_op fl_op_softmax = {.name = "softmax",
                             .n_out = 1,
                             .least_in = 1,
                             .most_in = 1,
                             .infer = softmax_infer,
                             .forward = softmax_forward,
                             .gradient = softmax_gradient};
const fl_op fl_op_cross_entropy = {.name = "cross_entropy",
                                   .n_out = 1,
                                   .least_in = 2,
                                   .most_in = 2,
                                   .traits = FL_OP_LEARNS_FIRST,
                                   .infer = infer_classes,
                                   .forward = cross_entropy_forward,
                                   .gradient = cross_entropy_gradient};
const fl_op fl_op_softmax_with_cross_entropy = {
    .name = "softmax_with_cross_entropy",
    .n_out = 2,
    .least_in = 2,
    .most_in = 2,
    .traits = FL_OP_LEARNS_FIRST,
    .infer = sce_infer,
    .forward = sce_forward,
    .gradient = sce_gradient};
const fl_op fl_op_sigmoid_cross_entropy = {
    .name = "sigmoid_cross_entropy",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .traits = FL_OP_LEARNS_FIRST,
    .infer = binary_infer,
    .forward = sigmoid_cross_entropy_forward,
    .gradient = sigmoid_cross_entropy_gradient};
const fl_op fl_op_log_loss = {.name = "log_loss",
                              .n_out = 1,
                              .least_in = 2,
                              .most_in = 2,
                              .attrs = "epsilon:f",
                              .traits = FL_OP_LEARNS_FIRST,
                              .infer = binary_infer,
                              .forward = log_loss_forward,
                              .gradient = log_loss_gradient};

/* --- builders ------------------------------------------------------------ */

fleet_var *fleet_softmax(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_softmax, x, NULL, 0);
}

fleet_var *fleet_cross_entropy(fleet_program *p, fleet_var *x, fleet_var *label)
{
    return fl_build_of_two(p, &fl_op_cross_entropy, x, label, NULL, 0);
}

fleet_var *fleet_softmax_with_cross_entropy(fleet_program *p, fleet_var *logits,
                                            fleet_var *label,
                                            fleet_var **softmax_out)
{
    fleet_var *loss = fl_build_of_two(p, &fl_op_softmax_with_cross_entropy,
                                      logits, label, NULL, 0);

    if (softmax_out)
        *softmax_out = loss ? loss->producer->out[1] : NULL;
    return loss;
}

fleet_var *fleet_sigmoid_cross_entropy(fleet_program *p, fleet_var *x,
                                       fleet_var *label)
{
    return fl_build_of_two(p, &fl_op_sigmoid_cross_entropy, x, label, NULL, 0);
}

fleet_var *fleet_log_loss(fleet_program *p, fleet_var *x, fleet_var *label,
                          float epsilon)
{
    fl_attr attr = FL_ATTR_FLOAT("epsilon", epsilon == 0 ? 1e-4f : epsilon);

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!(epsilon >= 0) || !isfinite(epsilon))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "log_loss: epsilon %g is not a finite number from 0 on",
                       (double)epsilon));
    return fl_build_of_two(p, &fl_op_log_loss, x, label, &attr, 1);
}
