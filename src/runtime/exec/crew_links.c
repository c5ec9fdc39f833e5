/* crew_links.c - operands of a member's plan, led to the first member's sums,
 * or to copies of the dense weights; locks of lookups. */
#include "runtime/exec/crew_links.h"

#include "runtime/lookup/lookup_data.h"

void fl_crew_link_sums(fl_compiled *c, const fl_compiled *to)
{
    const fl_plan *plan = c->plan;

    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; s->phase == FL_MERGE && j < s->n_operand; j++) {
            int value = s->operand[j].value;
            const fl_value *v =
                value < 0 ? NULL : &plan->value[fl_plan_root(plan, value)];

            if (v && v->merged)
                c->instance[i].arg[j].base = &to->base[v->base];
        }
    }
}

/* Where the copy is of what a value has in the store; NULL: it is no weight. */
static char *const *copy_of(const fl_plan *plan, int value, char *const *weight)
{
    const fl_value *v =
        value < 0 ? NULL : &plan->value[fl_plan_root(plan, value)];

    if (!v || v->kind != FL_VALUE_PARAM)
        return NULL;
    for (const fl_flat *g = plan->store->flats; g; g = g->next, weight++)
        if (v->pointer == (void *)g->weight)
            return weight;
    return NULL;
}

static int number_of(const fl_store *s, const fl_rows *rows)
{
    for (size_t i = 0; i < s->tables.n; i++)
        if (s->tables.entry[i].value == rows)
            return (int)i;
    return -1;
}

void fl_crew_link_copies(fl_compiled *c, fl_hogwild *h, char *const *weight)
{
    const fl_plan *plan = c->plan;
    fl_update_now *now = fl_compiled_pointer(c, plan->update);

    if (now->hogwild == h)
        return; /* a round before this one's has done it */
    now->hogwild = h;
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; s->phase < FL_UPDATE && j < s->n_operand; j++) {
            char *const *copy = copy_of(plan, s->operand[j].value, weight);

            if (copy)
                c->instance[i].arg[j].base = copy;
        }
    }
    for (size_t i = 0; i < plan->n_sparse; i++) {
        fl_lookup *k = fl_compiled_pointer(c, plan->sparse[i].lookup);
        int table = number_of(plan->store, k->rows);

        k->lock = table < 0 ? NULL : h->part[table];
    }
}
