/* geo.c - a worker's copies, and their updates. */
#include "ps/worker/geo_internal.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"

/* --- copies --------------------------------------------------------------- */

/* Where nothing was trained since the push the copy becomes what has come, to
 * the bit. */
void fl_geo_merge(float *restrict copy, float *restrict base,
                  const float *restrict now, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float moved = copy[i] + (now[i] - base[i]);

        copy[i] = copy[i] == base[i] ? now[i] : moved;
        base[i] = now[i];
    }
}

void fl_geo_take_block(fl_worker *w, uint64_t key, const float *values)
{
    fl_block_place at = fl_block_at(&w->layout, key);
    int64_t first = (int64_t)(key & UINT32_MAX) * FL_BLOCK;

    fl_geo_merge(at.weight, w->geo->param[key >> 32].base + first, values,
                 (int64_t)(at.bytes / sizeof *values));
}

fleet_status fl_geo_copy_rows(fl_rows *rows, const uint64_t *key,
                              const float *const *now, int64_t n)
{
    size_t bytes = (size_t)rows->dim * sizeof(float);

    for (int64_t i = 0; i < n; i++) {
        float *row;

        FL_TRY(rows->methods->find(rows, &key[i], 1, &row));
        if (row)
            continue;
        FL_TRY(rows->methods->make(rows, &key[i], 1, &row));
        memcpy(row, now[i], bytes);
        memcpy(fl_geo_base(rows, row), now[i], bytes);
    }
    return FLEET_OK;
}

/* --- updates -------------------------------------------------------------- */

static void update_param(fl_worker *w, const fl_update *all,
                         const fl_push_param *p)
{
    const fleet_optimizer *o = fl_param_optimizer(w->layout.store, p->param);
    fl_update u = fl_own_update(p->param->optimizer, &p->param->attr, all,
                                w->remote.updates);

    for (int i = 0; i < w->layout.n_param; i++)
        if (w->layout.param[i] == p->param)
            fl_optimizer_dense(o, &p->param->attr)(
                &u, p->param->flat->weight + p->param->offset, p->grad,
                w->geo->param[i].state, p->param->n);
}

/* Samples count as often as they were trained: no number is shared out over
 * workers. */
static void count_pushed(const fl_geo_table *t, float *row, const float *grad,
                         bool first)
{
    int64_t dim = t->rows->dim;
    float *sum = fl_geo_pushed(t->rows, row);

    if (first)
        memcpy(sum, grad + dim, FL_N_PUSHED * sizeof *sum);
    else
        fl_add_pushed(t->of, sum - dim, sum - dim, grad);
}

/* Rows that were not updated since they were pushed are listed for the next
 * push. */
static fleet_status list_updated(fl_geo_table *t, uint64_t key, float *row,
                                 const float *grad)
{
    bool first = fl_row_of(row)->changed_at == 0;

    if (first) {
        FL_TRY(fl_grow(&t->updated, &t->capacity, (size_t)t->n_updated + 1,
                       sizeof *t->updated));
        t->updated[t->n_updated++] = (fl_geo_row){key, row};
    }
    if (fl_rows_has_accessor(t->of))
        count_pushed(t, row, grad, first);
    return FLEET_OK;
}

enum { CHUNK = 256 };

static fleet_status update_chunk(const fl_worker *w, const fl_update *u,
                                 fl_geo_table *t, const fl_push_part *part,
                                 int64_t first, int64_t n)
{
    float *row[CHUNK] = {NULL};
    uint64_t key[CHUNK];

    for (int64_t i = 0; i < n; i++) {
        int64_t at = first + i;

        key[i] = part->key[part->which ? part->which[at] : at];
    }
    FL_TRY(t->rows->methods->find(t->rows, key, n, row));
    for (int64_t i = 0; i < n; i++) {
        if (!row[i])
            return fl_fail(FLEET_ESTATE,
                           "a row of table \"%s\" is updated, and this worker "
                           "has no copy of it: a load came between its pull "
                           "and its push",
                           t->rows->name);
        FL_TRY(list_updated(t, key[i], row[i], part->grad[first + i]));
    }
    fl_rows_change(t->rows, w->layout.store->optimizer, u, key, row,
                   part->grad + first, n);
    return FLEET_OK;
}

static fleet_status update_rows(fl_worker *w, const fl_update *all,
                                const fl_push_rows *p)
{
    fl_update u = fl_rows_update(p->rows, all, w->remote.updates);
    fl_geo_table *t = NULL;

    for (int i = 0; i < w->layout.n_table; i++)
        if (w->layout.table[i] == p->rows)
            t = &w->geo->table[i];
    for (int i = 0; t && i < FL_N_PART; i++)
        for (int64_t j = 0, n; j < p->part[i].n; j += n) {
            n = p->part[i].n - j < CHUNK ? p->part[i].n - j : CHUNK;
            FL_TRY(update_chunk(w, &u, t, &p->part[i], j, n));
        }
    return FLEET_OK;
}

/* As a server in async would make it, of this worker's updates alone. */
static fleet_status update_copies(fl_worker *w, const fl_push *p)
{
    fl_geo *g = w->geo;
    fl_update u = {0};

    fl_optimizer_update(w->layout.store->optimizer, w->remote.updates,
                        p->n_batch, &u);
    fl_update_settings_apply(&p->settings, &u);
    u.clip = p->clip;
    u.scale *= fl_push_factor(p);
    u.mean = u.scale * fl_push_mean(p);
    u.version = ++g->tick;
    g->settings = p->settings;
    for (int i = 0; i < p->n_param; i++)
        update_param(w, &u, &p->param[i]);
    for (int i = 0; i < p->n_table; i++)
        FL_TRY(update_rows(w, &u, &p->table[i]));
    w->remote.updates++;
    return FLEET_OK;
}

/* --- the remote's methods ------------------------------------------------- */

/* An exchange that has come is taken; when the next one is due it is waited
 * for. */
static fleet_status geo_push(fl_remote *x, const fl_push *p)
{
    fl_worker *w = (fl_worker *)(void *)x;
    fl_geo *g = w->geo;

    FL_TRY(fl_client_status(w->client));
    if (p->n_batch == 0)
        return FLEET_OK;
    FL_TRY(update_copies(w, p));
    if (fl_geo_has_come(w))
        FL_TRY(fl_geo_take(w));
    if ((int64_t)(g->tick - g->pushed) < g->every)
        return FLEET_OK;
    FL_TRY(fl_geo_take(w));
    FL_TRY(fl_geo_push_updates(w));
    return fl_geo_ask(w);
}

static fleet_status geo_wait_update(fl_remote *x)
{
    (void)x;
    return FLEET_OK;
}

static fleet_status geo_end_pass(fl_remote *x, double *sum, int n)
{
    FL_TRY(fl_geo_flush((fl_worker *)(void *)x));
    return fl_worker_end_pass(x, sum, n);
}

static const fl_remote_class methods = {
    .pull = fl_geo_pull,
    .wait_pull = fl_geo_wait_pull,
    .came = fl_geo_came,
    .drop = fl_geo_drop,
    .push = geo_push,
    .wait_update = geo_wait_update,
    .end_pass = geo_end_pass,
    .refresh = fl_geo_refresh,
};

fleet_status fl_geo_flush(fl_worker *w)
{
    fl_geo *g = w->geo;

    if (!g)
        return FLEET_OK;
    if (fl_geo_has_updates(g)) {
        FL_TRY(fl_geo_take(w));
        FL_TRY(fl_geo_push_updates(w));
    }
    return fl_worker_wait_update(w);
}

/* --- life ----------------------------------------------------------------- */

static void begin_params(fl_worker *w)
{
    const fl_store *s = w->layout.store;
    for (int i = 0; i < w->layout.n_param; i++) {
        const fl_param *p = w->layout.param[i];
        fl_geo_param *of = &w->geo->param[i];

        memcpy(of->base, p->flat->weight + p->offset,
               (size_t)p->n * sizeof(float));
        for (int k = 0; k < FL_MAX_STATE && of->state[k]; k++)
            fl_store_first_states(s, p, of->state[k], p->n);
    }
}

static void begin_tables(fl_worker *w)
{
    for (int i = 0; i < w->layout.n_table; i++) {
        fl_geo_table *t = &w->geo->table[i];

        t->rows->methods->clear(t->rows);
        t->n_updated = 0;
        for (int l = 0; l < w->n_lane; l++)
            t->since[l] = FL_NO_VERSION;
    }
}

fleet_status fl_geo_forget(fl_worker *w)
{
    if (!w->geo)
        return FLEET_OK;
    fl_geo_cancel(w);
    FL_TRY(fl_worker_wait_update(w));
    begin_params(w);
    begin_tables(w);
    w->geo->pushed = w->geo->tick;
    w->geo->life++;
    w->remote.updates = 0;
    return FLEET_OK;
}

static fleet_status make_param(const fl_param *p, int n_state, fl_geo_param *to)
{
    size_t bytes = (size_t)p->n * sizeof(float);

    FL_TRY(FL_NEW(&to->base, bytes));
    FL_TRY(FL_NEW(&to->delta, bytes));
    for (int i = 0; i < n_state; i++)
        FL_TRY(FL_NEW(&to->state[i], bytes));
    return FLEET_OK;
}

static fleet_status make_table(const fl_worker *w, const fl_rows *of,
                               fl_geo_table *t)
{
    const fleet_optimizer *o = w->layout.store->optimizer;
    const fl_rule *rule = NULL;
    int pushed = (int)(fl_rows_pushed(of) - of->dim);

    if (o) {
        o = fl_rows_optimizer(o, of);
        rule = fl_rule_of(o->kind);
    }
    FL_TRY(FL_NEW(&t->since, (size_t)w->n_lane * sizeof *t->since));
    t->of = of;
    FL_TRY(fl_table_make(of->name, of->dim, of->modulo, &of->filler, &t->rows));
    t->rows->attr = of->attr;
    t->rows->optimizer = of->optimizer;
    return t->rows->methods->set_state(t->rows, rule ? rule->n_state : 0,
                                       (rule ? rule->n_row : 0) + pushed +
                                           (int)of->dim,
                                       o ? o->number[FL_FIRST_STATE] : 0);
}

/* Servers of a store of sums keep none; copies do. */
static int states_of(const fl_store *s, const fl_param *p)
{
    return s->optimizer ? fl_rule_of(fl_param_optimizer(s, p)->kind)->n_state
                        : 0;
}

static fleet_status make_all(fl_worker *w)
{
    const fl_partition *l = &w->layout;
    fl_geo *g = w->geo;

    FL_TRY(FL_NEW(&g->param, ((size_t)l->n_param + 1) * sizeof *g->param));
    FL_TRY(FL_NEW(&g->table, ((size_t)l->n_table + 1) * sizeof *g->table));
    FL_TRY(FL_NEW(&g->push_param,
                  ((size_t)l->n_param + 1) * sizeof *g->push_param));
    FL_TRY(
        FL_NEW(&g->push_rows, ((size_t)l->n_table + 1) * sizeof *g->push_rows));
    FL_TRY(FL_NEW(&g->changed,
                  ((size_t)(l->n_table * w->n_lane) + 1) * sizeof *g->changed));
    for (int i = 0; i < l->n_param; i++)
        FL_TRY(make_param(l->param[i], states_of(l->store, l->param[i]),
                          &g->param[i]));
    for (int i = 0; i < l->n_table; i++)
        FL_TRY(make_table(w, l->table[i], &g->table[i]));
    return FLEET_OK;
}

fleet_status fl_geo_begin(fl_worker *w, int64_t every, int n_worker)
{
    FL_TRY(FL_NEW(&w->geo, sizeof *w->geo));
    w->geo->every = every;
    w->geo->share = 1.0f / (float)n_worker;
    FL_TRY(make_all(w));
    begin_params(w);
    begin_tables(w);
    w->remote.methods = &methods;
    return FLEET_OK;
}

void fl_geo_done(fl_worker *w)
{
    fl_geo *g = w->geo;

    if (!g)
        return;
    fl_geo_slots_done(w);
    fl_client_forget(w->client, g->changed, w->layout.n_table * w->n_lane);
    for (int i = 0; g->param && i < w->layout.n_param; i++) {
        fl_free(g->param[i].base);
        fl_free(g->param[i].delta);
        for (int k = 0; k < FL_MAX_STATE; k++)
            fl_free(g->param[i].state[k]);
    }
    for (int i = 0; g->table && i < w->layout.n_table; i++) {
        if (g->table[i].rows)
            g->table[i].rows->methods->destroy(g->table[i].rows);
        fl_free(g->table[i].updated);
        fl_free(g->table[i].since);
    }
    fl_free(g->param);
    fl_free(g->table);
    fl_free(g->push_param);
    fl_free(g->push_rows);
    fl_free(g->delta);
    fl_free(g->at);
    fl_free(g->key);
    fl_free(g);
    w->geo = NULL;
}
