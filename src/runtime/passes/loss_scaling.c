/* loss_scaling.c - pass loss_scaling, of trainings in float16: are all
 * gradients finite, is this update to be skipped, and which scale does the
 * loss get next? See plan/loss_scale.h. */
#include "runtime/plan/loss_scale.h"

#include "runtime/plan/agree.h"
#include "runtime/lookup/lookup.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/remote.h"
#include "runtime/store/norm.h"

/* --- scaling.check ------------------------------------------------------- */

static fleet_status check_prepare(fl_instance *in)
{
    in->n_part = (int)in->arg[0].rows;
    return FLEET_OK;
}

static fleet_status check_run(const fl_instance *in, const fl_range *r)
{
    int64_t at = r->begin * FL_SCALING_BLOCK, left = in->arg[1].rows - at;
    const float *g = (const float *)fl_ptr(in, 1) + at;

    ((float *)fl_ptr(in, 0))[r->begin] =
        fl_all_finite(g, left < FL_SCALING_BLOCK ? left : FL_SCALING_BLOCK)
            ? 0.0f
            : 1.0f;
    return FLEET_OK;
}

static const fl_kernel kernel_check = {
    .name = "scaling.check",
    .split = FL_SPLIT_PARTS,
    .prepare = check_prepare,
    .run = check_run,
};

/* --- scaling.agree ------------------------------------------------------- */

enum { THE_UPDATE, AGREED, THE_SCALING = 1, FIRST_FOUND };

static bool any_found(const fl_instance *in, const int *count)
{
    for (int i = FIRST_FOUND; i < in->step->n_operand; i++) {
        const float *found = fl_ptr(in, i);

        for (int j = 0; j < count[i - FIRST_FOUND]; j++)
            if (found[j] != 0)
                return true;
    }
    return false;
}

typedef struct agree_config {
    const fl_store *store;
    const int *count; /* of each found */
} agree_config;

/* A step of the update that all ranks take: also a rank without a batch for it,
 * whose own findings are of the batch before. */
static fleet_status agree_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const agree_config *c = in->step->config;
    fl_comm *p = c->store->agree->comm;
    float *agreed = fl_ptr(in, AGREED);

    (void)r;
    *agreed = !now->joins && any_found(in, c->count) ? 1.0f : 0.0f;
    return p->methods->all_reduce(p, FL_ALL_MAX, FL_WIRE_F32, agreed, agreed, 1,
                                  NULL);
}

static const fl_kernel kernel_agree = {
    .name = "scaling.agree",
    .split = FL_SPLIT_PARTS,
    .run = agree_run,
};

/* --- scaling.decide ------------------------------------------------------ */

static fleet_status decide_run(const fl_instance *in, const fl_range *r)
{
    const fl_scaling_config *c = in->step->config;
    fl_update_now *now = fl_ptr(in, 0);
    fl_scaling *s = fl_ptr(in, 1);

    (void)r;
    now->loss_scale = s->scale;
    now->u.scale /= s->scale;
    now->u.mean /= s->scale;
    now->skip = any_found(in, c->count);
    if (now->skip)
        fl_scaling_shrink(&c->rules, s);
    else
        fl_scaling_grow(&c->rules, s);
    return FLEET_OK;
}

static const fl_kernel kernel_decide = {
    .name = "scaling.decide",
    .split = FL_SPLIT_PARTS,
    .run = decide_run,
};

/* --- the pass ------------------------------------------------------------ */

typedef struct findings {
    fl_operand *operand; /* of scaling.agree or scaling.decide */
    int *count;
    int n;
} findings;

static fleet_status make_room(fl_lowering *l, findings *all)
{
    size_t most = l->plan->n_dense + l->plan->n_sparse + 1;

    *all = (findings){
        fl_arena_alloc(&l->plan->arena,
                       (FIRST_FOUND + most) * sizeof *all->operand),
        fl_arena_alloc(&l->plan->arena, most * sizeof *all->count), 0};
    return all->operand && all->count ? FLEET_OK : FLEET_ENOMEM;
}

static void add_found(findings *all, int found, int n)
{
    all->operand[FIRST_FOUND + all->n] = (fl_operand)FL_R(found);
    all->count[all->n++] = n;
}

static void check_all(fl_lowering *l, findings *all)
{
    const fl_plan *plan = l->plan;

    for (size_t i = 0; i < plan->n_dense; i++) {
        const fl_dense *d = &plan->dense[i];
        fl_shape shape;
        int64_t n;
        int found;

        if (d->gradient < 0)
            continue;
        n = fl_shape_count(&plan->value[d->gradient].shape, 1);
        n = (n + FL_SCALING_BLOCK - 1) / FL_SCALING_BLOCK;
        shape = fl_shape_1(n);
        found = fl_temp(l, "found", FLEET_FLOAT32, &shape);
        FL_EMIT(l, &kernel_check, NULL, NULL, FL_W(found), FL_R(d->gradient));
        add_found(all, found, (int)n);
    }
    for (size_t i = 0; i < plan->n_sparse; i++) {
        int n, found = fl_lookup_check(l, &plan->sparse[i], &n);

        add_found(all, found, n);
    }
}

/* Gradients of rows, and of parameters that servers keep, differ from rank to
 * rank; what ranks have summed is the same on all, unless each has a part of
 * it. */
static bool ranks_see_different_things(const fl_plan *plan)
{
    return plan->store->agree &&
           (plan->n_sparse > 0 || fl_remote_has_dense(plan->store) ||
            fl_store_shards_gradients(plan->store));
}

/* In place of what this rank has found: what any has. */
static fleet_status agree_on_findings(fl_lowering *l, findings *all)
{
    const fl_shape one = fl_shape_1(1);
    int agreed = fl_temp(l, "agreed", FLEET_FLOAT32, &one);
    agree_config c = {.store = l->plan->store, .count = all->count};

    all->operand[THE_UPDATE] = (fl_operand)FL_R(l->plan->update);
    all->operand[AGREED] = (fl_operand)FL_W(agreed);
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_agree, NULL, fl_config(l, &c, sizeof c), all->operand,
            FIRST_FOUND + all->n);
    l->engine = FL_ENGINE_COMPUTE;
    FL_TRY(make_room(l, all));
    add_found(all, agreed, 1);
    return l->status;
}

fleet_status fl_pass_loss_scaling(fl_lowering *l, bool *applied)
{
    fl_scaling_config c = {.rules = l->program->training.scaling};
    findings all;

    if (!fl_is_scaled(l))
        return FLEET_OK;
    *applied = true;
    FL_TRY(make_room(l, &all));
    l->phase = FL_UPDATE;
    fl_update_value(l);
    check_all(l, &all);
    if (ranks_see_different_things(l->plan))
        FL_TRY(agree_on_findings(l, &all));
    c.count = all.count;
    all.operand[THE_UPDATE] = (fl_operand)FL_RW(l->plan->update);
    all.operand[THE_SCALING] = (fl_operand)FL_RW(fl_scaling_value(l));
    fl_emit(l, &kernel_decide, NULL, fl_config(l, &c, sizeof c), all.operand,
            FIRST_FOUND + all.n);
    return l->status;
}
