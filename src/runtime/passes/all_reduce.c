/* all_reduce.c - pass all_reduce: ranks of a collective job add up their
 * gradients, bucket by bucket. What a bucket's steps are is in reduce/:
 * float16, dgc, or a sum that is begun while the rest of backward is
 * computed. */
#include <string.h>

#include "base/error.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/pass.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/reduce/bucket_layout.h"
#include "runtime/reduce/dgc.h"
#include "runtime/reduce/fp16_allreduce.h"
#include "runtime/reduce/reduce_scatter.h"

/* --- the pass ------------------------------------------------------------ */

static bool is_dgc(const fl_lowering *l, const fl_dense *d, int64_t offset)
{
    const fl_map *params = &l->plan->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && p->offset == offset)
            return fl_dgc_takes(l, p);
    }
    return false;
}

static void emit_reduce(fl_lowering *l, const fl_dense *d, int64_t offset,
                        int64_t n)
{
    const fl_training *t = &l->program->training;
    bool dgc = is_dgc(l, d, offset);
    int data;

    if (t->all_reduce.fp16 && !dgc) {
        fl_emit_fp16_all_reduce(l, d, offset, n);
        return;
    }
    data = fl_stretch(l, d->gradient, "bucket", offset, n);
    if (dgc || t->all_reduce.group > 1) /* waits at every level */
        fl_emit_all_reduce(l, data, FL_WIRE_F32, dgc);
    else
        fl_emit_all_reduce_async(l, data, FL_WIRE_F32);
    if (dgc)
        fl_emit_dgc(l, d, offset, n);
}

/* Sums of a merge group are moved to where ranks reduce without a copy. */
static fleet_status move_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, 0);

    (void)r;
    if (now->leaves)
        memcpy(fl_ptr(in, 1), fl_ptr(in, 2),
               (size_t)(in->arg[1].rows * in->arg[1].cols) * sizeof(float));
    return FLEET_OK;
}

static const fl_kernel kernel_move = {
    .name = "merge.move",
    .split = FL_SPLIT_PARTS,
    .run = move_run,
};

static void emit_move(fl_lowering *l, const fl_dense *d, int64_t offset,
                      int64_t n)
{
    FL_EMIT(l, &kernel_move, NULL, NULL, FL_R(l->plan->update),
            FL_W(fl_stretch(l, d->gradient, "bucket", offset, n)),
            FL_R(fl_stretch(l, d->one, "merged", offset, n)));
}

static void reduce_group(fl_lowering *l, fl_dense *d)
{
    const fl_training *t = &l->program->training;

    if (fl_store_shards_gradients(l->plan->store)) {
        fl_emit_reduce_scatter(l, d);
        return;
    }
    if (l->plan->group > 1 && d->flat->gradient && !t->all_reduce.fp16 &&
        !t->dgc.on && t->localsgd.steps == 0) {
        d->one = d->gradient;
        d->gradient = fl_flat_gradient(l, d->flat, "gradients", true);
        l->phase = FL_REDUCE_BEGIN;
        fl_each_bucket(l, d, emit_move);
        fl_each_pushed(l, d, emit_move);
    }
    l->phase = FL_UPDATE;
    fl_each_bucket(l, d, emit_reduce);
}

/* Of the steps since `first`, reductions begin before any is waited for. */
static void put_async_first(fl_plan *plan, size_t first)
{
    for (size_t i = first; i < plan->n_step; i++) {
        fl_step *s = plan->step[i];

        if (s->phase != FL_REDUCE_BEGIN)
            continue;
        memmove(plan->step + first + 1, plan->step + first,
                (i - first) * sizeof *plan->step);
        plan->step[first++] = s;
    }
}

/* What needs gradients that are whole: each name is the caller's. */
static fleet_status check_stage(const fl_lowering *l)
{
    const fl_map *params = &l->plan->store->params;

    if (!fl_store_shards_gradients(l->plan->store))
        return FLEET_OK;
    if (l->plan->group > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.sharding_configs.stage %d: the sums of %d "
                       "merged batches would be whole on each rank",
                       l->plan->store->share.stage, l->plan->group);
    for (size_t i = 0; i < params->n; i++)
        if (fl_is_pushed(l, params->entry[i].value))
            return fl_fail(FLEET_EUNSUPPORTED,
                           "strategy.sharding_configs.stage %d: servers keep "
                           "parameter \"%s\", whose gradient each rank "
                           "pushes as a whole",
                           l->plan->store->share.stage, params->entry[i].name);
    return FLEET_OK;
}

fleet_status fl_pass_all_reduce(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    size_t first = plan->n_step;

    if (!plan->training || !plan->store->agree)
        return FLEET_OK;
    if (l->program->training.dgc.on && plan->store->optimizer->clip_norm > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.dgc: no rank knows the norm of all gradients "
                       "for the clip by global norm");
    if (l->program->training.dgc.on && plan->store->optimizer->value_clip > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.dgc: ranks exchange parts of what they have "
                       "gathered over many steps, which a clip by value is not "
                       "of");
    FL_TRY(check_stage(l));
    fl_update_value(l);
    fl_works_value(l);
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            reduce_group(l, &plan->dense[i]);
            *applied = true;
        }
    fl_emit_reduce_scatter_end(l);
    put_async_first(plan, first);
    return l->status;
}
