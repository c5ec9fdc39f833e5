/* fake_remote.c - see fake_remote.h. */
#define SUITE fake_remote
#include "fake_remote.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"
#include "runtime/store/store_hash.h"

static fake_worker *worker_of(fl_remote *x)
{
    return (fake_worker *)(void *)x;
}

static void note(fake_worker *w, const char *call, int slot, const char *how)
{
    size_t used = strlen(w->calls);
    char number[12] = "";

    if (slot >= 0)
        snprintf(number, sizeof number, "%d", slot);
    snprintf(w->calls + used, sizeof w->calls - used, "%s%s%s%s",
             used ? " " : "", call, number, how);
}

static fleet_status fails(fake_worker *w, fake_call call)
{
    if (w->fail_at[call] == 0 || --w->fail_at[call] > 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "server 3 is not what it was");
}

/* --- pull, arrive, drop -------------------------------------------------- */

/* Rows that may not be used any more. */
static void spoil(fake_slot *s)
{
    if (s->capacity)
        memset(s->row, 0xff, s->capacity * sizeof *s->row);
}

static fleet_status fake_pull(fl_remote *x, int slot, const fl_pull_rows *table,
                              int n_table, bool dense, bool ahead, bool now)
{
    fake_worker *w = worker_of(x);
    fake_slot *s = &w->slot[slot];

    note(w, "pull", slot, now ? "n" : ahead ? "a" : "");
    CHECK(!s->asked);
    CHECK(slot >= FL_N_SLOT || w->store->remote->taken[slot]);
    spoil(s);
    s->asked = true;
    s->has_rows = false;
    s->table = table;
    s->n_table = n_table;
    s->dense = dense;
    s->now = now;
    s->version = x->updates + ahead;
    return fails(w, FAKE_PULL);
}

static int64_t floats_of(const fake_slot *s)
{
    int64_t n = 0;

    for (int i = 0; i < s->n_table; i++)
        for (int p = 0; p < FL_N_PART; p++)
            n += s->table[i].part[p].n * s->table[i].rows->dim;
    return n;
}

static float *bring_part(fl_rows *r, const fl_pull_part *p, float *to)
{
    for (int64_t i = 0; i < p->n; i++) {
        float *row;

        CHECK_OK(r->methods->find(r, &p->key[i], 1, &row));
        if (row)
            memcpy(to, row, (size_t)r->dim * sizeof *to);
        else
            fl_filler_row(&r->filler, p->key[i], to, r->dim);
        p->row[i] = to;
        to += r->dim;
    }
    return to;
}

static void bring_rows(fake_worker *w, fake_slot *s)
{
    size_t n = (size_t)floats_of(s);
    float *to;

    if (n > s->capacity) {
        s->row = realloc(s->row, n * sizeof *s->row);
        s->capacity = n;
    }
    to = s->row;
    for (int i = 0; i < s->n_table; i++) {
        const fl_pull_rows *t = &s->table[i];
        fl_rows *r = fl_store_rows(w->server->store, t->rows->name);

        for (int p = 0; p < FL_N_PART; p++)
            to = bring_part(r, &t->part[p], to);
    }
}

static void bring_weights(fake_worker *w)
{
    const fl_map *params = &w->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *to = params->entry[i].value;
        const fl_param *from = fl_store_param(w->server->store, to->name);

        if (!fl_param_is_remote(w->store, to))
            continue;
        memcpy(to->flat->weight + to->offset, from->flat->weight + from->offset,
               (size_t)to->n * sizeof(float));
    }
}

/* Rows of now, for as long as the slot has them. */
static bool fake_came(fl_remote *x, int slot)
{
    fake_worker *w = worker_of(x);
    fake_slot *s = &w->slot[slot];

    CHECK(s->asked);
    if (w->looks && !s->has_rows)
        bring_rows(w, s);
    s->has_rows = w->looks;
    return s->has_rows && w->comes_early;
}

static fleet_status fake_arrive(fl_remote *x, int slot)
{
    fake_worker *w = worker_of(x);
    fake_slot *s = &w->slot[slot];

    note(w, "arrive", slot, "");
    CHECK(s->asked);
    FL_TRY(fails(w, FAKE_ARRIVE));
    if (w->server->sync && !s->now && !w->server->idle)
        CHECK_INT(s->version, w->server->updates);
    s->asked = false;
    if (!s->has_rows)
        bring_rows(w, s);
    if (s->dense)
        bring_weights(w);
    return FLEET_OK;
}

static void fake_drop(fl_remote *x, int slot)
{
    fake_worker *w = worker_of(x);

    note(w, "drop", slot, "");
    w->slot[slot].asked = false;
    spoil(&w->slot[slot]);
}

/* --- push ---------------------------------------------------------------- */

/* The first contribution is copied, later ones are added. */
static void contribute(float *sum, const float *g, int64_t n, bool first)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = first ? g[i] : sum[i] + g[i];
}

static void take_param(fake_server *s, const fl_push_param *p)
{
    const fl_map *params = &s->store->params;
    size_t i = 0;
    bool first;

    while (strcmp(((fl_param *)params->entry[i].value)->name, p->param->name))
        i++;
    first = !s->dense[i];
    if (first)
        s->dense[i] = malloc((size_t)p->param->n * sizeof(float));
    contribute(s->dense[i], p->grad, p->param->n, first);
}

static fake_sum *sum_of(fake_server *s, const char *table)
{
    fake_sum *t = s->table;

    while (t->table && strcmp(t->table, table))
        t++;
    t->table = table;
    return t;
}

/* A set of keys widens only while it is empty: so a new, larger one. */
static fleet_status widen(fake_sum *t, int64_t more, int64_t dim)
{
    fl_key_set wider = {0};
    bool is_new;

    if (fl_key_set_begin(&wider, t->keys.n + more) != FLEET_OK) {
        fl_key_set_done(&wider);
        return FLEET_ENOMEM;
    }
    for (int64_t i = 0; i < t->keys.n; i++)
        fl_key_set_add(&wider, t->keys.key[i], &is_new);
    fl_key_set_done(&t->keys);
    t->keys = wider;
    return fl_grow(&t->sum, &t->capacity, (size_t)((t->keys.n + more) * dim),
                   sizeof *t->sum);
}

static fleet_status take_part(fake_server *s, const fl_rows *rows,
                              const fl_push_part *p)
{
    fake_sum *t = sum_of(s, rows->name);

    FL_TRY(widen(t, p->n, rows->dim));
    for (int64_t i = 0; i < p->n; i++) {
        bool is_new;
        uint64_t key = p->key[p->which ? p->which[i] : i];
        uint32_t u = fl_key_set_add(&t->keys, key, &is_new);

        contribute(t->sum + u * rows->dim, p->grad[i], rows->dim, is_new);
    }
    return FLEET_OK;
}

static void set_factors(fl_update *u, const fleet_param_attr *a)
{
    if (a->learning_rate > 0)
        u->lr *= a->learning_rate;
    if (a->l2_decay > 0)
        u->decay = a->l2_decay;
    if (a->no_decay)
        u->decay = 0;
}

static void apply_params(fake_server *s, const fl_update *u)
{
    const fl_map *params = &s->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;
        float *state[FL_MAX_STATE] = {NULL};
        fl_update own = *u;

        if (!s->dense[i])
            continue;
        set_factors(&own, &p->attr);
        for (int j = 0; j < FL_MAX_STATE; j++)
            if (p->flat->state[j])
                state[j] = p->flat->state[j] + p->offset;
        fl_optimizer_dense(s->store->optimizer, &(fleet_param_attr){0})(
            &own, p->flat->weight + p->offset, s->dense[i], state, p->n);
        free(s->dense[i]);
        s->dense[i] = NULL;
    }
}

/* What servers know of a table besides its rows. */
static fleet_param_attr attr_of(const fake_worker *w, const char *table)
{
    const fleet *f = fl_handle_of(w->store->context);

    return fleet_program_var(f->trained, table)->attr;
}

static fleet_status apply_table(fake_worker *w, fake_sum *t, const fl_update *u)
{
    const fleet_param_attr none = {0};
    fl_store *s = w->server->store;
    fl_rows *r = fl_store_rows(s, t->table);
    fleet_param_attr attr = attr_of(w, t->table);
    fl_update own =
        fl_own_update(r->optimizer, &none, u, (int64_t)u->version - 1);

    set_factors(&own, &attr);
    for (int64_t i = 0; i < t->keys.n; i++) {
        const float *g = t->sum + i * r->dim;
        float *row;

        FL_TRY(r->methods->make(r, &t->keys.key[i], 1, &row));
        fl_rows_change(r, s->optimizer, &own, &t->keys.key[i], &row, &g, 1);
    }
    t->keys.n = 0;
    return FLEET_OK;
}

static fleet_status apply(fake_worker *w, const fl_push *p)
{
    fake_server *s = w->server;
    fl_update u;

    fl_optimizer_update(s->store->optimizer, s->updates, s->n_batch, &u);
    fl_update_settings_apply(&p->settings, &u);
    u.clip = p->clip;
    apply_params(s, &u);
    for (fake_sum *t = s->table; t->table; t++)
        FL_TRY(apply_table(w, t, &u));
    s->n_pushed = s->n_batch = 0;
    s->updates++;
    return FLEET_OK;
}

static fleet_status take_push(fake_worker *w, const fl_push *p)
{
    fake_server *s = w->server;

    for (int i = 0; i < p->n_param; i++)
        take_param(s, &p->param[i]);
    for (int i = 0; i < p->n_table; i++)
        for (int part = 0; part < FL_N_PART; part++)
            FL_TRY(take_part(s, p->table[i].rows, &p->table[i].part[part]));
    s->n_batch += p->n_batch;
    s->n_pushed++;
    return s->n_pushed == s->n_worker || !s->sync ? apply(w, p) : FLEET_OK;
}

/* Without memory: the step begins anew. */
static void forget_step(fake_server *s)
{
    for (size_t i = 0; i < s->store->params.n; i++) {
        free(s->dense[i]);
        s->dense[i] = NULL;
    }
    for (fake_sum *t = s->table; t->table; t++)
        t->keys.n = 0;
    s->n_pushed = s->n_batch = 0;
}

static fleet_status fake_push(fl_remote *x, const fl_push *p)
{
    fake_worker *w = worker_of(x);
    fake_server *s = w->server;
    fleet_status status = FLEET_OK;

    note(w, "push", -1, "");
    FL_TRY(fails(w, FAKE_PUSH));
    w->clip = p->clip;
    w->mean = fl_push_mean(p);
    if (s->sync && !s->idle)
        CHECK_INT(w->index, s->n_pushed);
    if (!s->idle)
        status = take_push(w, p);
    if (status != FLEET_OK)
        forget_step(s);
    else if (!x->sync)
        x->updates++;
    return status;
}

static void square_param(const fl_push_param *p, float scale, fl_norm_list *all)
{
    int64_t n;
    double *to = fl_norm_list_of(all, p->param, &n);

    for (int64_t b = 0; b < n; b++) {
        int64_t at = b * FL_BLOCK, left = p->param->n - at;

        to[b] = fl_square_sum(p->grad + at, left < FL_BLOCK ? left : FL_BLOCK,
                              scale);
    }
}

static void square_rows(const fl_push_rows *t, float scale, fl_norm_list *all)
{
    int64_t n;
    double *to = fl_norm_list_of(all, t->rows, &n);

    for (int i = 0; i < FL_N_PART; i++) {
        const fl_push_part *p = &t->part[i];
        fl_norm_row *row = calloc((size_t)p->n + 1, sizeof *row);

        for (int64_t k = 0; k < p->n; k++)
            row[k] =
                fl_norm_row_of(p->key[p->which ? p->which[k] : k], p->grad[k]);
        fl_norm_sort(row, p->n);
        for (int64_t k = 0; k < p->n; k++)
            to[row[k].bucket] +=
                fl_square_sum(row[k].grad, t->rows->dim, scale);
        free(row);
    }
}

/* Of the only worker; the push that follows brings the factor. */
static fleet_status fake_clip(fl_remote *x, const fl_push *p, fl_norm_list *all,
                              float *factor)
{
    fake_worker *w = worker_of(x);
    float scale = 1.0f / (float)p->n_batch;

    note(w, "clip", -1, "");
    CHECK_INT(w->server->n_worker, 1);
    for (int i = 0; i < p->n_param; i++)
        square_param(&p->param[i], scale, all);
    for (int i = 0; i < p->n_table; i++)
        square_rows(&p->table[i], scale, all);
    *factor = fl_norm_list_clip(all, w->store);
    return FLEET_OK;
}

static fleet_status fake_settle(fl_remote *x)
{
    fake_worker *w = worker_of(x);

    if (!x->sync)
        return FLEET_OK;
    note(w, "settle", -1, "");
    x->updates++;
    return fails(w, FAKE_SETTLE);
}

/* --- the rest ------------------------------------------------------------ */

static fleet_status fake_end_pass(fl_remote *x, double *sum, int n)
{
    fake_worker *w = worker_of(x);

    note(w, "end", -1, "");
    CHECK_INT(n, FAKE_N_SUM);
    FL_TRY(fails(w, FAKE_END_PASS));
    for (int i = 0; i < n; i++)
        sum[i] = w->server->sum[i] += sum[i];
    bring_weights(w);
    return FLEET_OK;
}

static fleet_status fake_refresh(fl_remote *x)
{
    fake_worker *w = worker_of(x);

    note(w, "refresh", -1, "");
    FL_TRY(fails(w, FAKE_REFRESH));
    bring_weights(w);
    return FLEET_OK;
}

static const fl_remote_class methods = {
    .pull = fake_pull,
    .wait_pull = fake_arrive,
    .came = fake_came,
    .drop = fake_drop,
    .clip = fake_clip,
    .push = fake_push,
    .wait_update = fake_settle,
    .end_pass = fake_end_pass,
    .refresh = fake_refresh,
};

/* --- tables that are names ----------------------------------------------- */

static fleet_status names_find(fl_rows *r, const uint64_t *key, int64_t n,
                               float **row)
{
    (void)key;
    (void)n;
    (void)row;
    test_fail(__FILE__, __LINE__, "a row of \"%s\" is wanted here", r->name);
}

static fleet_status names_set_state(fl_rows *r, int n_state, int n_row,
                                    float initial)
{
    fl_rows_note_state(r, n_state, n_row, initial);
    return FLEET_OK;
}

static fleet_status names_set_storage(fl_rows *r, fleet_row_storage storage)
{
    r->storage = storage;
    return FLEET_OK;
}

static int64_t names_count(const fl_rows *r)
{
    (void)r;
    return 0;
}

static void names_clear(fl_rows *r)
{
    (void)r;
}

static fleet_status names_each(const fl_rows *r, fl_row_visitor *visit,
                               void *arg)
{
    (void)r;
    (void)visit;
    (void)arg;
    return FLEET_OK;
}

static void names_destroy(fl_rows *r)
{
    fl_free(r);
}

static fleet_status names_make(const char *name, int64_t dim, int64_t modulo,
                               const fl_filler *filler, fl_rows **rows)
{
    static const fl_rows_class names = {
        .find = names_find,
        .make = names_find,
        .set_state = names_set_state,
        .set_storage = names_set_storage,
        .count = names_count,
        .clear = names_clear,
        .each = names_each,
        .destroy = names_destroy,
    };

    FL_TRY(FL_NEW(rows, sizeof **rows));
    fl_rows_init(*rows, &names, name, dim, modulo, filler);
    (*rows)->remote = true;
    return FLEET_OK;
}

/* --- lifecycle ----------------------------------------------------------- */

void fake_server_open(fake_server *s, fleet_program *p, int n_worker, bool sync)
{
    memset(s, 0, sizeof *s);
    CHECK_OK(fl_store_create(p->context, fl_table_make, &s->store));
    CHECK_OK(fl_store_add(s->store, p));
    CHECK_OK(fl_store_train(s->store, p->training.optimizer));
    s->n_worker = n_worker;
    s->sync = sync;
    s->dense = calloc(s->store->params.n + 1, sizeof *s->dense);
}

void fake_server_close(fake_server *s)
{
    for (size_t i = 0; i < s->store->params.n; i++)
        free(s->dense[i]);
    free(s->dense);
    for (fake_sum *t = s->table; t->table; t++) {
        fl_key_set_done(&t->keys);
        fl_free(t->sum);
    }
    fl_store_destroy(s->store);
}

uint64_t fake_server_hash(fake_server *s)
{
    uint64_t hash = 0;

    CHECK_OK(fl_store_hash(s->store, NULL, NULL, &hash));
    return hash;
}

void fake_worker_open(fake_worker *w, fake_server *s, fleet *f, int index)
{
    memset(w, 0, sizeof *w);
    w->x.methods = &methods;
    w->x.sync = s->sync;
    w->server = s;
    w->store = f->store;
    w->index = index;
    f->store->make_remote_table = names_make;
    f->store->remote = &w->x;
}

void fake_worker_close(fake_worker *w)
{
    for (int i = 0; i < FL_MOST_PULL_SLOT; i++) {
        CHECK(i < FL_N_SLOT ? !w->x.taken[i] : !w->slot[i].asked);
        free(w->slot[i].row);
    }
}
