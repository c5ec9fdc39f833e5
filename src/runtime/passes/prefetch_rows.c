/* prefetch_rows.c - pass prefetch_rows: rows that come from servers or other
 * ranks are in the GPU's memory before their batch's turn.
 *
 * What a lookup gathers then exists once per slot, in pinned memory and in the
 * GPU's, so that it can be gathered and copied while the iteration before it
 * is computed: exec/prefetch.c does that. The wait for a pull is a phase of
 * its own, since it also brings the weights of the iteration's beginning.
 *
 * Nothing else on the CPU may use what is gathered: if an operator does that
 * is guarded to be on the CPU, or a fetch, all is left as it is.
 */
#include "base/memory.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/copy_steps.h"

/* Of a root: a lookup writes it; the host uses it; it is prefetched. */
enum { GATHERED = 1, USED = 2, PREFETCHED = 4 };

static bool is_gather(const fl_step *s)
{
    return s->kernel == &fl_kernel_rows_gather;
}

static bool is_copy(const fl_step *s)
{
    return s->kernel == &fl_kernel_to_gpu;
}

static void mark_all(const fl_plan *plan, char *mark)
{
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand && !is_copy(s); j++) {
            const fl_operand *o = &s->operand[j];

            if (o->value >= 0)
                mark[fl_plan_root(plan, o->value)] |=
                    is_gather(s) && o->mode != FL_READ ? GATHERED : USED;
        }
    }
    for (size_t i = 0; i < plan->n_value; i++)
        if (plan->value[i].fetched)
            mark[fl_plan_root(plan, (int)i)] |= USED;
}

/* Something is gathered, and all of it goes to the GPU. */
static bool is_all_for_gpu(const fl_plan *plan, const char *mark)
{
    bool any = false;

    for (size_t i = 0; i < plan->n_value; i++)
        if (mark[i] & GATHERED) {
            any = true;
            if (mark[i] & USED || plan->value[i].on_gpu ||
                plan->value[i].kind != FL_VALUE_TEMP)
                return false;
        }
    return any;
}

static void set_phases(fl_plan *plan, char *mark)
{
    for (size_t i = 0; i < plan->n_step; i++) {
        fl_step *s = plan->step[i];

        if (s->engine == FL_ENGINE_COMM && s->phase == FL_FORWARD &&
            !s->kernel->meets) /* ranks have not agreed yet to meet */
            s->phase = FL_PULL_WAIT;
        if (is_gather(s) || s->kernel == &fl_kernel_rows_place)
            s->phase = FL_PREFETCH;
        /* is it what a lookup has gathered, for the GPU alone? */
        if (!is_copy(s) ||
            !(mark[fl_plan_root(plan, s->operand[1].value)] & GATHERED))
            continue;
        s->phase = FL_PREFETCH;
        for (int j = 0; j < s->n_operand; j++)
            mark[fl_plan_root(plan, s->operand[j].value)] |= PREFETCHED;
    }
}

static void keep_prefetched(fl_plan *plan, const char *mark)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (mark[v->root] & PREFETCHED) {
            v->kind = FL_VALUE_PERSISTENT;
            v->per_slot = true;
        }
    }
}

fleet_status fl_pass_prefetch_rows(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    char *mark;

    if (!plan->place->gpu || !plan->training || plan->pull < 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&mark, plan->n_value));
    mark_all(plan, mark);
    *applied = plan->prefetches_rows = is_all_for_gpu(plan, mark);
    if (*applied) {
        set_phases(plan, mark);
        keep_prefetched(plan, mark);
    }
    fl_free(mark);
    return FLEET_OK;
}
