/* table_each.c - walks over all rows of a table, and what it has. */
#include <stdlib.h>

#include "runtime/store/table_internal.h"

/* --- each, each_changed --------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const fl_row_entry *)a)->key;
    uint64_t y = ((const fl_row_entry *)b)->key;

    return x < y ? -1 : x > y;
}

fleet_status fl_table_visit(fl_row_entry *entry, int64_t places, int bucket,
                            const fl_table_walk *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < places; i++) {
        const fl_row_head *head = entry[i].place;

        entry[n] = entry[i];
        n += !head->erased && (w->all || head->changed_at > w->since);
    }
    if (n > 1)
        qsort(entry, (size_t)n, sizeof *entry, by_key);
    for (int64_t i = 0; i < n; i++)
        FL_TRY(w->visit(w->arg, bucket, entry[i].key,
                        (const float *)(const void *)(entry[i].place + 1)));
    return FLEET_OK;
}

static fleet_status walk_bucket(const fl_table *t, int index,
                                const fl_table_walk *w)
{
    const fl_row_bucket *b = &t->bucket[index];
    fl_row_entry *entry = fl_alloc_array((size_t)b->n, sizeof *entry);
    fleet_status status = FLEET_ENOMEM;

    for (int64_t i = 0; entry && i < b->n; i++)
        entry[i] = (fl_row_entry){*fl_place_key(&t->layout, b->page, i),
                                  fl_place_at(&t->layout, b->page, i)};
    if (entry)
        status = fl_table_visit(entry, b->n, index, w);
    fl_free(entry);
    return status;
}

static fleet_status walk_table(const fl_rows *r, const fl_table_walk *w)
{
    const fl_table *t = fl_table_of(r);

    for (int i = 0; i < FL_N_BUCKET; i++)
        if (t->bucket[i].n > 0)
            FL_TRY(walk_bucket(t, i, w));
    return FLEET_OK;
}

fleet_status fl_table_each(const fl_rows *r, fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.all = true, .visit = visit, .arg = arg});
}

fleet_status fl_table_each_changed(const fl_rows *r, uint64_t since,
                                   fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.since = since, .visit = visit, .arg = arg});
}

/* --- stat ----------------------------------------------------------------- */

static uint64_t newest_of(const fl_table *t, const fl_row_bucket *b)
{
    uint64_t newest = 0;

    for (int64_t i = 0; i < b->n; i++) {
        uint64_t at = fl_place_at(&t->layout, b->page, i)->changed_at;

        newest = at > newest ? at : newest;
    }
    return newest;
}

/* What is left of a slab when the next one is cut is lost, and not counted. */
fleet_status fl_table_stat(const fl_rows *r, fl_rows_stat *stat)
{
    const fl_table *t = fl_table_of(r);
    uint64_t places = 0;

    *stat = (fl_rows_stat){.epoch = fl_rows_epoch(r)};
    for (int i = 0; i < FL_N_BUCKET; i++) {
        const fl_row_bucket *b = &t->bucket[i];
        uint64_t newest = newest_of(t, b);

        stat->rows += b->n - b->holes;
        places += (uint64_t)b->n_page << t->layout.shift;
        stat->index_bytes +=
            b->n_line * sizeof *b->line + b->page_capacity * sizeof *b->page;
        if (newest > stat->changed_at)
            stat->changed_at = newest;
    }
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_table_slab *s = t->slab[p];

        stat->free_bytes += fl_buddy_free_bytes(&t->index[p][0]) +
                            fl_buddy_free_bytes(&t->index[p][1]);
        if (s)
            stat->free_bytes += s->size - sizeof *s - s->used;
    }
    stat->row_bytes = (uint64_t)stat->rows * fl_table_place(t);
    stat->free_bytes += places * fl_table_place(t) - stat->row_bytes;
    return FLEET_OK;
}
