/* lamb.c - pass lamb: a rate for each dense parameter, with Adam's step
 * (layer_rule.c). */
#include "runtime/passes/lars_lamb.h"
#include "runtime/reduce/all_reduce_steps.h"

/* The step takes the place of the gradient, which is not needed any more. */
static fleet_status lamb_step_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);
    float *moment[] = {fl_layer_state(in, &k, 0), fl_layer_state(in, &k, 1)};

    if (!k.skip)
        *k.squares =
            fl_lamb_step(&k.u, k.layer, k.w, k.g, moment, k.g, k.block->n);
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

    if (!k.skip)
        fl_lamb_update(&k.u, fl_layer_ratio_at(in, &k), k.w, k.g, k.block->n);
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
