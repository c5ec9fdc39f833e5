/* lars.c - pass lars: a rate for each dense parameter, with momentum
 * (layer_rule.c). */
#include "runtime/passes/lars_lamb.h"
#include "runtime/reduce/all_reduce_steps.h"

static fleet_status lars_norm_run(const fl_instance *in, const fl_range *r)
{
    fl_layer_work k = fl_layer_work_of(in, r);

    *k.squares = fl_lars_squares(&k.u, k.w, k.g, k.block->n);
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

    if (!k.skip)
        fl_lars_update(&k.u, k.layer, fl_layer_ratio_at(in, &k), k.w, k.g,
                       fl_layer_state(in, &k, 0), k.block->n);
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
    const bool part = fl_store_shards_gradients(l->plan->store);

    FL_EMIT(l, &kernel_lars_norm, NULL, part ? own : all, now, g,
            FL_R(d->weight), FL_W(norms));
    if (part)
        fl_emit_share_squares(l, norms, 2 * own->begin, 2 * own->end);
    FL_EMIT(l, &fl_kernel_layer_ratio, NULL, all, FL_R(norms), FL_W(ratios));
    FL_EMIT(l, &kernel_lars_update, NULL, own, now, g, FL_RW(d->weight),
            FL_R(ratios), FL_RW(fl_state_value(l, d->flat, 0)));
}

fleet_status fl_pass_lars(fl_lowering *l, bool *applied)
{
    return fl_pass_layers(l, FL_LARS, emit_lars, applied);
}
