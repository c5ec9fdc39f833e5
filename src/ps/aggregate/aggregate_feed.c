/* aggregate_feed.c - rows and blocks for subscribers.
 *
 * A walk sends rows up to a version, that of its beginning, and leaves rows
 * that have changed since to the list, which goes on from that moment: so no
 * change comes twice, and a place that another row has got meanwhile is of no
 * interest. Rows that were written by hand just before have the version of the
 * next update: then the walk goes up to that one, and its rows may come twice.
 */
#include "ps/aggregate/aggregate_feed.h"

#include <string.h>

#include "ps/aggregate/aggregate_internal.h"
#include "runtime/store/table.h"

enum { CHUNK = 256 };

/* --- positions ------------------------------------------------------------ */

void fl_aggregate_feed_begin(const fl_aggregate *u, uint64_t epoch,
                             uint64_t since, fl_feed_position *p)
{
    uint64_t dense = since == FL_FEED_ALL ? 0 : p->dense;
    uint64_t limit = (uint64_t)u->layout->store->updates;

    if (u->feed->written > limit)
        limit = u->feed->written;
    *p = (fl_feed_position){.epoch = epoch,
                            .version = since == FL_FEED_ALL ? 0 : since,
                            .end = u->feed->end,
                            .dense = dense,
                            .table = u->layout->n_table > 0,
                            .since = since,
                            .limit = limit};
}

fleet_status fl_aggregate_feed_check(const fl_aggregate *u,
                                     const fl_feed_position *p)
{
    if (p->end > u->feed->end || p->dense > u->feed->dense ||
        p->table > (uint64_t)u->layout->n_table || p->bucket >= FL_N_BUCKET)
        return fl_fail(FLEET_EINVAL,
                       "a position that this feed has not come to");
    return FLEET_OK;
}

bool fl_aggregate_feed_has_all(const fl_aggregate *u, const fl_feed_position *p)
{
    return p->table == 0 && p->end == u->feed->end;
}

/* --- rows ----------------------------------------------------------------- */

static bool has_room(const fl_feed_rows *a)
{
    return a->n < FL_SLICE_ROWS && a->bytes < FL_SLICE_BYTES;
}

static bool is_full(const fl_feed_rows *a)
{
    return !has_room(a) || a->looked >= FL_SLICE_ROWS;
}

/* The table's number in the answer; -1: it has too many. */
static int place_of_table(fl_feed_rows *a, int table)
{
    int i = 0;

    while (i < a->n_table && a->table[i] != table)
        i++;
    if (i == FL_SLICE_TABLES)
        return -1;
    if (i == a->n_table)
        a->table[a->n_table++] = table;
    return i;
}

static void add_row(fl_feed_rows *a, int place, uint64_t key, const float *row,
                    int64_t dim)
{
    a->at[a->n++] = (fl_feed_row){key, row, place};
    a->bytes += 2 * sizeof key + (row ? (size_t)dim * sizeof *row : 0);
}

/* Of a version that the walk brings? */
static bool is_of_walk(const fl_feed_position *p, uint64_t version)
{
    return version <= p->limit &&
           (p->since == FL_FEED_ALL || version > p->since);
}

/* Places of a bucket; it goes on in the next one if it came to the end. */
static void walk_bucket(const fl_aggregate *u, fl_feed_position *p, int place,
                        fl_feed_rows *a)
{
    const fl_rows *rows = u->layout->table[p->table - 1];
    const fl_table_bucket b = fl_table_bucket_of(rows, (int)p->bucket);
    const fl_page_layout layout = fl_table_layout(rows);

    a->looked++;
    for (; p->place < (uint64_t)b.n && !is_full(a); p->place++) {
        const fl_row_head *head =
            fl_place_at(&layout, b.page, (int64_t)p->place);

        a->looked++;
        if (!head->erased && is_of_walk(p, head->changed_at))
            add_row(a, place, *fl_place_key(&layout, b.page, (int64_t)p->place),
                    (const float *)(const void *)(head + 1), rows->dim);
    }
    if (p->place < (uint64_t)b.n)
        return;
    p->place = 0;
    p->bucket++;
}

static void walk_tables(const fl_aggregate *u, fl_feed_position *p,
                        fl_feed_rows *a)
{
    while (p->table > 0 && !is_full(a)) {
        int table = (int)p->table - 1, place;

        if (u->layout->table[table]->watch && p->bucket < FL_N_BUCKET) {
            place = place_of_table(a, table);
            if (place < 0)
                return;
            walk_bucket(u, p, place, a);
            continue;
        }
        p->bucket = p->place = 0;
        p->table++;
        if (p->table > (uint64_t)u->layout->n_table)
            p->table = 0;
    }
    if (p->table == 0 && p->version + 1 < p->limit)
        p->version = p->limit - 1; /* of limit some may be in the list */
}

/* A change is told at the last entry that is of it: by then the row has that
 * version, or is gone. */
static void add_change(fl_feed_rows *a, int place, const fl_rows *rows,
                       const fl_feed_change *c, float *row)
{
    if (c->gone ? row == NULL : row && fl_row_of(row)->changed_at == c->version)
        add_row(a, place, c->key, row, rows->dim);
}

/* How many of the next changes are of the same table, CHUNK at most. */
static int run_of_table(const fl_feed_log *g, uint64_t first)
{
    int n = 1;

    while (n < CHUNK && first + (uint64_t)n < g->end &&
           fl_feed_log_at(g, first + (uint64_t)n)->table ==
               fl_feed_log_at(g, first)->table)
        n++;
    return n;
}

static fleet_status read_run(const fl_aggregate *u, fl_feed_position *p,
                             int place, int n, fl_feed_rows *a)
{
    const fl_feed_log *g = u->feed;
    fl_rows *rows = u->layout->table[fl_feed_log_at(g, p->end)->table];
    uint64_t key[CHUNK] = {0};
    float *row[CHUNK];

    for (int i = 0; i < n; i++)
        key[i] = fl_feed_log_at(g, p->end + (uint64_t)i)->key;
    FL_TRY(rows->methods->find(rows, key, n, row));
    a->looked += n;
    for (int i = 0; i < n && has_room(a); i++, p->end++)
        add_change(a, place, rows, fl_feed_log_at(g, p->end), row[i]);
    return FLEET_OK;
}

static fleet_status read_list(const fl_aggregate *u, fl_feed_position *p,
                              fl_feed_rows *a)
{
    const fl_feed_log *g = u->feed;

    while (p->end < g->end && !is_full(a)) {
        int place = place_of_table(a, fl_feed_log_at(g, p->end)->table);

        if (place < 0)
            break;
        FL_TRY(read_run(u, p, place, run_of_table(g, p->end), a));
    }
    if (p->end == g->end)
        p->version = (uint64_t)u->layout->store->updates;
    else if (fl_feed_log_at(g, p->end)->version > p->version + 1)
        p->version = fl_feed_log_at(g, p->end)->version - 1;
    return FLEET_OK;
}

fleet_status fl_aggregate_feed_rows(const fl_aggregate *u, fl_feed_position *p,
                                    fl_feed_rows *rows)
{
    rows->n = rows->looked = rows->n_table = 0;
    rows->bytes = 0;
    if (p->table > 0)
        walk_tables(u, p, rows);
    /* the list may have gone on without a walk that took long */
    return p->table > 0 || p->end < u->feed->begin ? FLEET_OK
                                                   : read_list(u, p, rows);
}

/* --- sections ------------------------------------------------------------- */

static void write_gone(const fl_feed_rows *a, int place, uint32_t n,
                       fl_msg_writer *w)
{
    fl_section *s =
        fl_msg_section(w, FL_SECTION_GONE, (uint32_t)a->table[place]);
    uint64_t *key;

    if (!s)
        return;
    s->n_key = n;
    key = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *key);
    for (int i = 0; key && i < a->n; i++)
        if (a->at[i].table == place && !a->at[i].row)
            *key++ = a->at[i].key;
}

static void write_rows(const fl_rows *rows, const fl_feed_rows *a, int place,
                       uint32_t n, fl_msg_writer *w)
{
    fl_section *s =
        fl_msg_section(w, FL_SECTION_ROWS, (uint32_t)a->table[place]);
    uint64_t *key, *version;
    float *value;

    if (!s)
        return;
    s->n_key = n;
    key = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *key);
    value = fl_msg_column(w, FL_COLUMN_VALUES,
                          n * (size_t)rows->dim * sizeof *value);
    version = fl_msg_column(w, FL_COLUMN_VERSIONS, n * sizeof *version);
    for (int i = 0; key && value && version && i < a->n; i++) {
        float *row = (float *)(uintptr_t)a->at[i].row;

        if (a->at[i].table != place || !row)
            continue;
        *key++ = a->at[i].key;
        *version++ = fl_row_of(row)->changed_at;
        fl_rows_read(rows, value, row);
        value += rows->dim;
    }
}

void fl_aggregate_feed_write(const fl_aggregate *u, const fl_feed_rows *rows,
                             fl_msg_writer *w)
{
    uint32_t here[FL_SLICE_TABLES] = {0}, gone[FL_SLICE_TABLES] = {0};

    for (int i = 0; i < rows->n; i++)
        ++*(rows->at[i].row ? &here[rows->at[i].table]
                            : &gone[rows->at[i].table]);
    for (int i = 0; i < rows->n_table; i++) {
        if (here[i] > 0)
            write_rows(u->layout->table[rows->table[i]], rows, i, here[i], w);
        if (gone[i] > 0)
            write_gone(rows, i, gone[i], w);
    }
}

/* --- blocks --------------------------------------------------------------- */

static bool has_changed(const fl_aggregate *u, const fl_feed_position *p,
                        const fl_aggregate_block *b)
{
    return fl_feed_log_block_at(u->feed, b->number, b->block) > p->dense;
}

size_t fl_aggregate_feed_dense(const fl_aggregate *u, const fl_feed_position *p)
{
    size_t bytes = 0;

    for (int i = 0; i < u->n_block && p->dense < u->feed->dense; i++)
        if (has_changed(u, p, &u->block[i]))
            bytes += (size_t)u->block[i].n * sizeof(float);
    return bytes;
}

size_t fl_aggregate_feed_most_dense(const fl_aggregate *u)
{
    size_t bytes = 0;

    for (int i = 0; i < u->n_block; i++)
        bytes += (size_t)u->block[i].n * sizeof(float);
    return bytes;
}

void fl_aggregate_feed_blocks(const fl_aggregate *u, fl_feed_position *p,
                              fl_msg_writer *w)
{
    size_t bytes = fl_aggregate_feed_dense(u, p);
    uint64_t *key;
    fl_section *s;
    float *value;
    uint32_t n = 0;

    for (int i = 0; i < u->n_block; i++)
        n += has_changed(u, p, &u->block[i]);
    s = n > 0 ? fl_msg_section(w, FL_SECTION_DENSE, 0) : NULL;
    if (!s) {
        p->dense = u->feed->dense;
        return;
    }
    s->n_key = n;
    s->version = (uint64_t)u->layout->store->updates;
    key = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *key);
    value = fl_msg_column(w, FL_COLUMN_VALUES, bytes);
    for (int i = 0; key && value && i < u->n_block; i++) {
        const fl_aggregate_block *b = &u->block[i];

        if (!has_changed(u, p, b))
            continue;
        *key++ = fl_block_key(b->number, b->block);
        memcpy(value,
               b->param->flat->weight + fl_block_offset(b->param, b->block),
               (size_t)b->n * sizeof *value);
        value += b->n;
    }
    p->dense = u->feed->dense;
}
