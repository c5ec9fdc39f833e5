/* pull.c - pass pull: an iteration begins with a pull of rows, and of dense
 * weights, from the servers, and its forward pass waits for what was pulled. */
#include <string.h>

#include "base/memory.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/remote.h"

/* --- ps.pull, ps.arrive -------------------------------------------------- */

typedef struct pull_config {
    fl_store *store;
    int n_table; /* lookups of the plan */
    bool dense;  /* weights, too */
    bool now;    /* of no version in particular */
} pull_config;

/* What is asked for: one per slot, until it has arrived. */
typedef struct pull {
    fl_pull_now now;
    fl_pull_rows table[];
} pull;

/* Operands of both: the pull, then the lookups; ps.arrive has the weights after
 * them. */
enum { THE_PULL, FIRST_LOOKUP };

static fleet_status pull_run(const fl_instance *in, const fl_range *r)
{
    const pull_config *c = in->step->config;
    fl_remote *x = c->store->remote;
    pull *p = fl_ptr(in, THE_PULL);

    (void)r;
    for (int i = 0; i < c->n_table; i++) {
        fl_lookup *k = fl_ptr(in, FIRST_LOOKUP + i);

        p->table[i].rows = k->rows;
        for (int j = 0; j < FL_N_PART; j++) {
            fl_lookup_part *of = &k->part[j];

            p->table[i].part[j] =
                (fl_pull_part){of->keys.key, of->keys.n, of->value};
        }
    }
    return x->methods->pull(x, p->now.slot, p->table, c->n_table,
                            c->dense && !p->now.rows_alone, p->now.prefetches,
                            c->now);
}

static const fl_kernel kernel_pull = {
    .name = "ps.pull",
    .split = FL_SPLIT_PARTS,
    .run = pull_run,
};

static fleet_status wait_run(const fl_instance *in, const fl_range *r)
{
    const pull_config *c = in->step->config;
    fl_remote *x = c->store->remote;
    const pull *p = fl_ptr(in, THE_PULL);

    (void)r;
    return x->methods->wait_pull(x, p->now.slot);
}

static const fl_kernel kernel_wait = {
    .name = "ps.arrive",
    .split = FL_SPLIT_PARTS,
    .run = wait_run,
};

/* --- the pass ------------------------------------------------------------ */

static bool asks_for_rows(const fl_step *s)
{
    return s->kernel == &fl_kernel_rows_unique;
}

static void add_lookups(const fl_plan *plan, fl_operands *all, fl_mode mode)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (asks_for_rows(plan->step[i]))
            fl_operands_add(all, plan->step[i]->operand[0].value, mode);
}

/* Steps of FL_PULL, with ps.pull after them, come before all other steps: they
 * were emitted last, when all lookups were known. */
static fleet_status put_first(fl_plan *plan)
{
    fl_step **order = fl_alloc_array(plan->n_step, sizeof *order);
    size_t n = 0, last = plan->n_step - 1;

    if (!order)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < last; i++)
        if (plan->step[i]->phase == FL_PULL)
            order[n++] = plan->step[i];
    order[n++] = plan->step[last];
    for (size_t i = 0; i < last; i++)
        if (plan->step[i]->phase != FL_PULL)
            order[n++] = plan->step[i];
    memcpy(plan->step, order, n * sizeof *order);
    fl_free(order);
    return FLEET_OK;
}

static fleet_status emit_pull(fl_lowering *l, const pull_config *like)
{
    const void *c = fl_config(l, like, sizeof *like);
    fl_plan *plan = l->plan;
    fl_operands all;

    FL_TRY(fl_operands_begin(l, &all, 1 + like->n_table + (int)plan->n_dense));
    fl_operands_add(&all, plan->pull, FL_READ_WRITE);
    add_lookups(plan, &all, FL_READ);
    l->phase = FL_PULL;
    fl_emit(l, &kernel_pull, NULL, c, all.o, all.n);
    all.n = 0;
    fl_operands_add(&all, plan->pull, FL_READ);
    add_lookups(plan, &all, FL_READ_WRITE);
    if (like->dense)
        for (size_t i = 0; i < plan->n_dense; i++)
            fl_operands_add(&all, plan->dense[i].weight, FL_READ_WRITE);
    l->phase = plan->crew.n > 1 || plan->syncs ? FL_PULL_WAIT : FL_FORWARD;
    fl_emit(l, &kernel_wait, NULL, c, all.o, all.n);
    return l->status;
}

fleet_status fl_pass_pull(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    pull_config c = {.store = plan->store,
                     .dense =
                         plan->training && fl_remote_has_dense(plan->store),
                     .now = !plan->training};

    for (size_t i = 0; i < plan->n_step; i++)
        c.n_table += asks_for_rows(plan->step[i]);
    if (!plan->store->remote || (c.n_table == 0 && !c.dense))
        return FLEET_OK;
    *applied = true;
    plan->pull = fl_object_per_slot(
        l, "pull", sizeof(pull) + (size_t)c.n_table * sizeof(fl_pull_rows));
    FL_TRY(l->status);
    l->engine = FL_ENGINE_COMM;
    FL_TRY(emit_pull(l, &c));
    l->engine = FL_ENGINE_COMPUTE;
    return put_first(plan);
}
