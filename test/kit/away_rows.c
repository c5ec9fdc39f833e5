/* away_rows.c - see away_rows.h: two tables, one of them out of reach. */
#define SUITE away_rows
#include "away_rows.h"
#include "test.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"

int away_rows_looks = 3;

typedef struct wish {
    struct wish *next;
    uint64_t token;
    uint64_t *key;
    int64_t n;
    int looks; /* that are left */
    bool ready;
} wish;

typedef struct table {
    fl_rows rows; /* first */
    fl_rows *near, *far;
    wish *wishes;
    uint64_t last;
    int64_t came;
    bool held;
    pthread_mutex_t lock;
} table;

static table *table_of(const fl_rows *r)
{
    return (table *)(uintptr_t)r;
}

/* --- moving --------------------------------------------------------------- */

static size_t row_bytes(const fl_rows *r)
{
    return sizeof(fl_row_head) + (size_t)fl_rows_record(r) * sizeof(float);
}

static float *row_in(fl_rows *r, uint64_t key)
{
    float *row;

    CHECK_OK(r->methods->find(r, &key, 1, &row));
    return row;
}

static bool move_row(fl_rows *from, fl_rows *to, uint64_t key)
{
    float *old = row_in(from, key), *new;
    int64_t erased;

    if (!old)
        return false;
    CHECK_OK(to->methods->make(to, &key, 1, &new));
    memcpy(fl_row_of(new), fl_row_of(old), row_bytes(from));
    CHECK_OK(from->methods->erase(from, &key, 1, &erased));
    CHECK_INT(erased, 1);
    return true;
}

static bool is_wanted(const table *t, uint64_t key)
{
    for (const wish *w = t->wishes; w; w = w->next)
        for (int64_t i = 0; w->ready && i < w->n; i++)
            if (w->key[i] == key)
                return true;
    return false;
}

static fleet_status check_wanted(const table *t, const uint64_t *key, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!is_wanted(t, key[i]))
            return fl_fail(FLEET_ESTATE,
                           "row %" PRIu64 " of \"%s\" was not waited for",
                           key[i], t->rows.name);
    return FLEET_OK;
}

/* --- wanted --------------------------------------------------------------- */

static fleet_status want(fl_rows *r, const uint64_t *key, int64_t n,
                         uint64_t *token)
{
    table *t = table_of(r);
    wish *w;

    FL_TRY(FL_NEW(&w, sizeof *w));
    w->key = fl_alloc_array((size_t)n, sizeof *key);
    if (!w->key) {
        fl_free(w);
        return FLEET_ENOMEM;
    }
    if (n > 0)
        memcpy(w->key, key, (size_t)n * sizeof *key);
    w->n = n;
    w->looks = away_rows_looks;
    pthread_mutex_lock(&t->lock);
    *token = w->token = ++t->last;
    w->next = t->wishes;
    t->wishes = w;
    pthread_mutex_unlock(&t->lock);
    return FLEET_OK;
}

static wish **wish_of(table *t, uint64_t token)
{
    wish **w = &t->wishes;

    while (*w && (*w)->token != token)
        w = &(*w)->next;
    CHECK(*w != NULL);
    return w;
}

static fleet_status is_ready(fl_rows *r, uint64_t token, bool *ready)
{
    table *t = table_of(r);
    wish *w;

    pthread_mutex_lock(&t->lock);
    CHECK(!t->held);
    w = *wish_of(t, token);
    if (!w->ready && w->looks-- == 0) {
        w->ready = true;
        for (int64_t i = 0; i < w->n; i++)
            t->came += move_row(t->far, t->near, w->key[i]);
    }
    *ready = w->ready;
    pthread_mutex_unlock(&t->lock);
    return FLEET_OK;
}

static void release(fl_rows *r, uint64_t token)
{
    table *t = table_of(r);
    wish **at, *w;
    bool any = false;

    pthread_mutex_lock(&t->lock);
    CHECK(!t->held);
    at = wish_of(t, token);
    w = *at;
    *at = w->next;
    for (int64_t i = 0; i < w->n; i++)
        if (!is_wanted(t, w->key[i]))
            any = move_row(t->near, t->far, w->key[i]) || any;
    if (any)
        fl_rows_next_epoch(r);
    pthread_mutex_unlock(&t->lock);
    fl_free(w->key);
    fl_free(w);
}

/* --- as any table --------------------------------------------------------- */

static fleet_status find(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row)
{
    table *t = table_of(r);
    fleet_status status;

    pthread_mutex_lock(&t->lock);
    status = check_wanted(t, key, n);
    if (status == FLEET_OK)
        status = t->near->methods->find(t->near, key, n, row);
    pthread_mutex_unlock(&t->lock);
    return status;
}

static fleet_status make(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row)
{
    table *t = table_of(r);
    fleet_status status;

    pthread_mutex_lock(&t->lock);
    t->near->filler = t->far->filler = r->filler;
    status = check_wanted(t, key, n);
    if (status == FLEET_OK)
        status = t->near->methods->make(t->near, key, n, row);
    pthread_mutex_unlock(&t->lock);
    return status;
}

static fleet_status set_state(fl_rows *r, int n_state, int n_row, float initial)
{
    table *t = table_of(r);

    FL_TRY(t->near->methods->set_state(t->near, n_state, n_row, initial));
    FL_TRY(t->far->methods->set_state(t->far, n_state, n_row, initial));
    fl_rows_note_state(r, n_state, n_row, initial);
    return FLEET_OK;
}

static fleet_status set_storage(fl_rows *r, fleet_row_storage storage)
{
    table *t = table_of(r);

    FL_TRY(t->near->methods->set_storage(t->near, storage));
    FL_TRY(t->far->methods->set_storage(t->far, storage));
    r->storage = storage;
    return FLEET_OK;
}

static int64_t count(const fl_rows *r)
{
    const table *t = table_of(r);

    return t->near->methods->count(t->near) + t->far->methods->count(t->far);
}

static void clear(fl_rows *r)
{
    table *t = table_of(r);

    t->near->methods->clear(t->near);
    t->far->methods->clear(t->far);
    fl_rows_next_epoch(r);
}

static fleet_status erase(fl_rows *r, const uint64_t *key, int64_t n,
                          int64_t *erased)
{
    table *t = table_of(r);
    int64_t far;

    FL_TRY(t->near->methods->erase(t->near, key, n, erased));
    FL_TRY(t->far->methods->erase(t->far, key, n, &far));
    *erased += far;
    fl_rows_next_epoch(r);
    return FLEET_OK;
}

/* --- walks: all rows come, and stay --------------------------------------- */

typedef struct key_list {
    uint64_t *key;
    size_t n, capacity;
} key_list;

static fleet_status add_key(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    key_list *l = arg;

    (void)bucket;
    (void)row;
    FL_TRY(fl_grow(&l->key, &l->capacity, l->n + 1, sizeof *l->key));
    l->key[l->n++] = key;
    return FLEET_OK;
}

static fleet_status bring_all(const table *t)
{
    key_list l = {0};
    fleet_status status = t->far->methods->each(t->far, add_key, &l);

    for (size_t i = 0; status == FLEET_OK && i < l.n; i++)
        move_row(t->far, t->near, l.key[i]);
    fl_free(l.key);
    return status;
}

static fleet_status each(const fl_rows *r, fl_row_visitor *visit, void *arg)
{
    const table *t = table_of(r);

    FL_TRY(bring_all(t));
    return t->near->methods->each(t->near, visit, arg);
}

static fleet_status each_changed(const fl_rows *r, uint64_t since,
                                 fl_row_visitor *visit, void *arg)
{
    const table *t = table_of(r);

    FL_TRY(bring_all(t));
    return t->near->methods->each_changed(t->near, since, visit, arg);
}

static fleet_status stat_rows(const fl_rows *r, fl_rows_stat *s)
{
    const table *t = table_of(r);

    FL_TRY(bring_all(t));
    FL_TRY(t->near->methods->stat(t->near, s));
    s->epoch = fl_rows_epoch(r);
    return FLEET_OK;
}

static void destroy(fl_rows *r)
{
    table *t = table_of(r);

    CHECK(t->wishes == NULL); /* all were released */
    t->near->methods->destroy(t->near);
    t->far->methods->destroy(t->far);
    pthread_mutex_destroy(&t->lock);
    fl_free(t);
}

static const fl_rows_class methods = {
    .find = find,
    .make = make,
    .want = want,
    .is_ready = is_ready,
    .release = release,
    .set_state = set_state,
    .set_storage = set_storage,
    .count = count,
    .clear = clear,
    .erase = erase,
    .each = each,
    .each_changed = each_changed,
    .stat = stat_rows,
    .destroy = destroy,
};

fleet_status away_rows_make(const char *name, int64_t dim, int64_t modulo,
                            const fl_filler *filler, fl_rows **rows)
{
    table *t;

    FL_TRY(FL_NEW(&t, sizeof *t));
    fl_rows_init(&t->rows, &methods, name, dim, modulo, filler);
    CHECK_OK(fl_table_make(name, dim, modulo, filler, &t->near));
    CHECK_OK(fl_table_make(name, dim, modulo, filler, &t->far));
    pthread_mutex_init(&t->lock, NULL);
    *rows = &t->rows;
    return FLEET_OK;
}

/* --- for tests ------------------------------------------------------------ */

int64_t away_rows_came(fl_rows *r)
{
    return table_of(r)->came;
}

int64_t away_rows_near(fl_rows *r)
{
    const table *t = table_of(r);

    return t->near->methods->count(t->near);
}

void away_rows_hold(fl_rows *r, bool hold)
{
    table_of(r)->held = hold;
}

const float *away_rows_row(fl_rows *r, uint64_t key)
{
    const table *t = table_of(r);
    const float *near = row_in(t->near, key);

    return near ? near : row_in(t->far, key);
}
