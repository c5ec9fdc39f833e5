/* push.c - pass push: an update ends with a push of gradients to the
 * servers. */
#include "runtime/plan/pass.h"
#include "runtime/reduce/push_args.h"

static fleet_status push_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, FL_PUSH_UPDATE);
    const fl_push_args *c = in->step->config;
    fl_remote *x = c->store->remote;
    fl_push p;

    (void)r;
    if (!fl_remote_gets_update(c->store, now->skip))
        return FLEET_OK;
    FL_TRY(fl_push_of(in, c, &p));
    return x->methods->push(x, &p);
}

static const fl_kernel kernel_push = {
    .name = "ps.push",
    .split = FL_SPLIT_PARTS,
    .run = push_run,
};

fleet_status fl_pass_push(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    fl_push_args c = fl_push_args_of(l);
    bool dense = fl_remote_has_dense(plan->store);
    fl_operands all;

    if (!plan->training || !plan->store->remote ||
        (!dense && plan->n_sparse == 0))
        return FLEET_OK;
    *applied = true;
    FL_TRY(fl_operands_begin(l, &all, fl_push_most_operands(plan)));
    fl_operands_add(&all, fl_update_value(l), FL_READ);
    fl_operands_add(&all, -1, FL_WRITE); /* the room: fl_push_add_room() */
    if (dense)
        FL_TRY(fl_push_add_params(l, &all, &c));
    fl_push_add_tables(plan, &all, &c);
    for (size_t i = 0; dense && i < plan->n_dense; i++)
        fl_operands_add(&all, plan->dense[i].weight, FL_READ_WRITE);
    fl_push_add_gradients(plan, &all);
    fl_push_add_room(l, &all, &c);
    l->phase = FL_UPDATE;
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_push, NULL, fl_config(l, &c, sizeof c), all.o, all.n);
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}
