/* form_regions.c - pass form_regions: in which order steps run, and which of
 * them run without waiting for each other. */
#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/plan/pass.h"
#include "runtime/stages/stage_exchange.h"

typedef enum dependence { NONE, SAME_ROWS, WHOLE } dependence;

static bool values_overlap(const fl_plan *plan, int a, int b)
{
    const fl_value *x = &plan->value[a], *y = &plan->value[b];
    int64_t nx, ny;

    if (x->root != y->root)
        return false;
    if (a == x->root || b == y->root)
        return true;
    if (fl_shape_batched(&x->shape)) {
        nx = fl_shape_cols(&x->shape);
        ny = fl_shape_cols(&y->shape);
        if (x->ld != y->ld)
            return true;
    } else {
        nx = fl_shape_count(&x->shape, 1);
        ny = fl_shape_count(&y->shape, 1);
    }
    return x->column < y->column + ny && y->column < x->column + nx;
}

static dependence dependence_of(const fl_plan *plan, const fl_step *a,
                                const fl_step *b)
{
    dependence most = NONE;

    for (int i = 0; i < a->n_operand; i++)
        for (int j = 0; j < b->n_operand; j++) {
            const fl_operand *x = &a->operand[i], *y = &b->operand[j];

            if (x->value < 0 || y->value < 0 ||
                (x->mode == FL_READ && y->mode == FL_READ) ||
                !values_overlap(plan, x->value, y->value))
                continue;
            int root = fl_plan_root(plan, x->value);
            if (!fl_shape_batched(&plan->value[root].shape))
                return WHOLE;
            most = SAME_ROWS;
        }
    return most;
}

/* The runs of a plan: each phase before forward, and each from the reductions
 * on, is one, and all phases between are another. Reductions may also run
 * among the steps of that one. The members of a crew meet before they merge. */
static fl_phase run_of(const fl_plan *plan, fl_phase phase)
{
    if (phase == FL_MERGE && plan->crew.n > 1)
        return phase;
    return phase < FL_FORWARD || phase >= FL_REDUCE_BEGIN ? phase : FL_FORWARD;
}

typedef struct scheduler {
    fl_plan *plan;
    fl_step **order; /* scheduled so far */
    size_t n;
    bool *done;    /* by step: in a region before this one */
    bool *joined;  /* in this region */
    bool *wanted;  /* comes now */
    int stage;     /* the lowest one that is not over */
    bool backward; /* regions are of FL_BACKWARD from now on */
} scheduler;

static bool begins_reduction(const fl_step *s)
{
    return s->phase == FL_REDUCE_BEGIN && s->engine == FL_ENGINE_COMM;
}

/* What the next reduction waits for: its gradients; and all that a forward pass
 * does, so that nothing is sent of a batch that is found wrong. Without another
 * reduction everything. */
static void find_wanted(const scheduler *s)
{
    const fl_plan *plan = s->plan;
    size_t next = 0;

    while (next < plan->n_step &&
           (s->done[next] || !begins_reduction(plan->step[next])))
        next++;
    for (size_t j = plan->n_step; j-- > 0;) {
        s->wanted[j] = s->wanted[j] || next == plan->n_step || j == next ||
                       plan->step[j]->phase <= FL_FORWARD;
        for (size_t i = 0; s->wanted[j] && !s->done[j] && i < j; i++)
            s->wanted[i] = s->wanted[i] || dependence_of(plan, plan->step[i],
                                                         plan->step[j]) != NONE;
    }
}

/* Stages are of forward and backward: reductions run among them. */
static bool has_stage(const fl_plan *plan, const fl_step *s)
{
    return s->stage >= 0 && run_of(plan, s->phase) == FL_FORWARD;
}

static bool is_in_stage(const scheduler *s, const fl_step *step)
{
    return !has_stage(s->plan, step) || step->stage <= s->stage;
}

/* A step of a lower stage that is not wanted yet may come later. */
static void find_stage(scheduler *s)
{
    const fl_plan *plan = s->plan;

    s->stage = INT_MAX;
    for (size_t i = 0; i < plan->n_step; i++)
        if (!s->done[i] && s->wanted[i] && has_stage(plan, plan->step[i]) &&
            plan->step[i]->stage < s->stage)
            s->stage = plan->step[i]->stage;
}

/* May step j join the region? It is wanted, and all that it depends on is done,
 * or is in the region and concerns the same rows. */
static bool may_join(const scheduler *s, size_t j, const fl_region *region)
{
    const fl_plan *plan = s->plan;
    const fl_split split = region->split;
    const bool queued =
        region->engine == FL_ENGINE_GPU; /* in the plan's order */

    if (s->done[j] || !s->wanted[j] || !is_in_stage(s, plan->step[j]) ||
        (!queued && plan->step[j]->kernel->split != split) ||
        plan->step[j]->engine != region->engine ||
        run_of(plan, plan->step[j]->phase) != region->phase)
        return false;
    for (size_t i = 0; i < j; i++) {
        dependence d;

        if (s->done[i] || (queued && s->joined[i]))
            continue;
        d = dependence_of(plan, plan->step[i], plan->step[j]);
        if (d == WHOLE ||
            (d == SAME_ROWS && !(s->joined[i] && split == FL_SPLIT_ROWS)))
            return false;
    }
    return true;
}

/* The time to prefetch rows is once a forward pass is queued, before the CPU
 * waits for what the GPU computes. */
static bool is_prefetch_time(const scheduler *s, fl_phase phase,
                             fl_engine engine)
{
    const fl_plan *plan = s->plan;

    if (!plan->prefetches_rows || phase != FL_FORWARD ||
        engine == FL_ENGINE_GPU)
        return false;
    for (size_t i = 0; i < plan->n_step; i++)
        if (!s->done[i] && plan->step[i]->phase <= FL_FORWARD)
            return false;
    return true;
}

/* Where several batches are in flight all of them are sent before one is waited
 * for. */
static bool waits_for_stage(const scheduler *s, const fl_region *region)
{
    bool waits = false;

    for (int i = 0; s->plan->crew.in_flight && i < region->n; i++)
        waits = waits ||
                s->order[region->first + i]->kernel == &fl_kernel_stage_receive;
    return waits;
}

static fleet_status open_region(scheduler *s, fl_split split, fl_phase phase,
                                fl_engine engine)
{
    fl_plan *plan = s->plan;
    fl_region region = {(int)s->n, 0, split, phase, engine};
    bool backward = is_prefetch_time(s, phase, engine);

    for (size_t j = 0; j < plan->n_step; j++) {
        if (!may_join(s, j, &region))
            continue;
        s->joined[j] = true;
        plan->step[j]->region = (int)plan->n_region;
        s->order[s->n++] = plan->step[j];
        region.n++;
    }
    for (size_t j = 0; j < plan->n_step; j++) {
        s->done[j] = s->done[j] || s->joined[j];
        s->joined[j] = false;
    }
    if (region.n == 0)
        return FLEET_OK;
    s->backward = s->backward || backward || phase == FL_REDUCE_BEGIN ||
                  waits_for_stage(s, &region);
    if (phase == FL_FORWARD && s->backward)
        region.phase = FL_BACKWARD;
    FL_TRY(fl_grow(&plan->region, &plan->region_capacity, plan->n_region + 1,
                   sizeof region));
    plan->region[plan->n_region++] = region;
    return FLEET_OK;
}

static size_t steps_of_run(const fl_plan *plan, fl_phase phase, fl_phase other)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        n += run_of(plan, plan->step[i]->phase) == phase ||
             run_of(plan, plan->step[i]->phase) == other;
    return n;
}

/* Steps of the GPU go first: it does them while the CPU computes. Then steps by
 * rows as long as there are any: inside such a region no slice waits. Servers
 * and ranks are waited for when nothing else can be done. */
static fleet_status open_next(scheduler *s, fl_phase phase)
{
    size_t before = s->n;

    FL_TRY(open_region(s, FL_SPLIT_PARTS, phase, FL_ENGINE_GPU));
    if (s->n == before)
        FL_TRY(open_region(s, FL_SPLIT_ROWS, phase, FL_ENGINE_COMPUTE));
    if (s->n == before)
        FL_TRY(open_region(s, FL_SPLIT_PARTS, phase, FL_ENGINE_COMPUTE));
    if (s->n == before)
        FL_TRY(open_region(s, FL_SPLIT_PARTS, phase, FL_ENGINE_COMM));
    return FLEET_OK;
}

static fleet_status schedule_run(scheduler *s, fl_phase phase, fl_phase other)
{
    size_t end = s->n + steps_of_run(s->plan, phase, other);

    while (s->n < end) {
        size_t before = s->n;

        find_wanted(s);
        find_stage(s);
        FL_TRY(open_next(s, phase));
        if (s->n == before && other != phase)
            FL_TRY(open_next(s, other));
        if (s->n == before)
            return fl_fail(FLEET_ESTATE, "a plan's steps wait in a circle");
    }
    return FLEET_OK;
}

static fleet_status schedule_all(scheduler *s)
{
    FL_TRY(schedule_run(s, FL_PULL, FL_PULL));
    FL_TRY(schedule_run(s, FL_PULL_WAIT, FL_PULL_WAIT));
    FL_TRY(schedule_run(s, FL_PREFETCH, FL_PREFETCH));
    FL_TRY(schedule_run(s, FL_FORWARD, FL_REDUCE_BEGIN));
    FL_TRY(schedule_run(s, FL_MERGE, FL_MERGE));
    FL_TRY(schedule_run(s, FL_UPDATE, FL_UPDATE));
    FL_TRY(schedule_run(s, FL_AVERAGE, FL_AVERAGE));
    if (s->n > 0)
        memcpy(s->plan->step, s->order, s->n * sizeof *s->order);
    return FLEET_OK;
}

/* --- a crew's plan -------------------------------------------------------- */

static int root_of(const fl_plan *plan, const fl_operand *o)
{
    return o->value < 0 ? -1 : fl_plan_root(plan, o->value);
}

static bool counts(const fl_plan *plan, const fl_step *s)
{
    for (int i = 0; i < s->n_operand; i++) {
        int root = root_of(plan, &s->operand[i]);

        if (root >= 0 && s->operand[i].mode != FL_READ &&
            plan->value[root].kind == FL_VALUE_STATE)
            return true;
    }
    return false;
}

/* Does a step use what the earlier one makes? */
static bool follows(const fl_plan *plan, const fl_step *earlier,
                    const fl_step *s)
{
    for (int i = 0; i < earlier->n_operand; i++) {
        int root = root_of(plan, &earlier->operand[i]);

        for (int j = 0; root >= 0 && j < s->n_operand; j++)
            if (earlier->operand[i].mode != FL_READ &&
                root_of(plan, &s->operand[j]) == root)
                return true;
    }
    return false;
}

/* Steps that count in a state of the store, and steps that read what these make
 * of it, wait until the members of the crew meet: they then run one member
 * after the other, in the order of the batches. */
static void let_states_wait(const fl_plan *plan)
{
    for (size_t j = 0; plan->crew.n > 1 && j < plan->n_step; j++) {
        fl_step *s = plan->step[j];
        bool waits = counts(plan, s);

        for (size_t i = 0; !waits && i < j; i++)
            waits = plan->step[i]->phase == FL_MERGE && plan->step[i]->node &&
                    follows(plan, plan->step[i], s);
        if (waits && s->phase < FL_MERGE)
            s->phase = FL_MERGE;
    }
}

/* --- the pass ------------------------------------------------------------- */

fleet_status fl_pass_form_regions(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    scheduler s = {.plan = plan};
    fleet_status status = FLEET_ENOMEM;

    *applied = true;
    let_states_wait(plan);
    s.order = fl_alloc_array(plan->n_step, sizeof *s.order);
    s.done = fl_alloc(plan->n_step);
    s.joined = fl_alloc(plan->n_step);
    s.wanted = fl_alloc(plan->n_step);
    if (s.order && s.done && s.joined && s.wanted)
        status = schedule_all(&s);
    fl_free(s.order);
    fl_free(s.done);
    fl_free(s.joined);
    fl_free(s.wanted);
    return status;
}
