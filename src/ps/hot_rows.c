/* hot_rows.c - chunks of rows, an index of their keys, and the clock's hand. */
#include "ps/hot_rows.h"

#include <string.h>

#include "base/memory.h"

enum { CHUNK_ROWS = 8, LEAST_INDEX = 2 * CHUNK_ROWS, ALIGN = 16 };
enum { MOST_LOOKS = 64 }; /* of the hand, for one row */

static fl_hot_row *row_at(const fl_hot_table *t, int64_t number)
{
    return (fl_hot_row *)(void *)(t->chunk[number / CHUNK_ROWS] +
                                  (size_t)(number % CHUNK_ROWS) * t->stride);
}

/* --- the index ------------------------------------------------------------ */

static size_t place_of(const fl_hot_table *t, uint64_t key)
{
    return fl_mix_secretly(fl_mix(key)) & (t->n_index - 1);
}

/* Where the key is, or where it would be put. */
static size_t find_place(const fl_hot_table *t, uint64_t key, size_t from)
{
    size_t i = from;

    while (t->index[i] && row_at(t, t->index[i] - 1)->key != key)
        i = (i + 1) & (t->n_index - 1);
    return i;
}

static void put_key(fl_hot_table *t, uint64_t key, int64_t number)
{
    size_t i = place_of(t, key);

    while (t->index[i])
        i = (i + 1) & (t->n_index - 1);
    t->index[i] = (uint32_t)number + 1;
}

/* What went past the place that gets free comes back to it. */
static void take_key(fl_hot_table *t, uint64_t key)
{
    size_t mask = t->n_index - 1;
    size_t gap = find_place(t, key, place_of(t, key));

    for (size_t i = (gap + 1) & mask; t->index[i]; i = (i + 1) & mask) {
        size_t home = place_of(t, row_at(t, t->index[i] - 1)->key);

        if (((i - home) & mask) < ((i - gap) & mask))
            continue;
        t->index[gap] = t->index[i];
        gap = i;
    }
    t->index[gap] = 0;
}

/* Memory is waited for twice, for the place and for the row: for all keys at
 * once. */
void fl_hot_rows_find(const fl_hot_table *t, const uint64_t *key, int64_t n,
                      fl_hot_row **row)
{
    size_t place[FL_HOT_AT_ONCE];

    for (int64_t i = 0; i < n; i++) {
        place[i] = place_of(t, key[i]);
        __builtin_prefetch(&t->index[place[i]]);
    }
    for (int64_t i = 0; i < n; i++)
        if (t->index[place[i]])
            __builtin_prefetch(row_at(t, t->index[place[i]] - 1));
    for (int64_t i = 0; i < n; i++) {
        uint32_t number = t->index[find_place(t, key[i], place[i])];

        row[i] = number ? row_at(t, number - 1) : NULL;
    }
}

/* --- memory --------------------------------------------------------------- */

static size_t chunk_bytes(const fl_hot_table *t)
{
    return CHUNK_ROWS * t->stride;
}

/* Half of it is free at least. */
static size_t index_for(const fl_hot_table *t)
{
    size_t n = t->n_index ? t->n_index : LEAST_INDEX;

    return 2 * (t->n_chunk + 1) * CHUNK_ROWS > n ? 2 * n : n;
}

static fleet_status widen_index(fl_hot_table *t, size_t n)
{
    uint32_t *index;

    if (n == t->n_index)
        return FLEET_OK;
    FL_TRY(FL_NEW(&index, n * sizeof *index));
    fl_free(t->index);
    t->index = index;
    t->n_index = n;
    for (int64_t i = 0; i < t->n; i++)
        put_key(t, row_at(t, i)->key, i);
    return FLEET_OK;
}

static fleet_status add_chunk(fl_hot_rows *h, fl_hot_table *t)
{
    size_t n_index = index_for(t);
    size_t more = chunk_bytes(t) + (n_index - t->n_index) * sizeof *t->index;

    FL_TRY(fl_grow(&t->chunk, &t->chunk_capacity, t->n_chunk + 1,
                   sizeof *t->chunk));
    FL_TRY(FL_NEW(&t->chunk[t->n_chunk], chunk_bytes(t)));
    if (widen_index(t, n_index) != FLEET_OK) {
        fl_free(t->chunk[t->n_chunk]);
        return FLEET_ENOMEM;
    }
    t->n_chunk++;
    h->bytes += more;
    return FLEET_OK;
}

/* Without memory the rows that there are have to do. */
static bool has_place(fl_hot_rows *h, fl_hot_table *t)
{
    size_t more =
        chunk_bytes(t) + (index_for(t) - t->n_index) * sizeof *t->index;

    if (t->n < (int64_t)t->n_chunk * CHUNK_ROWS)
        return true;
    if (h->bytes + more > h->most ||
        t->n + CHUNK_ROWS > (int64_t)UINT32_MAX / 2)
        return false;
    if (add_chunk(h, t) == FLEET_OK)
        return true;
    fl_error_clear();
    h->most = h->bytes;
    return false;
}

/* --- rows ----------------------------------------------------------------- */

/* A row that no batch has used, which goes; -1: the hand has found none. */
static int64_t find_unused(fl_hot_rows *h, fl_hot_table *t)
{
    int64_t looks = 2 * t->n < MOST_LOOKS ? 2 * t->n : MOST_LOOKS;

    for (int64_t i = 0; i < looks; i++) {
        int64_t number = t->hand;
        fl_hot_row *row = row_at(t, number);

        t->hand = number + 1 < t->n ? number + 1 : 0;
        if (row->slots)
            continue;
        if (row->used) {
            row->used = false;
            continue;
        }
        take_key(t, row->key);
        h->n_replaced++;
        return number;
    }
    return -1;
}

fl_hot_row *fl_hot_rows_add(fl_hot_rows *h, fl_hot_table *t, uint64_t key)
{
    int64_t number = has_place(h, t) ? t->n++ : find_unused(h, t);
    fl_hot_row *row;

    if (number < 0)
        return NULL;
    row = row_at(t, number);
    *row = (fl_hot_row){.key = key};
    put_key(t, key, number);
    return row;
}

int64_t fl_hot_rows_count(const fl_hot_rows *h)
{
    int64_t n = 0;

    for (int i = 0; i < h->n_table; i++)
        n += h->table[i].n;
    return n;
}

/* --- life ----------------------------------------------------------------- */

static size_t stride_of(int64_t dim)
{
    size_t bytes = sizeof(fl_hot_row) + (size_t)dim * sizeof(float);

    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static fleet_status make_tables(fl_hot_rows *h, const fl_rows *const *table)
{
    size_t least = 0;

    for (int i = 0; i < h->n_table; i++) {
        h->table[i].dim = table[i]->dim;
        h->table[i].stride = stride_of(table[i]->dim);
        least += chunk_bytes(&h->table[i]) + LEAST_INDEX * sizeof(uint32_t);
    }
    if (h->most < least)
        return fl_fail(FLEET_EINVAL,
                       "strategy.a_sync_configs.vocab_cache_size: expected at "
                       "least %zu bytes, for %d rows of each of %d tables, got "
                       "%zu",
                       least, CHUNK_ROWS, h->n_table, h->most);
    for (int i = 0; i < h->n_table; i++)
        FL_TRY(add_chunk(h, &h->table[i]));
    return FLEET_OK;
}

fleet_status fl_hot_rows_make(fl_hot_rows *h, const fl_rows *const *table,
                              int n_table, size_t most)
{
    fleet_status status;

    fl_secret_draw();
    *h = (fl_hot_rows){.n_table = n_table, .most = most};
    status = FL_NEW(&h->table, ((size_t)n_table + 1) * sizeof *h->table);
    if (status == FLEET_OK)
        status = make_tables(h, table);
    if (status != FLEET_OK)
        fl_hot_rows_done(h);
    return status;
}

void fl_hot_rows_done(fl_hot_rows *h)
{
    for (int i = 0; h->table && i < h->n_table; i++) {
        fl_hot_table *t = &h->table[i];

        for (size_t j = 0; j < t->n_chunk; j++)
            fl_free(t->chunk[j]);
        fl_free(t->chunk);
        fl_free(t->index);
    }
    fl_free(h->table);
    *h = (fl_hot_rows){0};
}
