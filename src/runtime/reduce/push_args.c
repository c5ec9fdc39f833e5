/* push_args.c - from the operands of a step to an fl_push. */
#include "runtime/reduce/push_args.h"

#include "runtime/plan/agree.h"
#include "runtime/lookup/lookup.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/plan/gradients.h"
#include "runtime/lookup/lookup_backward.h"

/* --- when a step runs ---------------------------------------------------- */

static fleet_status bring_rows(fl_lookup *k, bool merged, fl_push_rows *table)
{
    table->rows = k->rows;
    for (int i = 0; i < FL_N_PART; i++) {
        fl_lookup_part *p = &k->part[i];

        if (merged) {
            FL_TRY(fl_lookup_point_to_sums(k, p));
            table->part[i] = (fl_push_part){p->merged.keys.n,
                                            p->merged.keys.key, NULL, p->grad};
        } else {
            table->part[i] =
                (fl_push_part){p->n_grad, p->keys.key, p->which, p->grad};
        }
    }
    return FLEET_OK;
}

/* Of this worker. In sync they are added up over the workers: where their
 * gradients are summed, one rank says what to divide by. */
static int batches_of(const fl_push_args *c, const fl_update_now *now)
{
    if (c->sum && c->store->remote->sync)
        return c->store->agree->comm->rank == 0 ? now->batches : 0;
    return now->joins || now->skip || c->store->counts_no_batch ? 0
           : c->average                                         ? now->micro
                                                                : 1;
}

/* In sync servers divide by the batches of all, as `update` does; in async
 * each push is applied by itself. */
static float mean_of(const fl_push_args *c, const fl_update_now *now)
{
    if (c->store->remote->sync)
        return now->u.mean / now->u.scale;
    return c->average || now->micro < 1 ? 1.0f : 1.0f / (float)now->micro;
}

fleet_status fl_push_of(const fl_instance *in, const fl_push_args *c,
                        fl_push *p)
{
    const fl_update_now *now = fl_ptr(in, FL_PUSH_UPDATE);
    fl_push_rows *table = fl_ptr(in, FL_PUSH_ROOM);
    fl_push_param *param = (fl_push_param *)(void *)(table + c->n_table);
    bool brings = !now->joins && !now->skip;

    for (int i = 0; i < c->n_param; i++)
        param[i] = (fl_push_param){c->param[i],
                                   (const float *)fl_ptr(in, c->gradient[i]) +
                                       c->param[i]->offset};
    for (int i = 0; brings && i < c->n_table; i++)
        FL_TRY(
            bring_rows(fl_ptr(in, c->first_table + i), c->merged, &table[i]));
    *p = (fl_push){
        .param = param,
        .n_param = brings ? c->n_param : 0,
        .table = table,
        .n_table = brings ? c->n_table : 0,
        .n_batch = batches_of(c, now),
        .settings = fl_update_settings_of(now->optimizer, &now->u),
        .clip = now->u.clip,
        .update = &now->u,
        .loss_scale = now->loss_scale,
        .mean = mean_of(c, now),
    };
    return FLEET_OK;
}

/* --- when it is put into a plan ------------------------------------------ */

fleet_status fl_push_add_params(fl_lowering *l, fl_operands *all,
                                fl_push_args *c)
{
    fl_plan *plan = l->plan;
    const fl_map *params = &plan->store->params;

    c->param = fl_arena_alloc(&plan->arena, (params->n + 1) * sizeof *c->param);
    c->gradient =
        fl_arena_alloc(&plan->arena, (params->n + 1) * sizeof *c->gradient);
    if (!c->param || !c->gradient)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (!fl_is_pushed(l, p))
            continue;
        c->param[c->n_param] = p;
        for (size_t d = 0; d < plan->n_dense; d++)
            if (plan->dense[d].flat == p->flat)
                c->gradient[c->n_param] = FL_PUSH_GRADIENT + (int)d;
        c->n_param++;
    }
    for (size_t d = 0; d < plan->n_dense; d++)
        fl_operands_add(all, plan->dense[d].gradient, FL_READ);
    return FLEET_OK;
}

void fl_push_add_tables(const fl_plan *plan, fl_operands *all, fl_push_args *c)
{
    c->first_table = all->n;
    c->n_table = (int)plan->n_sparse;
    for (size_t i = 0; i < plan->n_sparse; i++)
        fl_operands_add(all, fl_lookup_sums(&plan->sparse[i]), FL_READ_WRITE);
}

void fl_push_add_gradients(const fl_plan *plan, fl_operands *all)
{
    for (size_t i = 0; i < plan->n_sparse; i++)
        for (int j = 0; j < plan->sparse[i].n_gradient; j++)
            fl_operands_add(all, plan->sparse[i].gradient[j].value, FL_READ);
}

int fl_push_most_operands(const fl_plan *plan)
{
    int n = FL_PUSH_GRADIENT + 2 * (int)plan->n_dense + (int)plan->n_sparse;

    for (size_t i = 0; i < plan->n_sparse; i++)
        n += plan->sparse[i].n_gradient;
    return n;
}

fl_push_args fl_push_args_of(const fl_lowering *l)
{
    const fl_training *t = &l->program->training;

    return (fl_push_args){.store = l->plan->store,
                          .average = t->merge.steps == 1 || t->merge.average,
                          .sum = l->plan->store->agree && t->sum_over_ranks,
                          .merged = l->plan->group > 1};
}

void fl_push_add_room(fl_lowering *l, fl_operands *all, const fl_push_args *c)
{
    size_t bytes = (size_t)c->n_table * sizeof(fl_push_rows) +
                   (size_t)c->n_param * sizeof(fl_push_param) + 1;

    all->o[FL_PUSH_ROOM].value = fl_object(l, "push", bytes);
}
