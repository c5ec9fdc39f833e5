/* drop_dead_steps.c - pass drop_dead_steps: a step whose results are not read,
 * and that changes nothing in the store, is left out. */
#include <string.h>

#include "base/memory.h"
#include "runtime/plan/pass.h"

/* A step is alive if it changes the store, or writes what is read. */
static bool is_alive(const fl_plan *plan, const fl_step *s, const bool *read)
{
    for (int i = 0; i < s->n_operand; i++) {
        const fl_operand *o = &s->operand[i];

        if (o->value >= 0 && o->mode != FL_READ &&
            read[fl_plan_root(plan, o->value)])
            return true;
    }
    return fl_step_changes_store(plan, s) || s->phase >= FL_MERGE;
}

fleet_status fl_pass_drop_dead_steps(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    size_t first = plan->n_step;
    bool *read;

    FL_TRY(FL_NEW(&read, plan->n_value));
    for (size_t i = 0; i < plan->n_value; i++)
        if (plan->value[i].fetched || (int)i == plan->loss)
            read[fl_plan_root(plan, (int)i)] = true;
    for (size_t i = plan->n_step; i-- > 0;) {
        fl_step *s = plan->step[i];

        if (!is_alive(plan, s, read))
            continue;
        for (int j = 0; j < s->n_operand; j++)
            if (s->operand[j].value >= 0 && s->operand[j].mode != FL_WRITE)
                read[fl_plan_root(plan, s->operand[j].value)] = true;
        plan->step[--first] = s;
    }
    *applied = first > 0;
    if (first > 0)
        memmove(plan->step, plan->step + first,
                (plan->n_step - first) * sizeof *plan->step);
    plan->n_step -= first;
    fl_free(read);
    return FLEET_OK;
}
