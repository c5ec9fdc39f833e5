/* load_tables.c - versions and marks, moved with the number of updates, and how
 * unknown rows start. */
#include "fleet/save/load_tables.h"

#include "runtime/life/age.h"
#include "runtime/store/table.h"

void fl_load_move_ages(const fl_store *store, int64_t to, bool rows)
{
    const int64_t by = to - store->updates;

    for (size_t i = 0; by != 0 && i < store->tables.n; i++) {
        fl_rows *r = store->tables.entry[i].value;

        if (r->life)
            fl_age_move(r->life, by);
        if (rows && !r->remote)
            fl_rows_move_versions(r, by);
    }
}

const fl_rows *fl_load_counted(const fl_store *store, const fl_rows *counts)
{
    const fl_rows *of = counts;

    for (size_t i = 0; i < store->tables.n; i++) {
        const fl_rows *r = store->tables.entry[i].value;

        if (r->life &&
            (r->life->waiting == counts || r->life->filter == counts))
            of = r;
    }
    return of;
}

void fl_load_begin_life(const fl_store *store, fl_life *life, bool stays)
{
    if (!stays)
        life->loaded_at = (uint64_t)store->updates;
    life->emptied_at = 0;
    life->n_mark = 0;
}

void fl_load_take_filler(const fl_store *store, const fl_saved_item *item,
                         fl_rows *r)
{
    int64_t vector_at = r->filler.vector_at;

    r->filler = item->filler;
    if (store->optimizer)
        r->filler.vector_at = vector_at;
}
