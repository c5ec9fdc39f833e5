/* lamb.c - pass lamb: a rate for each dense parameter, with Adam's step.
 *
 *   r = Adam's step + decay w;  w -= lr |w| / |r| r
 *
 * (You et al. 2019, arXiv:1904.00962, with corrected moments).
 */
#include "runtime/passes/lars_lamb.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/store/norm.h"
#include "runtime/simd/simd.h"

/* The step takes the place of the gradient, which is not needed any more. */
static fleet_status lamb_step_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);
    float *state[] = {fl_layer_state(in, &k, 0), fl_layer_state(in, &k, 1),
                      k.g};
    int64_t n = k.block->n;

    if (k.skip)
        return FLEET_OK;
    k.u.apart = k.all->layer[k.block->layer].decay;
    fl_rule_set_best()->lamb(&k.u, k.w, k.g, state, n);
    *k.squares =
        (fl_squares){fl_square_sum(k.w, n, 1), fl_square_sum(k.g, n, 1)};
    return FLEET_OK;
}

static const fl_kernel kernel_lamb_step = {
    .name = "lamb.step",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_layers,
    .run = lamb_step_run,
};

static fleet_status lamb_update_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);

    if (k.skip)
        return FLEET_OK;
    fl_simd_best()->add_scaled(k.w, k.g, -(k.u.lr * fl_layer_ratio(in, &k)), 0,
                               k.block->n);
    return FLEET_OK;
}

static const fl_kernel kernel_lamb_update = {
    .name = "update.lamb",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_layers,
    .run = lamb_update_run,
};

static void emit_lamb(fl_lowering *l, const fl_dense *d, const fl_layers *all,
                      const fl_layers *own, int norms, int ratios)
{
    const fl_operand now = FL_R(l->plan->update);

    FL_EMIT(l, &kernel_lamb_step, NULL, own, now, FL_RW(d->gradient),
            FL_R(d->weight), FL_W(norms), FL_RW(fl_state_value(l, d->flat, 0)),
            FL_RW(fl_state_value(l, d->flat, 1)));
    if (fl_store_is_sharded(l->plan->store))
        fl_emit_share_squares(l, norms, 2 * own->begin, 2 * own->end);
    FL_EMIT(l, &fl_kernel_layer_ratio, NULL, all, FL_R(norms), FL_W(ratios));
    FL_EMIT(l, &kernel_lamb_update, NULL, own, now, FL_R(d->gradient),
            FL_RW(d->weight), FL_R(ratios));
}

fleet_status fl_pass_lamb(fl_lowering *l, bool *applied)
{
    return fl_pass_layers(l, FL_LAMB, emit_lamb, applied);
}
