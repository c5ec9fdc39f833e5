/* composed_losses.c - losses that are made of other operators, and get their
 * gradients from these. */
#include <math.h>

#include <fleet/ops.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

/* A label as float32, in x's shape. */
static fleet_var *label_for(fleet_program *p, const char *loss,
                            const fleet_var *x, fleet_var *label)
{
    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (!fl_shape_equal(&x->shape, &label->shape))
        return fl_program_failed(
            p,
            fl_fail(FLEET_ESHAPE, "%s: label \"%s\" %s does not fit \"%s\" %s",
                    loss, label->name, fl_shape_print(&label->shape).chars,
                    x->name, fl_shape_print(&x->shape).chars));
    return label->dtype == FLEET_INT64 && !label->ragged ? fleet_cast(p, label)
                                                         : label;
}

static fleet_var *error_of(fleet_program *p, const char *loss, fleet_var *x,
                           fleet_var *label)
{
    label = label_for(p, loss, x, label);
    return label ? fleet_sub(p, x, label) : NULL;
}

/* x where the label is 1, -x where it is 0. */
static fleet_var *toward_label(fleet_program *p, fleet_var *x, fleet_var *label)
{
    fleet_var *sign = label ? fleet_scale(p, label, 2, -1) : NULL;

    return sign ? fleet_mul(p, x, sign) : NULL;
}

fleet_var *fleet_square_error_cost(fleet_program *p, fleet_var *x,
                                   fleet_var *label)
{
    x = error_of(p, "square_error_cost", x, label);
    return x ? fleet_square(p, x) : NULL;
}

fleet_var *fleet_abs_error_cost(fleet_program *p, fleet_var *x,
                                fleet_var *label)
{
    x = error_of(p, "abs_error_cost", x, label);
    return x ? fleet_abs(p, x) : NULL;
}

/* With m = min(|e|, delta): m (|e| - m / 2). */
fleet_var *fleet_huber_loss(fleet_program *p, fleet_var *x, fleet_var *label,
                            float delta)
{
    fleet_var *m, *rest;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (!(delta > 0) || !isfinite(delta))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "huber_loss: delta %g is not a finite number above 0",
                       (double)delta));
    x = fleet_abs_error_cost(p, x, label);
    m = x ? fleet_clip(p, x, -1, delta) : NULL;
    rest = m ? fleet_sub(p, x, fleet_scale(p, m, 0.5f, 0)) : NULL;
    return rest ? fleet_mul(p, m, rest) : NULL;
}

static bool is_weight_for(const fl_shape *loss, const fl_shape *weight)
{
    return fl_shape_equal(loss, weight) ||
           (fl_shape_batched(weight) && weight->dim[0] == loss->dim[0] &&
            weight->n_dim == 2 && weight->dim[1] == 1);
}

fleet_var *fleet_weighted_loss(fleet_program *p, fleet_var *loss,
                               fleet_var *weight)
{
    int64_t dims[FLEET_MAX_DIM];

    if (!fl_builder_ready(p, loss) || !fl_builder_ready(p, weight))
        return NULL;
    if (!fl_shape_batched(&loss->shape))
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "weighted_loss: \"%s\" %s has no number for each sample",
                       loss->name, fl_shape_print(&loss->shape).chars));
    if (weight->ragged)
        return fl_program_failed(
            p, fl_fail(FLEET_EDTYPE,
                       "weighted_loss: weight \"%s\" is ragged, not one number "
                       "for each sample",
                       weight->name));
    if (!is_weight_for(&loss->shape, &weight->shape))
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "weighted_loss: weight \"%s\" %s does not fit \"%s\" %s",
                       weight->name, fl_shape_print(&weight->shape).chars,
                       loss->name, fl_shape_print(&loss->shape).chars));
    if (weight->dtype == FLEET_INT64)
        weight = fleet_cast(p, weight);
    for (int i = 0; i < loss->shape.n_dim; i++)
        dims[i] = i == 0 ? loss->shape.dim[0] : 1;
    if (weight && weight->shape.n_dim != loss->shape.n_dim)
        weight = fleet_reshape(p, weight, dims, loss->shape.n_dim);
    return weight ? fleet_mul(p, loss, weight) : NULL;
}

/* Of several numbers of a sample with one weight each counts by that: both
 * means are of as many samples. */
fleet_var *fleet_weighted_mean(fleet_program *p, fleet_var *loss,
                               fleet_var *weight)
{
    fleet_var *sum = fleet_weighted_loss(p, loss, weight), *all = weight;

    if (!sum)
        return NULL;
    if (all->dtype == FLEET_INT64)
        all = fleet_cast(p, all);
    sum = fleet_mean(p, sum);
    all = all ? fleet_mean(p, all) : NULL;
    all = all ? fleet_max(p, all, fleet_constant(p, 1e-30f)) : NULL;
    return sum && all ? fleet_div(p, sum, all) : NULL;
}

static bool is_pos_weight(fleet_program *p, const char *loss, float pos_weight)
{
    if (pos_weight > 0 && isfinite(pos_weight))
        return true;
    fl_program_failed(
        p, fl_fail(FLEET_EINVAL,
                   "%s: pos_weight %g is not a finite number above 0", loss,
                   (double)pos_weight));
    return false;
}

/* loss = y a + (1 - y) b becomes pos_weight y a + (1 - y) b. */
static fleet_var *with_pos_weight(fleet_program *p, fleet_var *loss,
                                  fleet_var *a, fleet_var *label,
                                  float pos_weight)
{
    if (label->dtype == FLEET_INT64)
        label = fleet_cast(p, label);
    a = a && label ? fleet_mul(p, a, label) : NULL;
    a = a ? fleet_scale(p, a, pos_weight - 1, 0) : NULL;
    return a ? fleet_add(p, loss, a) : NULL;
}

fleet_var *fleet_weighted_sigmoid_cross_entropy(fleet_program *p, fleet_var *x,
                                                fleet_var *label,
                                                float pos_weight)
{
    fleet_var *loss;

    if (!fl_builder_ready(p, x) ||
        !is_pos_weight(p, "weighted_sigmoid_cross_entropy", pos_weight))
        return NULL;
    loss = fleet_sigmoid_cross_entropy(p, x, label);
    if (!loss || pos_weight == 1)
        return loss;
    x = fleet_softplus(p, fleet_scale(p, x, -1, 0));
    return with_pos_weight(p, loss, x, label, pos_weight);
}

fleet_var *fleet_weighted_log_loss(fleet_program *p, fleet_var *x,
                                   fleet_var *label, float epsilon,
                                   float pos_weight)
{
    fleet_var *loss;

    if (!fl_builder_ready(p, x) ||
        !is_pos_weight(p, "weighted_log_loss", pos_weight))
        return NULL;
    loss = fleet_log_loss(p, x, label, epsilon);
    if (!loss || pos_weight == 1)
        return loss;
    epsilon = (float)fl_node_float(loss->producer, "epsilon");
    x = fleet_log(p, fleet_scale(p, x, 1, epsilon));
    x = x ? fleet_scale(p, x, -1, 0) : NULL;
    return with_pos_weight(p, loss, x, label, pos_weight);
}

fleet_var *fleet_hinge_loss(fleet_program *p, fleet_var *x, fleet_var *label)
{
    x = toward_label(p, x, label_for(p, "hinge_loss", x, label));
    x = x ? fleet_scale(p, x, -1, 1) : NULL;
    return x ? fleet_relu(p, x) : NULL;
}

/* The label's own term is log 2, and has no gradient. */
fleet_var *fleet_bpr_loss(fleet_program *p, fleet_var *x, fleet_var *label)
{
    fleet_var *own;
    float others;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (x->shape.n_dim != 2 || x->shape.dim[1] < 2)
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "bpr_loss: \"%s\" has shape %s; expected [-1,C] with at "
                       "least 2 classes",
                       x->name, fl_shape_print(&x->shape).chars));
    if (label->shape.n_dim != 2 || label->shape.dim[1] != 1)
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "bpr_loss: label \"%s\" has shape %s; expected [-1,1]",
                       label->name, fl_shape_print(&label->shape).chars));
    others = (float)(x->shape.dim[1] - 1);
    own = fleet_gather(p, x, label);
    x = own ? fleet_softplus(p, fleet_sub(p, x, own)) : NULL;
    x = x ? fleet_reduce_sum(p, x, 1, 1) : NULL;
    return x ? fleet_scale(p, x, 1 / others, -0.69314718056f / others) : NULL;
}

/* With z toward the label, p = sigmoid(z): -log p = softplus(-z), and (1 -
 * p)^gamma = e^(-gamma softplus(z)), whose gradient is finite where 1 - p is
 * 0. */
fleet_var *fleet_sigmoid_focal_loss(fleet_program *p, fleet_var *x,
                                    fleet_var *label, float alpha, float gamma)
{
    fleet_var *away, *loss, *doubt;

    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, label))
        return NULL;
    if (!(alpha >= 0 && alpha < 1) || !(gamma >= 0) || !isfinite(gamma))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "sigmoid_focal_loss: alpha %g and gamma %g; expected "
                       "[0, 1) and a finite number from 0 on",
                       (double)alpha, (double)gamma));
    label = label_for(p, "sigmoid_focal_loss", x, label);
    x = toward_label(p, x, label);
    away = x ? fleet_scale(p, x, -1, 0) : NULL;
    loss = away ? fleet_softplus(p, away) : NULL;
    if (loss && gamma > 0) {
        doubt = fleet_scale(p, fleet_softplus(p, x), -gamma, 0);
        loss = fleet_mul(p, loss, fleet_exp(p, doubt));
    }
    if (loss && alpha > 0) /* alpha for label 1, 1 - alpha for 0 */
        loss =
            fleet_mul(p, loss, fleet_scale(p, label, 2 * alpha - 1, 1 - alpha));
    return loss;
}
