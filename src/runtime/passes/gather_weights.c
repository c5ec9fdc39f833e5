/* gather_weights.c - pass gather_weights, of strategy.sharding from stage 3 on:
 * a rank has its part of the weights alone, and a plan gathers weights before
 * forward uses them, and again before backward does. So Rajbhandari et al.
 * 2019, "ZeRO" (arXiv:1910.02054), its parameter partitioning.
 *
 * What is gathered at a time is a unit: parameters side by side in their group,
 * as large as a gradient bucket. It lies in the plan's memory, whose other
 * values use that as soon as no step reads the unit any more. What forward has
 * gathered last backward uses first, and does not gather again.
 *
 * A unit and the steps behind it are a stage (fl_step.stage): ranks gather in
 * one order, and not before the steps of the unit before are done. Gradients
 * are reduced when they are computed; so that order, too, is one of all ranks,
 * whatever the sizes of their batches.
 */
#include <string.h>

#include "base/memory.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/pass.h"
#include "runtime/reduce/all_reduce_gpu.h"
#include "runtime/store/store_check.h"

enum { UNIT, OWN };

/* Floats of a group, the same on all ranks. */
typedef struct unit {
    const fl_store *store;
    const fl_flat *group;
    fl_gpu *gpu; /* in whose memory it is gathered; NULL: the host's */
    int64_t begin, end;
    int value; /* that has it now; -1: none */
} unit;

/* --- weights.gather: from the ranks that have them ------------------------ */

static fleet_status copy_floats(const unit *u, float *to, const float *from,
                                int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *to;

    if (u->gpu)
        return u->gpu->m->copy(u->gpu->d, u->gpu->queue, to, from, bytes,
                               FL_ON_DEVICE);
    memcpy(to, from, bytes);
    return FLEET_OK;
}

/* What of the unit is that rank's: n floats from *at on. */
static int64_t part_of(const unit *u, int rank, int64_t *at)
{
    int64_t end = fl_share_first(u->store, u->group, rank + 1);

    *at = fl_share_first(u->store, u->group, rank);
    *at = *at > u->begin ? *at : u->begin;
    end = end < u->end ? end : u->end;
    return end > *at ? end - *at : 0;
}

/* Parts lie where they belong on all ranks: nothing is packed. */
static fleet_status gather_run(const fl_instance *in, const fl_range *r)
{
    const unit *u = in->step->config;
    fl_comm *p = u->store->agree->comm;
    float *to = fl_ptr(in, UNIT);
    int64_t at, n = part_of(u, p->rank, &at);

    (void)r;
    if (n > 0)
        FL_TRY(copy_floats(u, to + (at - u->begin),
                           (float *)fl_ptr(in, OWN) + (at - u->group->first),
                           n));
    if (u->gpu)
        FL_TRY(p->methods->after(p, u->gpu->queue));
    for (int rank = 0; rank < p->size; rank++) {
        n = part_of(u, rank, &at);
        if (n > 0)
            FL_TRY(p->methods->broadcast(p, to + (at - u->begin),
                                         n * (int64_t)sizeof *to, rank, NULL));
    }
    return FLEET_OK;
}

static const fl_kernel kernel_gather = {
    .name = "weights.gather",
    .split = FL_SPLIT_PARTS,
    .run = gather_run,
    .reduces = 1u << UNIT | 1u << OWN,
    .meets = true,
};

/* --- weights.copy: of a store that is whole (whole_weights.h) ------------- */

static fleet_status copy_run(const fl_instance *in, const fl_range *r)
{
    const unit *u = in->step->config;

    (void)r;
    FL_TRY(fl_store_check_weights(u->store));
    memcpy(fl_ptr(in, UNIT), u->group->weight + u->begin,
           (size_t)(u->end - u->begin) * sizeof(float));
    return FLEET_OK;
}

static const fl_kernel kernel_copy = {
    .name = "weights.copy",
    .split = FL_SPLIT_PARTS,
    .run = copy_run,
    .on_host = true,
};

/* --- units ---------------------------------------------------------------- */

typedef struct gatherer {
    fl_lowering *l;
    unit *unit;
    int n_unit;
    int last; /* the unit that was gathered last; -1: none */
    int bump; /* stages that are new */
    bool backward;
} gatherer;

static bool begins_unit(const gatherer *a, const fl_param *p)
{
    const unit *u = a->unit + a->n_unit;

    return a->n_unit == 0 || u[-1].group != p->flat ||
           u[-1].end - u[-1].begin >= a->l->program->training.all_reduce.bucket;
}

static fleet_status find_units(gatherer *a)
{
    fl_plan *plan = a->l->plan;
    const fl_map *params = &plan->store->params;

    a->unit = fl_arena_alloc(&plan->arena, (params->n + 1) * sizeof *a->unit);
    if (!a->unit)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (!p->flat)
            continue;
        if (begins_unit(a, p))
            a->unit[a->n_unit++] =
                (unit){.store = plan->store,
                       .group = p->flat,
                       .gpu = plan->training ? fl_comm_gpu_of_plan(plan) : NULL,
                       .begin = p->offset,
                       .value = -1};
        a->unit[a->n_unit - 1].end = p->offset + p->n;
    }
    return FLEET_OK;
}

static unit *unit_of(const gatherer *a, const fl_flat *g, int64_t at)
{
    for (int i = 0; i < a->n_unit; i++)
        if (a->unit[i].group == g && at >= a->unit[i].begin &&
            at < a->unit[i].end)
            return &a->unit[i];
    return NULL;
}

/* --- the steps, with units in place of the weights ------------------------ */

static const fl_dense *weights_of(const fl_plan *plan, int value)
{
    for (size_t i = 0; value >= 0 && i < plan->n_dense; i++)
        if (plan->dense[i].weight == fl_plan_root(plan, value))
            return &plan->dense[i];
    return NULL;
}

/* In a stage of its own. */
static void emit_gather(gatherer *a, unit *u, const fl_dense *d,
                        const fl_step *reader)
{
    const fl_shape shape = fl_shape_1(u->end - u->begin);
    fl_lowering *l = a->l;

    u->value = fl_temp(l, "gathered weights", FLEET_FLOAT32, &shape);
    l->phase = reader->phase;
    l->stage = reader->stage + ++a->bump;
    l->engine = l->plan->training ? FL_ENGINE_COMM : FL_ENGINE_COMPUTE;
    FL_EMIT(l, l->plan->training ? &kernel_gather : &kernel_copy, NULL, u,
            FL_W(u->value), FL_R(l->plan->training ? d->weight : -1));
    l->engine = FL_ENGINE_COMPUTE;
    l->stage = -1;
    a->last = (int)(u - a->unit);
}

/* A view of the unit, as the operand is one of the group. */
static int view_in_unit(gatherer *a, const unit *u, int value)
{
    fl_value like = a->l->plan->value[value];

    like.root = u->value;
    like.kind = FL_VALUE_TEMP;
    like.column -= u->begin;
    like.pointer = NULL;
    return fl_value_like(a->l, &like);
}

static int take_unit(gatherer *a, const fl_step *s, int value)
{
    const fl_plan *plan = a->l->plan;
    const fl_dense *d = weights_of(plan, value);
    unit *u = d ? unit_of(a, d->flat, plan->value[value].column) : NULL;

    if (!u)
        return value;
    if (u->value < 0)
        emit_gather(a, u, d, s);
    return view_in_unit(a, u, value);
}

static fleet_status take_units(gatherer *a, fl_step *s)
{
    fl_operand *o = fl_arena_copy(&a->l->plan->arena, s->operand,
                                  (size_t)s->n_operand * sizeof *o);

    if (!o)
        return FLEET_ENOMEM;
    for (int j = 0; j < s->n_operand; j++)
        o[j].value = take_unit(a, s, o[j].value);
    s->operand = o;
    return a->l->status;
}

/* Backward gathers anew what forward has not gathered last. */
static void begin_backward(gatherer *a)
{
    a->backward = true;
    for (int i = 0; i < a->n_unit; i++)
        if (i != a->last)
            a->unit[i].value = -1;
}

static fleet_status insert_gathers(gatherer *a)
{
    fl_plan *plan = a->l->plan;
    fl_step **step = plan->step;
    size_t n = plan->n_step;
    fleet_status status = FLEET_OK;

    plan->step = NULL;
    plan->n_step = plan->step_capacity = 0;
    for (size_t i = 0; i < n && status == FLEET_OK; i++) {
        if (!a->backward && step[i]->phase == FL_BACKWARD)
            begin_backward(a);
        status = take_units(a, step[i]);
        if (step[i]->stage >= 0)
            step[i]->stage += a->bump;
        if (status == FLEET_OK)
            status = fl_plan_add_step(plan, step[i]);
    }
    fl_free(step);
    return status;
}

/* Updates work on the rank's part. */
static void part_weights(fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_dense; i++) {
        fl_dense *d = &plan->dense[i];
        fl_value *v = &plan->value[d->weight];
        const int64_t n = d->flat->end - d->flat->first;

        d->first_weight = d->flat->first;
        v->shape = fl_shape_1(n > 0 ? n : 1);
        v->pointer = d->flat->own;
    }
}

fleet_status fl_pass_gather_weights(fl_lowering *l, bool *applied)
{
    gatherer a = {.l = l, .last = -1};
    fl_plan *plan = l->plan;

    if (!fl_store_shards_weights(plan->store) || plan->n_dense == 0 ||
        (plan->training && !plan->store->agree))
        return FLEET_OK;
    *applied = true;
    plan->gathers = true;
    plan->syncs = plan->syncs || plan->training;
    FL_TRY(find_units(&a));
    FL_TRY(insert_gathers(&a));
    part_weights(plan);
    return FLEET_OK;
}
