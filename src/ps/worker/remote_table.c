/* remote_table.c - a table's methods for a worker: all of them refuse, or do
 * nothing. */
#include "ps/worker/remote_table.h"

#include "base/memory.h"

static fleet_status not_here(const fl_rows *r)
{
    return fl_fail(FLEET_ESTATE, "the rows of table \"%s\" are on the servers",
                   r->name);
}

static fleet_status remote_find(fl_rows *r, const uint64_t *key, int64_t n,
                                float **row)
{
    (void)key;
    (void)n;
    (void)row;
    return not_here(r);
}

static fleet_status remote_set_state(fl_rows *r, int n_state, int n_row,
                                     float initial)
{
    fl_rows_note_state(r, n_state, n_row, initial);
    return FLEET_OK;
}

static fleet_status remote_set_storage(fl_rows *r, fleet_row_storage storage)
{
    r->storage = storage;
    return FLEET_OK;
}

static int64_t remote_count(const fl_rows *r)
{
    (void)r;
    return 0;
}

static void remote_clear(fl_rows *r)
{
    (void)r;
}

static fleet_status remote_erase(fl_rows *r, const uint64_t *key, int64_t n,
                                 int64_t *erased)
{
    (void)key;
    (void)n;
    *erased = 0;
    return not_here(r);
}

static fleet_status remote_each(const fl_rows *r, fl_row_visitor *visit,
                                void *arg)
{
    (void)visit;
    (void)arg;
    return not_here(r);
}

static fleet_status remote_each_changed(const fl_rows *r, uint64_t since,
                                        fl_row_visitor *visit, void *arg)
{
    (void)since;
    return remote_each(r, visit, arg);
}

static fleet_status remote_stat(const fl_rows *r, fl_rows_stat *stat)
{
    *stat = (fl_rows_stat){0};
    return not_here(r);
}

static void remote_destroy(fl_rows *r)
{
    fl_free(r);
}

static const fl_rows_class methods = {
    .find = remote_find,
    .make = remote_find,
    .set_state = remote_set_state,
    .set_storage = remote_set_storage,
    .count = remote_count,
    .clear = remote_clear,
    .erase = remote_erase,
    .each = remote_each,
    .each_changed = remote_each_changed,
    .stat = remote_stat,
    .destroy = remote_destroy,
};

fleet_status fl_remote_rows_make(const char *name, int64_t dim, int64_t modulo,
                                 const fl_filler *filler, fl_rows **rows)
{
    FL_TRY(FL_NEW(rows, sizeof **rows));
    fl_rows_init(*rows, &methods, name, dim, modulo, filler);
    (*rows)->remote = true;
    return FLEET_OK;
}
