/* geo_exchange.c - changes of a worker's copies go to the servers, and changes
 * of the servers' rows and weights come to the copies. */
#include "ps/worker/geo_internal.h"

#include <string.h>

#include "base/memory.h"

/* --- pushes --------------------------------------------------------------- */

static void differ(float *restrict delta, const float *restrict copy,
                   const float *restrict base, float share, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        delta[i] = (copy[i] - base[i]) * share;
}

/* What a push brings: some of each table's rows, about as much as a piece of a
 * step, so that a server can say of each step what it has changed. */
typedef struct parcel {
    fl_push push;
    int64_t taken; /* floats */
    int64_t n;     /* rows */
} parcel;

static void add_params(fl_worker *w, parcel *p)
{
    fl_geo *g = w->geo;

    for (int i = 0; i < w->layout.n_param; i++) {
        const fl_param *of = w->layout.param[i];

        differ(g->param[i].delta, of->flat->weight + of->offset,
               g->param[i].base, g->share, of->n);
        g->push_param[i] = (fl_push_param){of, g->param[i].delta};
    }
    p->push.param = g->push_param;
    p->push.n_param = w->layout.n_param;
}

/* The last rows of the table's list that there is room for. */
static void add_rows(fl_worker *w, int table, int64_t room, parcel *p)
{
    fl_geo *g = w->geo;
    fl_geo_table *t = &g->table[table];
    int64_t dim = t->rows->dim, width = fl_rows_pushed(t->of), first = p->n;
    int64_t n = (room - p->taken) / width;

    n = n > t->n_updated ? t->n_updated : n;
    for (int64_t i = 0; i < n; i++, p->n++, p->taken += width) {
        const fl_geo_row *one = &t->updated[t->n_updated - n + i];

        differ(g->delta + p->taken, one->row, fl_geo_base(t->rows, one->row),
               g->share, dim);
        if (width > dim)
            memcpy(g->delta + p->taken + dim, fl_geo_pushed(t->rows, one->row),
                   (size_t)(width - dim) * sizeof *g->delta);
        g->at[p->n] = g->delta + p->taken;
        g->key[p->n] = one->key;
    }
    g->push_rows[table] = (fl_push_rows){.rows = w->layout.table[table]};
    g->push_rows[table].part[0] =
        (fl_push_part){n, g->key + first, NULL, g->at + first};
}

/* The rows are on their way: the servers will have what the copies are now. */
static void commit_rows(fl_worker *w)
{
    for (int i = 0; i < w->layout.n_table; i++) {
        fl_geo_table *t = &w->geo->table[i];

        for (int64_t n = w->geo->push_rows[i].part[0].n; n > 0; n--) {
            float *row = t->updated[--t->n_updated].row;

            memcpy(fl_geo_base(t->rows, row), row,
                   (size_t)t->rows->dim * sizeof *row);
            fl_row_of(row)->changed_at = 0; /* listed no more */
        }
    }
}

static void commit_params(fl_worker *w)
{
    for (int i = 0; i < w->layout.n_param; i++) {
        const fl_param *p = w->layout.param[i];

        memcpy(w->geo->param[i].base, p->flat->weight + p->offset,
               (size_t)p->n * sizeof(float));
    }
}

static int64_t count_updated(const fl_worker *w)
{
    int64_t n = 0;

    for (int i = 0; i < w->layout.n_table; i++)
        n += w->geo->table[i].n_updated;
    return n;
}

/* At least one row of each table fits. */
static int64_t floats_of_parcel(const fl_worker *w)
{
    int64_t n = (int64_t)(w->piece_bytes / sizeof(float)), least = 1;

    for (int i = 0; i < w->layout.n_table; i++)
        least += fl_rows_pushed(w->layout.table[i]);
    return n > least ? n : least;
}

static fleet_status push_parcel(fl_worker *w, bool dense)
{
    fl_geo *g = w->geo;
    int64_t room = floats_of_parcel(w), most = count_updated(w);
    parcel p = {.push = {.table = g->push_rows,
                         .n_table = w->layout.n_table,
                         .n_batch = 1,
                         .settings = g->settings,
                         .clip = 1}};

    most = most > room ? room : most;
    FL_TRY(
        fl_grow(&g->delta, &g->delta_capacity, (size_t)room, sizeof *g->delta));
    FL_TRY(fl_grow(&g->at, &g->at_capacity, (size_t)most + 1, sizeof *g->at));
    FL_TRY(
        fl_grow(&g->key, &g->key_capacity, (size_t)most + 1, sizeof *g->key));
    if (dense)
        add_params(w, &p);
    for (int i = 0; i < w->layout.n_table; i++)
        add_rows(w, i, room, &p);
    FL_TRY(fl_worker_push(&w->remote, &p.push));
    commit_rows(w);
    if (dense)
        commit_params(w);
    return FLEET_OK;
}

fleet_status fl_geo_push_updates(fl_worker *w)
{
    fl_geo *g = w->geo;

    FL_TRY(push_parcel(w, true));
    while (count_updated(w) > 0)
        FL_TRY(push_parcel(w, false));
    g->pushed = g->tick;
    return FLEET_OK;
}

/* --- asking --------------------------------------------------------------- */

static fl_request *request_of(const fl_worker *w, int lane, int table)
{
    return &w->geo->changed[lane * w->layout.n_table + table];
}

static fleet_status ask_changed(fl_worker *w, int lane, int table)
{
    fl_request *r = request_of(w, lane, table);
    fl_msg_writer writer;
    fl_section *s;

    fl_request_clear(r);
    fl_client_begin(w->client, lane, r, &writer, FL_MSG_PULL, 0, 0);
    s = fl_msg_section(&writer, FL_SECTION_CHANGED, (uint32_t)table);
    if (s)
        s->version = w->geo->table[table].since[lane];
    FL_TRY(fl_client_add(w->client, r, &writer));
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

fleet_status fl_geo_ask(fl_worker *w)
{
    w->geo->pulling = true;
    FL_TRY(fl_worker_pull_dense(w, false, true, 0));
    for (int l = 0; l < w->n_lane; l++)
        for (int t = 0; t < w->layout.n_table; t++)
            FL_TRY(ask_changed(w, l, t));
    return FLEET_OK;
}

bool fl_geo_has_come(const fl_worker *w)
{
    int n = w->n_lane * w->layout.n_table;

    if (!w->geo->pulling || !fl_pull_is_answered(&w->slot[FL_DENSE_SLOT]))
        return false;
    for (int i = 0; i < n; i++)
        if (!fl_request_is_answered(&w->geo->changed[i]))
            return false;
    return true;
}

void fl_geo_cancel(fl_worker *w)
{
    for (int i = 0; i < w->n_lane * w->layout.n_table; i++) {
        fl_client_cancel(w->client, &w->geo->changed[i]);
        fl_request_clear(&w->geo->changed[i]);
    }
    fl_worker_drop(&w->remote, FL_DENSE_SLOT);
    w->geo->pulling = false;
}

/* --- what comes ----------------------------------------------------------- */

static fleet_status merge_row(fl_rows *rows, uint64_t key, const float *now)
{
    float *row;

    FL_TRY(rows->methods->find(rows, &key, 1, &row));
    if (row) /* else another worker's, which this one has not looked up yet */
        fl_geo_merge(row, fl_geo_base(rows, row), now, rows->dim);
    return FLEET_OK;
}

/* Keys of a lane, as many as are asked for at once. */
enum { SOME_KEYS = 1 << 16 };

typedef struct key_list {
    const fl_worker *w;
    int lane, table;
    uint64_t *key;
    int64_t n;
    size_t capacity;
} key_list;

static fleet_status list_key(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    key_list *l = arg;

    (void)row;
    if (l->w->owner[bucket] != l->lane)
        return FLEET_OK;
    FL_TRY(fl_grow(&l->key, &l->capacity, (size_t)l->n + 1, sizeof *l->key));
    l->key[l->n++] = key;
    return FLEET_OK;
}

static fleet_status fetch_some(const key_list *l, int64_t first, int64_t n,
                               const float **row)
{
    fl_worker *w = (fl_worker *)l->w;
    fl_pull_rows all = {.rows = w->layout.table[l->table]};

    all.part[0] = (fl_pull_part){l->key + first, n, row};
    FL_TRY(
        fl_worker_pull(&w->remote, FL_DENSE_SLOT, &all, 1, false, false, true));
    FL_TRY(fl_worker_complete(w, FL_DENSE_SLOT));
    for (int64_t i = 0; i < n; i++)
        FL_TRY(
            merge_row(w->geo->table[l->table].rows, l->key[first + i], row[i]));
    return FLEET_OK;
}

/* The lane does not know what has changed since then: it is asked for all rows
 * of its that this worker has. */
static fleet_status fetch_all(fl_worker *w, int lane, int table)
{
    key_list l = {.w = w, .lane = lane, .table = table};
    fl_rows *rows = w->geo->table[table].rows;
    const float **row = fl_alloc_array(SOME_KEYS, sizeof(float *));
    fleet_status status =
        row ? rows->methods->each(rows, list_key, &l) : FLEET_ENOMEM;

    for (int64_t i = 0, n; status == FLEET_OK && i < l.n; i += n) {
        n = l.n - i < SOME_KEYS ? l.n - i : SOME_KEYS;
        status = fetch_some(&l, i, n, row);
    }
    fl_free(row);
    fl_free(l.key);
    return status;
}

static fleet_status check_changed(fl_worker *w, int lane, int table,
                                  const fl_msg *msg)
{
    uint64_t dim = (uint64_t)w->layout.table[table]->dim;

    if (msg && msg->head.n_section == 1 &&
        msg->section[0].op == FL_SECTION_CHANGED &&
        msg->column[0][FL_AT_KEYS].size ==
            msg->section[0].n_key * sizeof(uint64_t) &&
        msg->column[0][FL_AT_VALUES].size ==
            msg->section[0].n_key * dim * sizeof(float))
        return FLEET_OK;
    return fl_fail(FLEET_EFORMAT,
                   "%s has answered a pull of changed rows with something else",
                   fl_client_lane_name(w->client, lane));
}

/* *found: whether there are more. */
static fleet_status merge_changed(fl_worker *w, int lane, int table,
                                  uint32_t *found)
{
    const fl_msg *msg = fl_client_answer(w->client, request_of(w, lane, table));
    fl_geo_table *t = &w->geo->table[table];
    size_t width = (size_t)t->rows->dim * sizeof(float);
    const char *values;

    FL_TRY(check_changed(w, lane, table, msg));
    values = msg->column[0][FL_AT_VALUES].data;
    FL_TRY(fl_grow(&w->geo->delta, &w->geo->delta_capacity,
                   (size_t)t->rows->dim, sizeof(float)));
    for (uint32_t i = 0; i < msg->section[0].n_key; i++, values += width) {
        memcpy(w->geo->delta, values, width);
        FL_TRY(merge_row(t->rows, fl_key_at(&msg->column[0][FL_AT_KEYS], i),
                         w->geo->delta));
    }
    t->since[lane] = msg->section[0].version;
    *found = msg->section[0].n_batch;
    return FLEET_OK;
}

static fleet_status take_changed(fl_worker *w, int lane, int table)
{
    uint32_t found;

    do {
        FL_TRY(fl_worker_wait(w, request_of(w, lane, table), 1, "pull"));
        FL_TRY(merge_changed(w, lane, table, &found));
        if (found == FL_CHANGES_MORE)
            FL_TRY(ask_changed(w, lane, table));
    } while (found == FL_CHANGES_MORE);
    return found == FL_CHANGES_LOST ? fetch_all(w, lane, table) : FLEET_OK;
}

fleet_status fl_geo_take(fl_worker *w)
{
    if (!w->geo->pulling)
        return FLEET_OK;
    FL_TRY(fl_worker_complete(w, FL_DENSE_SLOT));
    for (int l = 0; l < w->n_lane; l++)
        for (int t = 0; t < w->layout.n_table; t++)
            FL_TRY(take_changed(w, l, t));
    w->geo->pulling = false;
    return FLEET_OK;
}

fleet_status fl_geo_refresh(fl_remote *x)
{
    fl_worker *w = (fl_worker *)(void *)x;

    FL_TRY(fl_worker_wait_update(w));
    FL_TRY(fl_geo_take(w));
    FL_TRY(fl_geo_ask(w));
    return fl_geo_take(w);
}
