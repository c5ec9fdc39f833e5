/* sharded_table.c - rows are fetched from the ranks that keep them; the remote
 * storage that a plan sees. */
#include "collective/sharded/sharded_table.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "collective/sharded/sharded_internal.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/table.h"

enum { PREFETCH = 8 }; /* rows that are read soon */

int fl_sharded_first_bucket(int rank, int size)
{
    return (rank * FL_N_BUCKET + size - 1) / size;
}

/* --- fetching ------------------------------------------------------------ */

typedef void run_visitor(fl_sharded_tables *s, const fl_sharded_request *q,
                         int table, const fl_pull_part *part,
                         const fl_sharded_run *run);

/* visit NULL: only to count the keys, in s->done. */
static void each_run(fl_sharded_tables *s, const fl_sharded_request *q,
                     run_visitor *visit)
{
    fl_sharded_reset_done(s);
    for (int i = 0; i < q->n_table; i++) {
        int t = fl_sharded_number(s, q->table[i].rows);

        for (int p = 0; p < FL_N_PART; p++) {
            const fl_pull_part *part = &q->table[i].part[p];
            fl_sharded_run run = {.end = 0};

            while (run.end < part->n) {
                run = fl_sharded_next_run(s, p, part->key, NULL, run.end,
                                          part->n);
                if (visit)
                    visit(s, q, t, part, &run);
                s->done[run.owner * s->n_table + t] += run.end - run.begin;
            }
        }
    }
}

static void put_keys(fl_sharded_tables *s, const fl_sharded_request *q,
                     int table, const fl_pull_part *part,
                     const fl_sharded_run *run)
{
    int64_t at = s->done[run->owner * s->n_table + table];

    (void)q;
    memcpy(fl_sharded_item(s, &s->to_keys, run->owner, table, at,
                           fl_sharded_key_size),
           part->key + run->begin,
           (size_t)(run->end - run->begin) * sizeof *part->key);
}

static void take_rows(fl_sharded_tables *s, const fl_sharded_request *q,
                      int table, const fl_pull_part *part,
                      const fl_sharded_run *run)
{
    const float *row = fl_sharded_item(s, &q->rows, run->owner, table,
                                       s->done[run->owner * s->n_table + table],
                                       fl_sharded_row_size);

    for (int64_t i = run->begin; i < run->end; i++, row += s->table[table]->dim)
        part->row[i] = row;
}

/* Rows that do not exist read as their first values. */
static fleet_status read_found(fl_rows *rows, const uint64_t *key, int64_t n,
                               float *out)
{
    float *row[FL_SHARDED_CHUNK];

    FL_TRY(rows->methods->find(rows, key, n, row));
    for (int64_t i = 0; i < n; i++, out += rows->dim) {
        if (i + PREFETCH < n && row[i + PREFETCH])
            __builtin_prefetch(row[i + PREFETCH]);
        if (row[i])
            fl_rows_read(rows, out, row[i]);
        else
            fl_rows_unknown(rows, key[i], out);
    }
    return FLEET_OK;
}

static fleet_status read_chunk(fl_rows *rows, const uint64_t *key, int64_t n,
                               float *out)
{
    fl_wanted_rows wanted = {0};
    fleet_status status = fl_rows_bring(&wanted, rows, key, n);

    if (status == FLEET_OK)
        status = read_found(rows, key, n, out);
    fl_wanted_rows_done(&wanted);
    return status;
}

static fleet_status read_rows(fl_sharded_tables *s, const fl_sharded_buffer *to,
                              int rank, int table)
{
    const uint64_t *key = fl_sharded_keys_of(s, rank, table);
    float *out = fl_sharded_item(s, to, rank, table, 0, fl_sharded_row_size);
    int64_t n = s->from[rank * s->n_table + table];
    fl_rows *rows = s->table[table];

    for (int64_t i = 0; i < n; i += FL_SHARDED_CHUNK)
        FL_TRY(read_chunk(rows, key + i,
                          n - i < FL_SHARDED_CHUNK ? n - i : FL_SHARDED_CHUNK,
                          out + i * rows->dim));
    return FLEET_OK;
}

/* The rows of this rank's own keys are read to where other ranks' rows will
 * come. */
static fleet_status read_all_rows(fl_sharded_tables *s,
                                  const fl_sharded_request *q)
{
    FL_TRY(fl_sharded_reserve(s, &s->to_rows, s->from, fl_sharded_row_size));
    for (int r = 0; r < s->n_rank; r++)
        for (int t = 0; t < s->n_table; t++)
            FL_TRY(read_rows(
                s, r == fl_sharded_rank(s) ? &q->rows : &s->to_rows, r, t));
    return FLEET_OK;
}

/* A call of all ranks; some of them need no rows themselves. */
static fleet_status fetch_rows(fl_sharded_tables *s, fl_sharded_request *q)
{
    each_run(s, q, NULL);
    memcpy(s->to, s->done, (size_t)(s->n_rank * s->n_table) * sizeof *s->to);
    FL_TRY(fl_sharded_exchange_counts(s));
    FL_TRY(fl_sharded_reserve(s, &s->to_keys, s->to, fl_sharded_key_size));
    each_run(s, q, put_keys);
    FL_TRY(fl_sharded_exchange_keys(s));
    FL_TRY(fl_sharded_reserve(s, &q->rows, s->to, fl_sharded_row_size));
    FL_TRY(read_all_rows(s, q));
    FL_TRY(fl_sharded_exchange(s, &s->to_rows, &q->rows));
    each_run(s, q, take_rows);
    return FLEET_OK;
}

fleet_status fl_sharded_serve(fl_sharded_tables *s)
{
    fl_sharded_request nothing = {.rows = s->from_rows};
    fleet_status status = fetch_rows(s, &nothing);

    s->from_rows = nothing.rows; /* it may have moved */
    return status;
}

/* --- the remote ---------------------------------------------------------- */

/* Keys stay where they are until wait_pull(). */
static fleet_status pull_rows(fl_remote *x, int slot, const fl_pull_rows *table,
                              int n_table, bool dense, bool ahead, bool now)
{
    fl_sharded_request *q = &fl_sharded_of(x)->slot[slot];

    (void)dense;
    (void)ahead;
    (void)now;
    q->n_table = 0;
    FL_TRY(fl_grow(&q->table, &q->table_capacity, (size_t)n_table,
                   sizeof *q->table));
    if (n_table > 0)
        memcpy(q->table, table, (size_t)n_table * sizeof *table);
    q->n_table = n_table;
    return FLEET_OK;
}

static fleet_status wait_pull(fl_remote *x, int slot)
{
    fl_sharded_tables *s = fl_sharded_of(x);
    fl_agreed agreed;

    FL_TRY(fl_agree_on(s->agree, FL_INTENT_ROWS, 0, &agreed));
    return fetch_rows(s, &s->slot[slot]);
}

static void drop(fl_remote *x, int slot)
{
    fl_sharded_of(x)->slot[slot].n_table = 0;
}

static fleet_status wait_update(fl_remote *x)
{
    x->updates++;
    return FLEET_OK;
}

/* All ranks have agreed to end the pass. */
static fleet_status end_pass(fl_remote *x, double *totals, int n)
{
    fl_comm *p = fl_sharded_of(x)->agree->comm;

    return p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F64, totals, totals, n,
                                  NULL);
}

static fleet_status refresh(fl_remote *x)
{
    (void)x;
    return FLEET_OK;
}

static const fl_remote_class methods = {
    .pull = pull_rows,
    .wait_pull = wait_pull,
    .drop = drop,
    .clip = fl_sharded_clip,
    .push = fl_sharded_push,
    .wait_update = wait_update,
    .end_pass = end_pass,
    .refresh = refresh,
};

fl_remote *fl_sharded_remote(fl_sharded_tables *s)
{
    return &s->remote;
}

/* --- life ---------------------------------------------------------------- */

static fl_sharded_buffer *buffer_at(fl_sharded_tables *s, int i)
{
    fl_sharded_buffer *fixed[] = {&s->to_keys, &s->from_keys, &s->to_rows,
                                  &s->from_rows};

    return i < 4 ? fixed[i] : &s->slot[i - 4].rows;
}

enum { N_BUFFER = 4 + FL_N_SLOT };

/* All ranks number them alike. */
static fleet_status list_tables(fl_sharded_tables *s)
{
    fl_map_entry *sorted = fl_map_sorted(&s->store->tables);
    int n = 0;

    if (!sorted)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < s->store->tables.n; i++) {
        fl_rows *rows = sorted[i].value;

        if (!rows->remote)
            s->table[n++] = rows;
    }
    fl_free(sorted);
    return FLEET_OK;
}

static fleet_status make_arrays(fl_sharded_tables *s)
{
    size_t n = (size_t)(s->n_rank * s->n_table) + 1;

    FL_TRY(FL_NEW(&s->table, ((size_t)s->n_table + 1) * sizeof *s->table));
    FL_TRY(FL_NEW(&s->sum, ((size_t)s->n_table + 1) * sizeof *s->sum));
    FL_TRY(FL_NEW(&s->to, n * sizeof *s->to));
    FL_TRY(FL_NEW(&s->from, n * sizeof *s->from));
    FL_TRY(FL_NEW(&s->done, n * sizeof *s->done));
    for (int i = 0; i < N_BUFFER; i++)
        FL_TRY(FL_NEW(&buffer_at(s, i)->bytes,
                      ((size_t)s->n_rank + n) * sizeof(int64_t)));
    for (int i = 0; i < N_BUFFER; i++)
        buffer_at(s, i)->at = buffer_at(s, i)->bytes + s->n_rank;
    return list_tables(s);
}

fleet_status fl_sharded_create(fl_sharded_tables **out, fl_store *store,
                               const fl_agree *agree)
{
    fleet_status status;
    fl_sharded_tables *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->remote = (fl_remote){
        .methods = &methods, .sync = true, .updates = store->updates};
    s->agree = agree;
    s->store = store;
    s->n_table = fl_store_own_tables(store);
    s->n_rank = agree->comm->size;
    status = make_arrays(s);
    if (status != FLEET_OK) {
        fl_sharded_destroy(s);
        return status;
    }
    *out = s;
    return FLEET_OK;
}

void fl_sharded_destroy(fl_sharded_tables *s)
{
    if (!s)
        return;
    for (int i = 0; i < N_BUFFER; i++) {
        fl_free(buffer_at(s, i)->bytes);
        fl_free(buffer_at(s, i)->data);
    }
    for (int i = 0; i < FL_N_SLOT; i++)
        fl_free(s->slot[i].table);
    for (int t = 0; s->sum && t < s->n_table; t++) {
        fl_key_set_done(&s->sum[t].set);
        fl_free(s->sum[t].grad);
    }
    fl_free(s->sum);
    fl_free(s->square);
    fl_free(s->sorted);
    fl_free(s->row);
    fl_free(s->key);
    fl_free(s->table);
    fl_free(s->to);
    fl_free(s->from);
    fl_free(s->done);
    fl_free(s);
}
