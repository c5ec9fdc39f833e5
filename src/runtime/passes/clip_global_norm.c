/* clip_global_norm.c - clip by norm, of each parameter by its own or of all by
 * the global one, which is in the order that all topologies share: squares in
 * double, per dense block in index order, per row, rows in key order per
 * (table, bucket); then blocks and buckets in number order, parameters and
 * tables by name. */
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/update_ranges.h"
#include "runtime/plan/remote.h"
#include "runtime/lookup/lookup.h"
#include "runtime/store/norm.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/gradients.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/reduce/clip_remote.h"

/* Operands: update, norms (double, one per block), gradient. */
static fleet_status norm_prepare(fl_instance *in)
{
    in->n_part = ((const fl_norm_config *)in->step->config)->n;
    return FLEET_OK;
}

static fleet_status norm_run(const fl_instance *in, const fl_range *r)
{
    const fl_norm_config *c = in->step->config;
    const fl_norm_block *b = &c->block[r->begin];
    const fl_update_now *now = fl_ptr(in, 0);
    const float *g = (const float *)fl_ptr(in, 2) + b->offset;

    ((double *)fl_ptr(in, 1))[c->at + r->begin] =
        fl_square_sum(g, b->n, now->u.scale);
    return FLEET_OK;
}

static const fl_kernel kernel_norm = {
    .name = "clip.norm",
    .split = FL_SPLIT_PARTS,
    .prepare = norm_prepare,
    .run = norm_run,
};

/* Operands: update, then all norms in their order. config: how many doubles
 * each has. */
static fleet_status clip_run(const fl_instance *in, const fl_range *r)
{
    const int *count = in->step->config;
    fl_update_now *now = fl_ptr(in, 0);
    double sum = 0;

    (void)r;
    for (int i = 1; i < in->step->n_operand; i++) {
        const double *square = fl_ptr(in, i);

        for (int j = 0; j < count[i - 1]; j++)
            sum += square[j];
    }
    now->u.clip = fl_clip_factor(sum, now->optimizer->clip_norm);
    return FLEET_OK;
}

static const fl_kernel kernel_clip = {
    .name = "clip.factor",
    .split = FL_SPLIT_PARTS,
    .run = clip_run,
};

/* --- clip.own: a parameter's gradient, by its own norm -------------------- */

/* Each adds all squares up, so there are not as many parts as blocks. */
static fleet_status own_prepare(fl_instance *in)
{
    enum { MOST_PARTS = 64 };
    int n = ((const fl_norm_config *)in->step->config)->n;

    in->n_part = n < MOST_PARTS ? n : MOST_PARTS;
    return FLEET_OK;
}

static void scale_block(float *gradient, const fl_norm_block *b, float factor)
{
    for (int64_t i = 0; i < b->n; i++)
        gradient[b->offset + i] *= factor;
}

/* Operands: update, norms, gradient. */
static fleet_status own_run(const fl_instance *in, const fl_range *r)
{
    const fl_norm_config *c = in->step->config;
    const fl_update_now *now = fl_ptr(in, 0);
    const double *square = fl_ptr(in, 1);
    double sum = 0;
    float factor;

    for (int i = 0; i < c->all; i++)
        sum += square[i];
    factor = fl_clip_factor(sum, now->optimizer->norm_clip);
    for (int64_t i = r->begin; factor != 1.0f && i < c->n; i += in->n_part)
        scale_block(fl_ptr(in, 2), &c->block[i], factor);
    return FLEET_OK;
}

static const fl_kernel kernel_own = {
    .name = "clip.own",
    .split = FL_SPLIT_PARTS,
    .prepare = own_prepare,
    .run = own_run,
};

/* --- the pass ------------------------------------------------------------ */

typedef struct norms {
    fl_operand *operand; /* of clip.factor: update first */
    int *count;
    fl_param_norm *param; /* of clip.rows: the same, of parameters */
    int n;
} norms;

static void add_norm(norms *all, int value, int count)
{
    all->operand[1 + all->n] = (fl_operand)FL_R(value);
    all->count[all->n++] = count;
}

/* Where the norms of parameters lie. Where ranks share out gradients, each has
 * worked out its own blocks of `mine`, whose rest is zero; `whole` has all. */
typedef struct norm_room {
    int mine, whole; /* values; -1: each parameter has an object of its own */
    int64_t at;      /* doubles that are taken */
} norm_room;

static norm_room room_for(fl_lowering *l, const fleet_var **param, int n)
{
    norm_room room = {-1, -1, 0};
    size_t blocks = 0;

    if (!fl_store_shards_gradients(l->plan->store))
        return room;
    for (int i = 0; i < n; i++)
        blocks += (size_t)fl_blocks_of(
            fl_store_param(l->plan->store, param[i]->name));
    room.mine = fl_object(l, "norms of this rank", blocks * sizeof(double));
    room.whole = fl_object(l, "norms", blocks * sizeof(double));
    return room;
}

/* n more of them: the value to write, and in *whole the value to read. */
static int take_room(fl_lowering *l, norm_room *room, int n, int *whole)
{
    const int64_t size = sizeof(double), at = room->at * size;

    if (room->mine < 0)
        return *whole = fl_object(l, "norms", (size_t)(n * size));
    room->at += n;
    *whole = fl_stretch(l, room->whole, "norms", at, n * size);
    return fl_stretch(l, room->mine, "norms of this rank", at, n * size);
}

static void share_room(fl_lowering *l, const norm_room *room)
{
    if (room->at > 0)
        fl_emit_share_norms(l, room->mine, room->whole);
}

/* The blocks of a parameter that its group's gradient has in this process. */
static fl_norm_config blocks_of(fl_lowering *l, const fl_dense *d,
                                const fl_param *p)
{
    const bool part = fl_store_shards_gradients(l->plan->store);
    fl_norm_config c = {.all = (int)fl_blocks_of(p)};

    c.block =
        fl_arena_alloc(&l->plan->arena, (size_t)c.all * sizeof(fl_norm_block));
    for (int i = 0; c.block && i < c.all; i++) {
        int64_t offset = p->offset + (int64_t)i * FL_BLOCK;

        if (part && offset < d->flat->first)
            c.at++;
        else if (!part || offset < d->flat->end)
            c.block[c.n++] =
                (fl_norm_block){offset - d->first, fl_block_size(p, i)};
    }
    return c;
}

/* *whole: the value that has all its norms, once they are shared. NULL, with
 * the lowering's status, if it fails. */
static const fl_norm_config *emit_norm(fl_lowering *l, norm_room *room,
                                       const fl_dense *d, const fl_param *p,
                                       int *whole)
{
    const fl_norm_config c = blocks_of(l, d, p), *kept;
    int mine;

    if (!c.block) {
        l->status = FLEET_ENOMEM;
        return NULL;
    }
    mine = take_room(l, room, c.all, whole);
    kept = fl_config(l, &c, sizeof c);
    FL_EMIT(l, &kernel_norm, NULL, kept, FL_R(l->plan->update), FL_W(mine),
            FL_R(d->gradient));
    return kept;
}

static void norm_of_param(fl_lowering *l, norms *all, norm_room *room,
                          const fl_dense *d, const fl_param *p)
{
    int value;
    const fl_norm_config *c = emit_norm(l, room, d, p, &value);

    if (!c)
        return;
    all->param[all->n] = (fl_param_norm){p, value};
    add_norm(all, value, c->all);
}

static const fl_dense *dense_of(const fl_plan *plan, const fl_flat *g)
{
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].flat == g)
            return &plan->dense[i];
    return NULL;
}

static int var_by_name(const void *a, const void *b)
{
    return strcmp((*(const fleet_var *const *)a)->name,
                  (*(const fleet_var *const *)b)->name);
}

/* The trained variables of a kind, by name; n of them in the plan's arena.
 * Moving averages are not. */
static const fleet_var **trained_vars(fl_lowering *l, fl_var_kind kind, int *n)
{
    const fleet_program *p = l->program;
    const fleet_var **v =
        fl_arena_alloc(&l->plan->arena, (p->n_var + 1) * sizeof *v);

    *n = 0;
    for (size_t i = 0; v && i < p->n_var; i++)
        if (p->var[i]->kind == kind && p->var[i]->attr.average == 0 &&
            (kind == FL_VAR_TABLE || l->gradient[i] >= 0))
            v[(*n)++] = p->var[i];
    if (*n > 1)
        qsort(v, (size_t)*n, sizeof *v, var_by_name);
    return v;
}

static void norm_of_table(fl_lowering *l, norms *all, const fleet_var *table)
{
    for (size_t i = 0; i < l->plan->n_sparse; i++)
        if (l->plan->sparse[i].table == table) {
            int n, value = fl_lookup_norm(l, &l->plan->sparse[i], &n);

            add_norm(all, value, n);
        }
}

static bool any_is_pushed(const fl_lowering *l)
{
    const fl_map *params = &l->plan->store->params;

    for (size_t i = 0; i < params->n; i++)
        if (fl_is_pushed(l, params->entry[i].value))
            return true;
    return false;
}

/* Ranks that do not know all squares: of rows, and of what is pushed. */
static bool is_of_ranks(const fl_lowering *l)
{
    const fl_store *s = l->plan->store;

    return s->remote && s->dense_local &&
           (l->plan->n_sparse > 0 || any_is_pushed(l));
}

static fleet_status make_room(fl_lowering *l, norms *all, int n)
{
    size_t most = (size_t)n + 1;

    all->operand = fl_arena_alloc(&l->plan->arena, most * sizeof *all->operand);
    all->count = fl_arena_alloc(&l->plan->arena, most * sizeof *all->count);
    all->param = fl_arena_alloc(&l->plan->arena, most * sizeof *all->param);
    return all->operand && all->count && all->param ? FLEET_OK : FLEET_ENOMEM;
}

/* A parameter and its norms. */
typedef struct own_norm {
    const fl_dense *dense;
    const fl_norm_config *config;
    int norms; /* value */
} own_norm;

static void clip_one(fl_lowering *l, const own_norm *one)
{
    if (one->config)
        FL_EMIT(l, &kernel_own, NULL, one->config, FL_R(l->plan->update),
                FL_R(one->norms), FL_RW(one->dense->gradient));
}

/* Each parameter, each table: by what is its own. */
static fleet_status clip_each(fl_lowering *l)
{
    fl_plan *plan = l->plan;
    int n;
    const fleet_var **param = trained_vars(l, FL_VAR_PARAM, &n);
    own_norm *own =
        param ? fl_arena_alloc(&plan->arena, ((size_t)n + 1) * sizeof *own)
              : NULL;
    norm_room room;

    if (!own)
        return FLEET_ENOMEM;
    room = room_for(l, param, n);
    for (int i = 0; i < n; i++) {
        const fl_param *p = fl_store_param(plan->store, param[i]->name);

        own[i].dense = dense_of(plan, p->flat);
        own[i].config = emit_norm(l, &room, own[i].dense, p, &own[i].norms);
        if (room.mine < 0)
            clip_one(l, &own[i]);
    }
    share_room(l, &room);
    for (int i = 0; room.mine >= 0 && i < n; i++)
        clip_one(l, &own[i]);
    for (size_t i = 0; i < plan->n_sparse; i++)
        fl_lookup_clip(l, &plan->sparse[i]);
    return l->status;
}

fleet_status fl_pass_clip_global_norm(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    int n_param = 0, n_table = 0;
    const fleet_var **param, **table;
    norms all = {0};
    norm_room room;

    if (!plan->training || !plan->store->optimizer)
        return FLEET_OK;
    plan->store->optimizer->in_use = true;
    if (plan->store->optimizer->norm_clip > 0) {
        *applied = true;
        l->phase = FL_UPDATE;
        fl_update_value(l);
        return clip_each(l);
    }
    if (plan->store->optimizer->clip_norm <= 0)
        return FLEET_OK;
    if (plan->store->remote && !plan->store->dense_local &&
        plan->store->remote->sync)
        return FLEET_OK; /* the norm is that of all workers' mean */
    *applied = true;
    l->phase = FL_UPDATE;
    fl_update_value(l);
    param = trained_vars(l, FL_VAR_PARAM, &n_param);
    table = trained_vars(l, FL_VAR_TABLE, &n_table);
    FL_TRY(make_room(l, &all, n_param + n_table));
    if (!param || !table)
        return FLEET_ENOMEM;
    room = room_for(l, param, n_param);
    for (int i = 0; i < n_param; i++) {
        const fl_param *p = fl_store_param(plan->store, param[i]->name);

        if (!plan->store->dense_local || !fl_is_pushed(l, p))
            norm_of_param(l, &all, &room, dense_of(plan, p->flat), p);
    }
    share_room(l, &room);
    if (is_of_ranks(l))
        return fl_emit_clip_remote(l, all.param, all.n);
    for (int i = 0; i < n_table; i++)
        norm_of_table(l, &all, table[i]);
    all.operand[0] = (fl_operand)FL_RW(plan->update);
    fl_emit(l, &kernel_clip, NULL, all.count, all.operand, 1 + all.n);
    return l->status;
}
