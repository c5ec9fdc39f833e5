/* snapshot.c - a snapshot of a store: its numbers, its dense parameters, and a
 * snapshot of each table. */
#include "runtime/store/snapshot.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/store/key_log.h"
#include "runtime/store/table_snapshot.h"

struct fl_snapshot {
    int64_t version, updates;
    uint64_t *done;
    int n_stream;
    struct {
        const fl_flat *flat;
        float *copy[1 + FL_MAX_STATE]; /* its weights, its states */
    } * group;
    int n_group;
    struct {
        const fl_rows *rows;
        fl_rows_snapshot *snapshot;
    } * table;
    int n_table;
};

/* --- made, freed ---------------------------------------------------------- */

static fleet_status copy_floats(const float *from, int64_t n, float **copy)
{
    if (!from)
        return FLEET_OK;
    FL_TRY(FL_NEW(copy, (size_t)n * sizeof *from));
    memcpy(*copy, from, (size_t)n * sizeof *from);
    return FLEET_OK;
}

static fleet_status copy_group(fl_snapshot *s, const fl_flat *g)
{
    float **copy = s->group[s->n_group].copy;

    s->group[s->n_group++].flat = g;
    FL_TRY(copy_floats(g->weight, g->n, &copy[0]));
    for (int i = 0; i < FL_MAX_STATE; i++)
        FL_TRY(copy_floats(g->state[i], g->end - g->first, &copy[1 + i]));
    return FLEET_OK;
}

static fleet_status copy_groups(fl_snapshot *s, const fl_store *store)
{
    size_t n = 0;

    for (const fl_flat *g = store->flats; g; g = g->next)
        n++;
    FL_TRY(FL_NEW(&s->group, (n + 1) * sizeof *s->group));
    for (const fl_flat *g = store->flats; g; g = g->next)
        FL_TRY(copy_group(s, g));
    return FLEET_OK;
}

static fleet_status freeze_tables(fl_snapshot *s, const fl_store *store)
{
    FL_TRY(FL_NEW(&s->table, (store->tables.n + 1) * sizeof *s->table));
    for (size_t i = 0; i < store->tables.n; i++) {
        const fl_rows *r = store->tables.entry[i].value;

        s->table[s->n_table].rows = r;
        FL_TRY(fl_table_snapshot(r, &s->table[s->n_table++].snapshot));
    }
    return FLEET_OK;
}

static fleet_status fill(fl_snapshot *s, const fl_store *store,
                         const uint64_t *done, int n_stream)
{
    s->n_stream = n_stream;
    FL_TRY(FL_NEW(&s->done, ((size_t)n_stream + 1) * sizeof *s->done));
    if (n_stream > 0)
        memcpy(s->done, done, (size_t)n_stream * sizeof *s->done);
    FL_TRY(copy_groups(s, store));
    return freeze_tables(s, store);
}

static void end_table(fl_rows_snapshot *s)
{
    if (s)
        s->methods->end(s);
}

static void free_snapshot(fl_snapshot *s)
{
    for (int i = 0; i < s->n_group; i++)
        for (int j = 0; j <= FL_MAX_STATE; j++)
            fl_free(s->group[i].copy[j]);
    for (int i = 0; i < s->n_table; i++)
        end_table(s->table[i].snapshot);
    fl_free(s->group);
    fl_free(s->table);
    fl_free(s->done);
    fl_free(s);
}

fleet_status fl_snapshot_begin(fl_store *store, int64_t version,
                               const uint64_t *done, int n_stream)
{
    fleet_status status;
    fl_snapshot *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->version = version;
    s->updates = store->updates;
    for (size_t i = 0; i < store->tables.n; i++)
        fl_key_log_freeze(store->tables.entry[i].value);
    status = fill(s, store, done, n_stream);
    if (status == FLEET_OK)
        store->snapshot = s;
    else
        free_snapshot(s);
    return status;
}

void fl_snapshot_end(fl_store *store)
{
    if (store->snapshot)
        free_snapshot(store->snapshot);
    store->snapshot = NULL;
}

/* --- reading -------------------------------------------------------------- */

int64_t fl_snapshot_version(const fl_snapshot *s)
{
    return s->version;
}

int64_t fl_snapshot_updates(const fl_snapshot *s)
{
    return s->updates;
}

int fl_snapshot_streams(const fl_snapshot *s, const uint64_t **done)
{
    *done = s->done;
    return s->n_stream;
}

const float *fl_snapshot_floats(const fl_snapshot *s, const fl_flat *g,
                                int state)
{
    for (int i = 0; i < s->n_group; i++)
        if (s->group[i].flat == g)
            return s->group[i].copy[1 + state];
    return NULL;
}

static fl_rows_snapshot *rows_of(const fl_snapshot *s, const fl_rows *r)
{
    for (int i = 0; i < s->n_table; i++)
        if (s->table[i].rows == r)
            return s->table[i].snapshot;
    return NULL;
}

fleet_status fl_snapshot_each(const fl_snapshot *s, const fl_rows *r,
                              fl_row_visitor *visit, void *arg)
{
    fl_rows_snapshot *rows = rows_of(s, r);

    return rows->methods->each(rows, visit, arg);
}

int64_t fl_snapshot_count(const fl_snapshot *s, const fl_rows *r)
{
    return rows_of(s, r)->n;
}

/* --- changes -------------------------------------------------------------- */

fleet_status fl_snapshot_change(const fl_snapshot *s, const fl_rows *r,
                                const uint64_t *key, int64_t n)
{
    fl_rows_snapshot *rows = rows_of(s, r);

    return rows->methods->change(rows, key, n);
}

int64_t fl_snapshot_bytes(const fl_snapshot *s)
{
    int64_t bytes = 0;

    for (int i = 0; i < s->n_table; i++)
        bytes += atomic_load_explicit(&s->table[i].snapshot->bytes,
                                      memory_order_relaxed);
    return bytes;
}
