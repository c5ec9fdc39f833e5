/* scaling.c - the loss's scale in trainings of float16; see scaling.h. */
#include "runtime/scaling.h"

#include "runtime/lookup.h"
#include "runtime/norm.h"
#include "runtime/pass.h"
#include "runtime/update.h"

bool fl_is_scaled(const fl_lowering *l)
{
    return l->plan->training && l->program->training.narrow == FLEET_FLOAT16;
}

static int scaling_value(fl_lowering *l)
{
    fl_plan *plan = l->plan;
    fl_value like = {.name = "loss scaling",
                     .kind = FL_VALUE_PARAM,
                     .dtype = FLEET_UINT8,
                     .shape = fl_shape_1(sizeof(fl_scaling)),
                     .root = -1,
                     .object = sizeof(fl_scaling),
                     .pointer = &plan->store->scaling,
                     .ld = 1};

    if (plan->scaling < 0)
        plan->scaling = fl_plan_value(plan, &like);
    if (plan->scaling < 0)
        l->status = FLEET_ENOMEM;
    return plan->scaling;
}

/* --- loss.scale ------------------------------------------------------------
 */

static fleet_status scale_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    *(float *)fl_ptr(in, 0) = ((const fl_scaling *)fl_ptr(in, 1))->scale;
    return FLEET_OK;
}

static const fl_kernel kernel_scale = {
    .name = "loss.scale",
    .split = FL_SPLIT_PARTS,
    .run = scale_run,
};

int fl_scaled_loss_gradient(fl_lowering *l, const fl_node *n)
{
    fl_shape one = fl_shape_1(1);
    int g = fl_temp(l, "loss gradient", FLEET_FLOAT32, &one);

    FL_EMIT(l, &kernel_scale, n, NULL, FL_W(g), FL_R(scaling_value(l)));
    return g;
}

/* --- scaling.check ---------------------------------------------------------
 */

static int64_t blocks_of(int64_t n)
{
    return (n + FL_SCALING_BLOCK - 1) / FL_SCALING_BLOCK;
}

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

/* --- scaling.decide --------------------------------------------------------
 */

static bool any_found(const fl_instance *in)
{
    const fl_scaling_config *c = in->step->config;

    for (int i = 2; i < in->step->n_operand; i++) {
        const float *found = fl_ptr(in, i);

        for (int j = 0; j < c->count[i - 2]; j++)
            if (found[j] != 0)
                return true;
    }
    return false;
}

static fleet_status decide_run(const fl_instance *in, const fl_range *r)
{
    const fl_scaling_config *c = in->step->config;
    fl_update_now *now = fl_ptr(in, 0);
    fl_scaling *s = fl_ptr(in, 1);

    (void)r;
    now->u.scale /= s->scale;
    now->skip = any_found(in);
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

/* --- the pass --------------------------------------------------------------
 */

typedef struct findings {
    fl_operand *operand; /* of scaling.decide */
    int *count;
    int n;
} findings;

static void add_found(findings *all, int found, int n)
{
    all->operand[2 + all->n] = (fl_operand)FL_R(found);
    all->count[all->n++] = n;
}

static void check_dense(fl_lowering *l, findings *all, const fl_dense *d)
{
    fl_shape shape = fl_shape_1(blocks_of(d->group->n));
    int found = fl_temp(l, "found", FLEET_FLOAT32, &shape);

    FL_EMIT(l, &kernel_check, NULL, NULL, FL_W(found), FL_R(d->gradient));
    add_found(all, found, (int)shape.dim[0]);
}

static void check_all(fl_lowering *l, findings *all)
{
    fl_plan *plan = l->plan;

    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0)
            check_dense(l, all, &plan->dense[i]);
    for (size_t i = 0; i < plan->n_sparse; i++) {
        int n, found = fl_lookup_check(l, &plan->sparse[i], &n);

        add_found(all, found, n);
    }
}

fleet_status fl_pass_loss_scaling(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    size_t most = plan->n_dense + plan->n_sparse;
    findings all = {0};
    fl_scaling_config c = {.rules = l->program->training.scaling};

    if (!fl_is_scaled(l))
        return FLEET_OK;
    *applied = true;
    all.operand =
        fl_arena_alloc(&plan->arena, (2 + most) * sizeof *all.operand);
    c.count = all.count =
        fl_arena_alloc(&plan->arena, (1 + most) * sizeof *all.count);
    if (!all.operand || !all.count)
        return FLEET_ENOMEM;
    l->phase = FL_UPDATE;
    all.operand[0] = (fl_operand)FL_RW(fl_update_value(l));
    all.operand[1] = (fl_operand)FL_RW(scaling_value(l));
    check_all(l, &all);
    fl_emit(l, &kernel_decide, NULL, fl_config(l, &c, sizeof c), all.operand,
            2 + all.n);
    return l->status;
}
