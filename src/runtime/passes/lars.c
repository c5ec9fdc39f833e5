/* lars.c - pass lars: a rate for each dense parameter, with momentum.
 *
 *   v = mu v + rate (g + decay w);  w -= v
 *   rate = lr coeff |w| / (|g| + decay |w| + epsilon)
 *
 * (You, Gitman, Ginsburg 2017, arXiv:1708.03888); g is the gradient that a rule
 * uses, rule.h.
 */
#include "runtime/passes/lars_lamb.h"
#include "runtime/store/norm.h"

/* The sum of the squares of the gradient as the rule uses it. */
static double square_sum_used(const fl_layer_work *k)
{
    const fl_update *u = &k->u;
    double sum = 0;

    for (int64_t i = 0; i < k->block->n; i++) {
        double x = (double)(k->g[i] * u->scale * u->clip + u->decay * k->w[i]);

        sum += x * x;
    }
    return sum;
}

static fleet_status lars_norm_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);

    *k.squares =
        (fl_squares){fl_square_sum(k.w, k.block->n, 1), square_sum_used(&k)};
    return FLEET_OK;
}

static const fl_kernel kernel_lars_norm = {
    .name = "lars.norm",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_layers,
    .run = lars_norm_run,
};

static fleet_status lars_update_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);
    float *velocity = fl_layer_state(in, &k, 0);

    if (k.skip)
        return FLEET_OK;
    k.u.lr *= fl_layer_ratio(in, &k);
    k.u.decay += k.all->layer[k.block->layer].decay;
    fl_rule_set_best()->lars(&k.u, k.w, k.g, &velocity, k.block->n);
    return FLEET_OK;
}

static const fl_kernel kernel_lars_update = {
    .name = "update.lars",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_layers,
    .run = lars_update_run,
};

static void emit_lars(fl_lowering *l, const fl_dense *d, const fl_layers *all,
                      const fl_layers *own, int norms, int ratios)
{
    const fl_operand now = FL_R(l->plan->update), g = FL_R(d->gradient);

    FL_EMIT(l, &kernel_lars_norm, NULL, all, now, g, FL_R(d->weight),
            FL_W(norms));
    FL_EMIT(l, &fl_kernel_layer_ratio, NULL, all, FL_R(norms), FL_W(ratios));
    FL_EMIT(l, &kernel_lars_update, NULL, own, now, g, FL_RW(d->weight),
            FL_R(ratios), FL_RW(fl_state_value(l, d->flat, 0)));
}

fleet_status fl_pass_lars(fl_lowering *l, bool *applied)
{
    return fl_pass_layers(l, FL_LARS, emit_lars, applied);
}
