/* push_pull.c - the steps that talk to an exchange, and the passes that put them
 * into a plan; see remote.h and lookup.h. */
#include "runtime/plan/remote.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/lookup/lookup.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/store/norm.h"
#include "runtime/plan/pass.h"
#include "runtime/device/comm.h"
#include "runtime/passes/update.h"

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

static void ask(fl_lookup *k, fl_pull_rows *table)
{
    table->rows = k->rows;
    for (int i = 0; i < FL_N_PART; i++) {
        fl_lookup_part *p = &k->part[i];

        table->part[i] = (fl_pull_part){p->keys.key, p->keys.n, p->value};
    }
}

static fleet_status pull_run(const fl_instance *in, const fl_range *r)
{
    const pull_config *c = in->step->config;
    fl_remote *x = c->store->remote;
    pull *p = fl_ptr(in, THE_PULL);

    (void)r;
    for (int i = 0; i < c->n_table; i++)
        ask(fl_ptr(in, FIRST_LOOKUP + i), &p->table[i]);
    return x->methods->pull(x, p->now.slot, p->table, c->n_table, c->dense,
                            p->now.prefetches, c->now);
}

static const fl_kernel kernel_pull = {
    .name = "ps.pull",
    .split = FL_SPLIT_PARTS,
    .run = pull_run,
};

static fleet_status arrive_run(const fl_instance *in, const fl_range *r)
{
    const pull_config *c = in->step->config;
    fl_remote *x = c->store->remote;
    const pull *p = fl_ptr(in, THE_PULL);

    (void)r;
    return x->methods->wait_pull(x, p->now.slot);
}

static const fl_kernel kernel_arrive = {
    .name = "ps.arrive",
    .split = FL_SPLIT_PARTS,
    .run = arrive_run,
};

bool fl_remote_is_told(const fl_store *s, bool skipped)
{
    return !skipped || (s->remote->sync && !s->dense_local);
}

/* --- ps.push ------------------------------------------------------------- */

typedef struct push_config {
    fl_store *store;
    bool average; /* over the batches of a merge group */
    bool sum;     /* over ranks, not averaged */
    bool merged;  /* tables' gradients are merged sums */
    const fl_param **param;
    int *gradient; /* of each: which operand its group's is */
    int n_param;
    int first_table; /* operand: the lookup with the sums */
    int n_table;
} push_config;

/* Operands: the update, room for what is sent, the groups' gradients, the
 * lookups, the weights, and the gradients that sums may lie in. */
enum { THE_UPDATE, THE_ROOM, FIRST_GRADIENT };

static size_t room_for(const push_config *c)
{
    return (size_t)c->n_table * sizeof(fl_push_rows) +
           (size_t)c->n_param * sizeof(fl_push_param) + 1;
}

static fleet_status bring_rows(fl_lookup *k, bool merged, fl_push_rows *table)
{
    table->rows = k->rows;
    for (int i = 0; i < FL_N_PART; i++) {
        fl_lookup_part *p = &k->part[i];

        if (merged) {
            FL_TRY(fl_lookup_point_to_sums(k, p));
            table->part[i] =
                (fl_push_part){p->merged.n, p->merged.key, NULL, p->grad};
        } else {
            table->part[i] =
                (fl_push_part){p->n_grad, p->keys.key, p->which, p->grad};
        }
    }
    return FLEET_OK;
}

static void bring_params(const fl_instance *in, const push_config *c,
                         fl_push_param *param)
{
    for (int i = 0; i < c->n_param; i++) {
        const float *group = fl_ptr(in, c->gradient[i]);

        param[i] = (fl_push_param){c->param[i], group + c->param[i]->offset};
    }
}

/* Of this worker. In sync they are added up over the workers: where their
 * gradients are summed, one rank says what to divide by. */
static int batches_of(const push_config *c, const fl_update_now *now)
{
    if (c->sum && c->store->remote->sync)
        return c->store->agree->comm->rank == 0 ? now->batches : 0;
    return now->joins || now->skip ? 0 : c->average ? now->micro : 1;
}

static fleet_status make_push(const fl_instance *in, const push_config *c,
                              fl_push *p)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_push_rows *table = fl_ptr(in, THE_ROOM);
    fl_push_param *param = (fl_push_param *)(void *)(table + c->n_table);

    bool brings = !now->joins && !now->skip;

    bring_params(in, c, param);
    for (int i = 0; brings && i < c->n_table; i++)
        FL_TRY(
            bring_rows(fl_ptr(in, c->first_table + i), c->merged, &table[i]));
    *p = (fl_push){
        .param = param,
        .n_param = brings ? c->n_param : 0,
        .table = table,
        .n_table = brings ? c->n_table : 0,
        .n_batch = batches_of(c, now),
        .learning_rate = now->u.lr,
        .clip = now->u.clip,
        .update = &now->u,
        .loss_scale = now->loss_scale,
    };
    return FLEET_OK;
}

static fleet_status push_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const push_config *c = in->step->config;
    fl_remote *x = c->store->remote;
    fl_push p;

    (void)r;
    if (!fl_remote_is_told(c->store, now->skip))
        return FLEET_OK;
    FL_TRY(make_push(in, c, &p));
    return x->methods->push(x, &p);
}

static const fl_kernel kernel_push = {
    .name = "ps.push",
    .split = FL_SPLIT_PARTS,
    .run = push_run,
};

/* --- clip.rows ----------------------------------------------------------- */

typedef struct clip_config {
    push_config push;
    int first_norm; /* operand: squares of the dense gradients, in their order
                     */
    int n_norm;
    const int *count; /* doubles of each */
} clip_config;

/* A table's rows of all parts; for fl_free(). */
static fl_norm_row *all_rows(const fl_push_rows *t, int64_t *n)
{
    int64_t most = 0;
    fl_norm_row *row;

    for (int i = 0; i < FL_N_PART; i++)
        most += t->part[i].n;
    row = fl_alloc_array((size_t)most + 1, sizeof *row);
    *n = 0;
    for (int i = 0; row && i < FL_N_PART; i++) {
        const fl_push_part *p = &t->part[i];

        for (int64_t k = 0; k < p->n; k++)
            row[(*n)++] =
                fl_norm_row_of(p->key[p->which ? p->which[k] : k], p->grad[k]);
    }
    return row;
}

/* Squares of this worker's own rows, of the mean over its batches. */
static fleet_status own_squares(const fl_push *p, double *sum)
{
    float scale = p->n_batch > 0 ? fl_push_factor(p) / (float)p->n_batch : 0.0f;

    *sum = 0;
    for (int t = 0; t < p->n_table; t++) {
        int64_t n;
        fl_norm_row *row = all_rows(&p->table[t], &n);

        if (!row)
            return FLEET_ENOMEM;
        fl_norm_sort(row, n);
        for (int64_t k = 0; k < n; k++)
            *sum += fl_square_sum(row[k].grad, p->table[t].rows->dim, scale);
        fl_free(row);
    }
    return FLEET_OK;
}

/* In async rows for servers are never added up; dense weights have one factor
 * all the same: by the mean of the ranks' squares. */
static fleet_status clip_alone(const fl_store *s, const fl_push *p,
                               double squares, float *factor)
{
    fl_comm *peers = s->agree->comm;
    double sum[2] = {0, p->n_batch > 0};

    FL_TRY(own_squares(p, &sum[0]));
    FL_TRY(peers->methods->all_reduce(peers, FL_ALL_SUM, FL_WIRE_F64, sum, sum,
                                      2, NULL));
    *factor =
        fl_clip_factor(squares + sum[0] / sum[1], s->optimizer->clip_norm);
    return FLEET_OK;
}

/* Before the update: in sync, and in ranks' own tables always. */
static bool rows_are_added_up(const fl_store *s)
{
    return s->remote->sync || fl_store_own_tables(s) > 0;
}

static fleet_status clip_run(const fl_instance *in, const fl_range *r)
{
    const clip_config *c = in->step->config;
    fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const fl_store *s = c->push.store;
    double squares = 0;
    fl_push p;

    (void)r;
    if (now->skip)
        return FLEET_OK;
    for (int i = 0; i < c->n_norm; i++)
        for (int j = 0; j < c->count[i]; j++)
            squares += ((const double *)fl_ptr(in, c->first_norm + i))[j];
    FL_TRY(make_push(in, &c->push, &p));
    return rows_are_added_up(s)
               ? s->remote->methods->clip(s->remote, &p, squares, &now->u.clip)
               : clip_alone(s, &p, squares, &now->u.clip);
}

static const fl_kernel kernel_clip = {
    .name = "clip.rows",
    .split = FL_SPLIT_PARTS,
    .run = clip_run,
};

/* --- passes -------------------------------------------------------------- */

/* Operands that are collected; room for `most`. */
typedef struct operands {
    fl_operand *o;
    int n;
} operands;

static fleet_status make_room(fl_lowering *l, operands *all, size_t most)
{
    *all =
        (operands){fl_arena_alloc(&l->plan->arena, most * sizeof *all->o), 0};
    return all->o ? FLEET_OK : FLEET_ENOMEM;
}

static void add(operands *all, int value, fl_mode mode)
{
    all->o[all->n++] = (fl_operand){value, mode};
}

static void add_weights(const fl_plan *plan, operands *all)
{
    for (size_t i = 0; i < plan->n_dense; i++)
        add(all, plan->dense[i].weight, FL_READ_WRITE);
}

bool fl_keeps_dense(const fl_store *s)
{
    bool any = !s->dense_local;

    for (size_t i = 0; !any && i < s->params.n; i++)
        any = fl_param_is_remote(s, s->params.entry[i].value);
    return any && s->remote;
}

static bool asks_for_rows(const fl_step *s)
{
    return s->kernel == &fl_kernel_rows_unique;
}

static void add_lookups(const fl_plan *plan, operands *all, fl_mode mode)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (asks_for_rows(plan->step[i]))
            add(all, plan->step[i]->operand[0].value, mode);
}

static int count_lookups(const fl_plan *plan)
{
    int n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        n += asks_for_rows(plan->step[i]);
    return n;
}

/* Pulls and, after them, the step that came last: they were made when all that
 * they concern was known, and come before it. */
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
    operands all;

    FL_TRY(make_room(l, &all, 1 + (size_t)like->n_table + plan->n_dense));
    add(&all, plan->pull, FL_READ_WRITE);
    add_lookups(plan, &all, FL_READ);
    l->phase = FL_PULL;
    fl_emit(l, &kernel_pull, NULL, c, all.o, all.n);
    all.n = 0;
    add(&all, plan->pull, FL_READ);
    add_lookups(plan, &all, FL_READ_WRITE);
    if (like->dense)
        add_weights(plan, &all);
    l->phase = FL_FORWARD;
    fl_emit(l, &kernel_arrive, NULL, c, all.o, all.n);
    return l->status;
}

fleet_status fl_pass_pull(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    pull_config c = {.store = plan->store,
                     .n_table = count_lookups(plan),
                     .dense = plan->training && fl_keeps_dense(plan->store),
                     .now = !plan->training};

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

/* The groups' gradients; which operand is whose. */
static fleet_status add_params(fl_lowering *l, operands *all, push_config *c)
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
                c->gradient[c->n_param] = FIRST_GRADIENT + (int)d;
        c->n_param++;
    }
    for (size_t d = 0; d < plan->n_dense; d++)
        add(all, plan->dense[d].gradient, FL_READ);
    return FLEET_OK;
}

static void add_tables(const fl_plan *plan, operands *all, push_config *c)
{
    c->first_table = all->n;
    c->n_table = (int)plan->n_sparse;
    for (size_t i = 0; i < plan->n_sparse; i++)
        add(all, fl_lookup_sums(&plan->sparse[i]), FL_READ_WRITE);
}

/* Sums may lie in the outputs' gradients: these live on. */
static void add_gradients(const fl_plan *plan, operands *all)
{
    for (size_t i = 0; i < plan->n_sparse; i++)
        for (int j = 0; j < plan->sparse[i].n_gradient; j++)
            add(all, plan->sparse[i].gradient[j].value, FL_READ);
}

static size_t most_operands(const fl_plan *plan)
{
    size_t n = FIRST_GRADIENT + 2 * plan->n_dense + plan->n_sparse;

    for (size_t i = 0; i < plan->n_sparse; i++)
        n += (size_t)plan->sparse[i].n_gradient;
    return n;
}

static push_config push_config_of(const fl_lowering *l)
{
    return (push_config){.store = l->plan->store,
                         .average = l->program->training.merge_average,
                         .sum = l->plan->store->agree &&
                                l->program->training.sum_over_ranks,
                         .merged = l->program->training.merge_steps > 1};
}

fleet_status fl_emit_clip_rows(fl_lowering *l, const fl_operand *norm,
                               const int *count, int n)
{
    clip_config c = {.push = push_config_of(l), .n_norm = n, .count = count};
    operands all;

    FL_TRY(make_room(l, &all, most_operands(l->plan) + (size_t)n));
    add(&all, fl_update_value(l), FL_READ_WRITE);
    add(&all, -1, FL_WRITE); /* the room: known in a moment */
    add_tables(l->plan, &all, &c.push);
    c.first_norm = all.n;
    for (int i = 0; i < n; i++)
        add(&all, norm[i].value, FL_READ);
    add_gradients(l->plan, &all);
    all.o[THE_ROOM].value = fl_object(l, "push", room_for(&c.push));
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_clip, NULL, fl_config(l, &c, sizeof c), all.o, all.n);
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}

fleet_status fl_pass_push(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    push_config c = push_config_of(l);
    bool dense = fl_keeps_dense(plan->store);
    operands all;

    if (!plan->training || !plan->store->remote ||
        (!dense && plan->n_sparse == 0))
        return FLEET_OK;
    *applied = true;
    FL_TRY(make_room(l, &all, most_operands(plan)));
    add(&all, fl_update_value(l), FL_READ);
    add(&all, -1, FL_WRITE); /* the room: known in a moment */
    if (dense)
        FL_TRY(add_params(l, &all, &c));
    add_tables(plan, &all, &c);
    if (dense)
        add_weights(plan, &all);
    add_gradients(plan, &all);
    all.o[THE_ROOM].value = fl_object(l, "push", room_for(&c));
    l->phase = FL_UPDATE;
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_push, NULL, fl_config(l, &c, sizeof c), all.o, all.n);
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}
