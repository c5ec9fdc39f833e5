/* store.c - a store gets what programs need: parameters in flat groups, tables,
 * states, and the states of an optimizer. */
#include "runtime/store/store.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/graph/table_options.h"
#include "runtime/store/key_log.h"
#include "runtime/store/store_check.h"
#include "runtime/store/table.h"

fleet_status fl_store_create(fl_context *context, fl_rows_maker *make_rows,
                             fl_store **store)
{
    fl_store *s;

    FL_TRY(FL_NEW(store, sizeof *s));
    s = *store;
    s->context = context;
    s->make_rows = make_rows;
    pthread_rwlock_init(&s->lock, NULL);
    pthread_mutex_init(&s->mirror_lock, NULL);
    return FLEET_OK;
}

static void destroy_group(fl_flat *g)
{
    fl_free(g->weight);
    fl_free(g->own);
    for (int i = 0; i < FL_MAX_STATE; i++)
        fl_free(g->state[i]);
    for (int i = 0; i < 2; i++)
        fl_free(g->residual[i]);
    fl_free(g);
}

static void destroy_table(fl_rows *r)
{
    for (int i = 0; r->life && i < FL_N_PART; i++) {
        fl_free(r->life->scratch[i].fresh);
        fl_free(r->life->scratch[i].strange);
        fl_free(r->life->scratch[i].old);
        fl_free(r->life->scratch[i].block);
    }
    fl_free(r->live);
    r->live = NULL;
    fl_key_log_end(r);
    r->methods->destroy(r);
}

void fl_store_destroy(fl_store *s)
{
    if (!s)
        return;
    fl_mirrors_destroy(s);
    while (s->flats) {
        fl_flat *next = s->flats->next;

        destroy_group(s->flats);
        s->flats = next;
    }
    for (size_t i = 0; i < s->tables.n; i++)
        destroy_table(s->tables.entry[i].value);
    for (size_t i = 0; i < s->states.n; i++)
        fl_free(((fl_state *)s->states.entry[i].value)->data);
    fl_map_done(&s->params);
    fl_map_done(&s->tables);
    fl_map_done(&s->states);
    fl_arena_done(&s->arena);
    pthread_mutex_destroy(&s->mirror_lock);
    pthread_rwlock_destroy(&s->lock);
    fl_free(s);
}

fl_param *fl_store_param(const fl_store *s, const char *name)
{
    return fl_map_get(&s->params, name);
}

fl_rows *fl_store_rows(const fl_store *s, const char *name)
{
    return fl_map_get(&s->tables, name);
}

fl_state *fl_store_state(const fl_store *s, const char *name)
{
    return fl_map_get(&s->states, name);
}

int fl_store_own_tables(const fl_store *s)
{
    int n = 0;

    for (size_t i = 0; i < s->tables.n; i++)
        n += !((const fl_rows *)s->tables.entry[i].value)->remote;
    return n;
}

fleet_status fl_store_reset_states(fl_store *s)
{
    for (size_t i = 0; i < s->states.n; i++) {
        fl_state *state = s->states.entry[i].value;

        FL_TRY(fl_mirror_use(s, state->data, false, true));
        memset(state->data, 0, state->size);
    }
    return FLEET_OK;
}

/* --- adding what a program needs ----------------------------------------- */

fleet_status fl_store_whole(const fl_store *s)
{
    return s->partial
               ? fl_fail(FLEET_ESTATE,
                         "ranks share out the rows of %d tables, and this "
                         "process has its own alone: call this between "
                         "fleet_init_worker() and fleet_stop_worker()",
                         fl_store_own_tables(s))
               : FLEET_OK;
}

fleet_status fl_store_check(const fl_store *s)
{
    if (s->joins)
        return fl_fail(FLEET_ESTATE, "this process is a server: its lanes have "
                                     "the parameters, and no executor runs");
    if (s->half_loaded)
        return fl_fail(FLEET_ESTATE, "a load stopped half-way: the model is in "
                                     "pieces until one succeeds");
    return fl_store_whole(s);
}

/* A table of that name, which is the store's, where v's is. */
static fleet_status make_rows(fl_store *s, const fleet_var *v, const char *name,
                              int64_t dim, const fl_filler *filler, fl_rows **r)
{
    bool remote = s->make_remote_table && fl_table_is_remote(&v->attr);
    int64_t rows = v->shape.dim[0];
    fl_rows_cap cap = {.bytes = v->cap.bytes};

    if (remote)
        return s->make_remote_table(name, dim, rows, filler, r);
    if (cap.bytes == 0 || !s->make_capped)
        return s->make_rows(name, dim, rows, filler, r);
    cap.folder = fl_arena_strdup(&s->arena, v->cap.folder);
    return cap.folder ? s->make_capped(name, dim, rows, filler, &cap, r)
                      : FLEET_ENOMEM;
}

static fleet_status make_table(fl_store *s, const fleet_var *v,
                               const char *name, int64_t dim,
                               const fl_filler *filler, fl_rows **r)
{
    fleet_status status;

    FL_TRY(make_rows(s, v, name, dim, filler, r));
    (*r)->attr = v->attr;
    (*r)->cap_bytes = v->cap.bytes;
    status = fl_map_put(&s->tables, name, *r);
    if (status != FLEET_OK)
        (*r)->methods->destroy(*r);
    return status;
}

static fleet_status name_of_two(const char *name)
{
    return fl_fail(FLEET_EEXIST,
                   "\"%s\" is a table of a program, and the name of what the "
                   "filter of \"%.*s\" counts",
                   name, (int)(strrchr(name, '.') - name), name);
}

/* What a filter counts, from 0 on: a table of that name behind v's. */
static fleet_status add_counts(fl_store *s, const fleet_var *v,
                               const char *suffix, int64_t dim,
                               fl_rows **counts)
{
    const fleet_initializer zero = {.kind = FLEET_INIT_CONSTANT};
    const char *name = fl_arena_format(&s->arena, "%s.%s", v->name, suffix);
    fl_filler filler;

    if (!name)
        return FLEET_ENOMEM;
    if (fl_store_rows(s, name))
        return name_of_two(name);
    filler = fl_filler_make(&zero, 1, 1, s->context->seed, name);
    FL_TRY(make_table(s, v, name, dim, &filler, counts));
    (*counts)->counts = true;
    return FLEET_OK;
}

static fleet_status add_life(fl_store *s, const fleet_var *v, fl_life **made)
{
    const fleet_table_options *o = &v->ids.life;
    fl_life *life;

    *made = NULL;
    if (!fl_table_has_life(o))
        return FLEET_OK;
    life = fl_arena_alloc(&s->arena, sizeof *life);
    if (!life)
        return FLEET_ENOMEM;
    *life = (fl_life){.o = *o};
    FL_TRY(fl_accessor_keep(&s->arena, &life->o.accessor));
    if (o->entry.kind == FLEET_COUNT_FILTER_ENTRY && o->entry.count > 1)
        FL_TRY(add_counts(s, v, "waiting", 1, &life->waiting));
    if (o->entry.kind == FLEET_SHOW_CLICK_ENTRY)
        FL_TRY(add_counts(s, v, "waiting", FL_N_WAITING, &life->waiting));
    if (o->entry.kind == FLEET_BLOOM_FILTER_ENTRY) {
        life->shape = fl_filter_shape_of(&o->entry, FL_N_BUCKET);
        FL_TRY(add_counts(s, v, "filter", life->shape.dim, &life->filter));
    }
    *made = life;
    return FLEET_OK;
}

/* Their ages are read bucket by bucket. */
static fleet_status check_rows_can_go(const fl_rows *r)
{
    if (!r->life || r->remote || fl_is_table(r) ||
        (r->life->o.most_rows == 0 && r->life->o.most_bytes == 0 &&
         r->life->o.ttl_updates == 0 && r->life->o.ttl_seconds == 0 &&
         (r->methods->judge || !fl_rows_has_accessor(r))))
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "table \"%s\" has rows out of memory: limits and times to "
                   "live are for tables that have none",
                   r->name);
}

/* Rows carry the states of the rule that updates them, if any does, and behind
 * them what the accessor counts. */
static fleet_status set_row_states(const fl_store *s, fl_rows *r)
{
    int shown = fl_rows_has_accessor(r) ? FL_N_ACCESSOR : 0;
    const fl_rule *rule;

    if (r->counts)
        return FLEET_OK;
    if (!s->optimizer)
        return shown ? r->methods->set_state(r, 0, shown, 0) : FLEET_OK;
    r->optimizer = fl_optimizer_own(s->optimizer, r->name, false);
    rule = fl_store_row_rule(s, r);
    if (rule && rule->n_row > 0 && r->filler.vector_at > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\": embedx_dim with %s, which keeps numbers "
                       "of a whole row: they would hold what gradients of a "
                       "vector did that is not there",
                       r->name, rule->name);
    return r->methods->set_state(
        r, rule ? rule->n_state : 0, (rule ? rule->n_row : 0) + shown,
        fl_rows_optimizer(s->optimizer, r)->number[FL_FIRST_STATE]);
}

static fleet_status add_table(fl_store *s, const fleet_var *v)
{
    fl_rows *r = fl_store_rows(s, v->name);
    int64_t dim = v->shape.dim[1];
    fl_filler filler = fl_filler_make(&v->attr.initializer, dim, dim,
                                      s->context->seed, v->name);
    fl_life *life;
    const char *name;

    if (r)
        return r->counts ? name_of_two(v->name) : FLEET_OK;
    name = fl_arena_strdup(&s->arena, v->name);
    if (!name)
        return FLEET_ENOMEM;
    FL_TRY(add_life(s, v, &life));
    if (v->ids.life.accessor.embedx_dim > 0)
        filler.vector_at = dim - v->ids.life.accessor.embedx_dim;
    FL_TRY(make_table(s, v, name, dim, &filler, &r));
    r->life = life;
    FL_TRY(check_rows_can_go(r));
    if (v->ids.storage != FLEET_ROW_FLOAT32)
        FL_TRY(r->methods->set_storage(r, v->ids.storage));
    return set_row_states(s, r);
}

static fleet_status add_state(fl_store *s, const fleet_var *v)
{
    fl_state *state = fl_store_state(s, v->name);

    if (state)
        return FLEET_OK;
    state = fl_arena_alloc(&s->arena, sizeof *state);
    if (!state || !(state->name = fl_arena_strdup(&s->arena, v->name)))
        return FLEET_ENOMEM;
    state->dtype = v->dtype;
    state->shape = v->shape;
    state->size =
        (size_t)fl_shape_count(&v->shape, 1) * fleet_dtype_size(v->dtype);
    FL_TRY(FL_NEW(&state->data, state->size));

    fleet_status status = fl_map_put(&s->states, v->name, state);
    if (status != FLEET_OK)
        fl_free(state->data);
    return status;
}

int64_t fl_share_first(const fl_store *s, const fl_flat *g, int rank)
{
    int ranks = fl_store_is_sharded(s) ? s->share.ranks : 1;
    int64_t wanted = (g->n * rank + ranks - 1) / ranks, best = g->n;

    for (size_t i = 0; rank > 0 && i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        int64_t before = wanted > p->offset ? wanted - p->offset : 0;
        int64_t in = (before + FL_BLOCK - 1) / FL_BLOCK * FL_BLOCK;

        /* the parameter's first block from `wanted` on, if it has one */
        if (p->flat == g && in < p->n && p->offset + in < best)
            best = p->offset + in;
    }
    return rank > 0 ? best : 0;
}

static int64_t padded_size(int64_t n)
{
    return (n + 15) / 16 * 16; /* 64 bytes of floats */
}

/* Glorot's and He's fans of a weight [in, out]; a vector has one of each. */
static void fill_first(const fl_store *s, const fl_param *p)
{
    float *weight = p->flat ? p->flat->weight : NULL;
    const fl_shape *shape = &p->shape;
    int64_t in = shape->dim[0];
    int64_t out = shape->n_dim > 1 ? shape->dim[shape->n_dim - 1] : 1;
    fl_filler f = fl_filler_make(&p->attr.initializer, in, out,
                                 s->context->seed, p->name);

    if (!p->block)
        fl_filler_dense(&f, 0, weight + p->offset, p->n);
    for (int64_t b = 0; p->block && b < fl_blocks_of(p); b++)
        if (p->block[b] >= 0)
            fl_filler_dense(&f, b * FL_BLOCK, weight + p->block[b],
                            fl_block_size(p, b));
}

int fl_flat_states(const fl_store *s, const fl_flat *g)
{
    int most = 0;

    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        int n = p->flat == g ? fl_store_states(s, p) : 0;

        most = n > most ? n : most;
    }
    return most;
}

void fl_store_first_states(const fl_store *s, const fl_param *p, float *state,
                           int64_t n)
{
    const float first = fl_param_optimizer(s, p)->number[FL_FIRST_STATE];

    for (int64_t i = 0; i < n; i++)
        state[i] = first;
}

/* The i-th states of the group's blocks of it that are in this process. */
static void first_states_of(const fl_store *s, const fl_flat *g,
                            const fl_param *p, int i)
{
    for (int64_t b = 0; p->flat == g && b < fl_blocks_of(p); b++) {
        int64_t at = fl_block_offset(p, b);

        if (at >= 0 && at >= g->first && at < g->end)
            fl_store_first_states(s, p, g->state[i] + (at - g->first),
                                  fl_block_size(p, b));
    }
}

void fl_store_first_values(const fl_store *s, const fl_param *p)
{
    fill_first(s, p);
    for (int i = 0; p->flat && i < FL_MAX_STATE && p->flat->state[i]; i++)
        first_states_of(s, p->flat, p, i);
}

static fleet_status add_group_states(fl_store *s, fl_flat *g)
{
    const int n_state = fl_flat_states(s, g);
    int64_t n;

    g->first = fl_share_first(s, g, s->share.rank);
    g->end = fl_share_first(s, g, s->share.rank + 1);
    n = g->end - g->first;
    if (fl_store_shards_weights(s) && !g->own)
        FL_TRY(FL_NEW(&g->own, (size_t)(n > 0 ? n : 1) * sizeof(float)));
    for (int i = 0; i < n_state; i++) {
        if (g->state[i])
            continue;
        FL_TRY(FL_NEW(&g->state[i], (size_t)n * sizeof(float)));
        for (size_t k = 0; k < s->params.n; k++)
            first_states_of(s, g, s->params.entry[k].value, i);
    }
    for (int i = 0; i < 2; i++)
        if (s->optimizer->residuals && !g->residual[i])
            FL_TRY(FL_NEW(&g->residual[i], (size_t)g->n * sizeof(float)));
    return FLEET_OK;
}

void fl_store_forget_own(fl_store *s)
{
    s->local = (fl_localsgd){0};
    for (fl_flat *g = s->flats; g; g = g->next)
        for (int i = 0; i < 2; i++)
            if (g->residual[i])
                memset(g->residual[i], 0, (size_t)g->n * sizeof(float));
}

static bool is_new(const fl_store *s, const fleet_var *v)
{
    return v->kind == FL_VAR_PARAM && !fl_store_param(s, v->name);
}

static fl_param param_of(const fleet_var *v)
{
    return (fl_param){.name = v->name,
                      .shape = v->shape,
                      .attr = v->attr,
                      .n = fl_shape_count(&v->shape, 1)};
}

/* Room for the blocks that the store keeps; at[], if it is not NULL, becomes
 * where they are in the group, from offset on. */
static int64_t place_blocks(const fl_store *s, const fl_param *p,
                            int64_t offset, int64_t *at)
{
    int64_t n = 0;

    if (!s->filter.keeps)
        return padded_size(p->n);
    for (int64_t b = 0; b < fl_blocks_of(p); b++) {
        bool keeps = s->filter.keeps(s, s->filter.arg, p, b);

        if (at)
            at[b] = keeps ? offset + n : -1;
        if (keeps)
            n += padded_size(fl_block_size(p, b));
    }
    return n;
}

/* A group with room for the program's new parameters; NULL: the store keeps
 * nothing of them. */
static fleet_status add_group(fl_store *s, const fleet_program *p,
                              fl_flat **group)
{
    fleet_status status;
    fl_flat *g;
    int64_t n = 0;

    *group = NULL;
    for (size_t i = 0; i < p->n_var; i++)
        if (is_new(s, p->var[i])) {
            const fl_param one = param_of(p->var[i]);

            n += place_blocks(s, &one, 0, NULL);
        }
    if (n == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&g, sizeof *g));
    g->n = n;
    status = FL_NEW(&g->weight, (size_t)n * sizeof(float));
    if (status != FLEET_OK) {
        destroy_group(g);
        return status;
    }
    g->next = s->flats;
    *group = s->flats = g;
    return FLEET_OK;
}

static fleet_status add_param(fl_store *s, const fleet_var *v, fl_flat *g,
                              int64_t *offset)
{
    fl_param *p = fl_arena_alloc(&s->arena, sizeof *p);
    size_t blocks;

    if (!p)
        return FLEET_ENOMEM;
    *p = param_of(v);
    p->flat = g;
    if (s->optimizer)
        p->optimizer = fl_optimizer_own(s->optimizer, v->name, true);
    p->offset = *offset;
    p->name = fl_arena_strdup(&s->arena, v->name);
    blocks = (size_t)fl_blocks_of(p);
    if (s->filter.keeps)
        p->block = fl_arena_alloc(&s->arena, (blocks + 1) * sizeof *p->block);
    if (!p->name || (s->filter.keeps && !p->block))
        return FLEET_ENOMEM;
    *offset += place_blocks(s, p, *offset, p->block);
    FL_TRY(fl_map_put(&s->params, v->name, p));
    fill_first(s, p);
    return FLEET_OK;
}

/* The program's new parameters, the last layer first, become one group. */
static fleet_status add_params(fl_store *s, const fleet_program *p)
{
    int64_t offset = 0;
    fl_flat *g;

    FL_TRY(add_group(s, p, &g));
    for (size_t i = p->n_var; i-- > 0;) {
        const fleet_var *v = p->var[i];

        if (!is_new(s, v))
            continue;
        FL_TRY(add_param(s, v, g, &offset));
    }
    return g && s->optimizer ? add_group_states(s, g) : FLEET_OK;
}

static fleet_status add_all(fl_store *s, const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++)
        FL_TRY(fl_store_check_var(s, p->var[i]));
    for (size_t i = 0; i < p->n_var; i++) {
        if (p->var[i]->kind == FL_VAR_TABLE)
            FL_TRY(add_table(s, p->var[i]));
        if (p->var[i]->kind == FL_VAR_STATE)
            FL_TRY(add_state(s, p->var[i]));
    }
    return add_params(s, p);
}

/* By what rows take, now that their states are known. */
static fleet_status bound_tables(const fl_store *s)
{
    for (size_t i = 0; i < s->tables.n; i++)
        FL_TRY(fl_rows_bound(s->tables.entry[i].value));
    return FLEET_OK;
}

fleet_status fl_store_add(fl_store *s, const fleet_program *p)
{
    fleet_status status;

    pthread_rwlock_wrlock(&s->lock);
    status = add_all(s, p);
    if (status == FLEET_OK)
        status = bound_tables(s);
    pthread_rwlock_unlock(&s->lock);
    return status;
}

static fleet_status attach_optimizer(fl_store *s, fleet_optimizer *o)
{
    if (s->optimizer && s->optimizer != o)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "this handle trains with another optimizer already: "
                       "use a second handle for a second optimizer");
    if (!s->optimizer) { /* rows on a GPU have no states yet */
        FL_TRY(fl_store_to_host(s));
        fl_store_written(s);
    }
    s->optimizer = o;
    for (size_t i = 0; i < s->params.n; i++) {
        fl_param *p = s->params.entry[i].value;

        p->optimizer = fl_optimizer_own(o, p->name, true);
    }
    for (fl_flat *g = s->flats; g; g = g->next)
        FL_TRY(add_group_states(s, g));
    for (size_t i = 0; i < s->tables.n; i++)
        FL_TRY(set_row_states(s, s->tables.entry[i].value));
    return FLEET_OK;
}

fleet_status fl_store_train(fl_store *s, fleet_optimizer *o)
{
    fleet_status status;

    pthread_rwlock_wrlock(&s->lock);
    status = attach_optimizer(s, o);
    if (status == FLEET_OK)
        status = bound_tables(s);
    if (status == FLEET_OK && s->plateau.reports > 0) {
        fl_optimizer_resume_plateau(o, &s->plateau);
        s->plateau = (fl_plateau_state){0};
    }
    pthread_rwlock_unlock(&s->lock);
    return status;
}
