/* change_log.c - changes in the order of their versions, cut short where room
 * is short. */
#include "ps/change_log.h"

#include <string.h>

#include "base/memory.h"

enum { CHUNK = 1024 };

void fl_change_log_done(fl_change_log *g)
{
    fl_free(g->at);
    fl_free(g->key);
    fl_free(g->row);
    *g = (fl_change_log){0};
}

/* The first change after that version. */
static int64_t first_after(const fl_change_log *g, uint64_t since)
{
    int64_t low = 0, high = g->n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (g->at[middle].version <= since)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t fl_change_log_after(const fl_change_log *g, uint64_t since)
{
    return g->n - first_after(g, since);
}

/* The rows of n changes, at most CHUNK; NULL where a later change of the row is
 * listed, too. */
static fleet_status find_last(fl_rows *rows, const fl_change *at, int64_t n,
                              float **row)
{
    uint64_t key[CHUNK] = {0};

    for (int64_t i = 0; i < n; i++)
        key[i] = at[i].key;
    FL_TRY(rows->methods->find(rows, key, n, row));
    for (int64_t i = 0; i < n; i++)
        if (row[i] && fl_row_of(row[i])->changed_at != at[i].version)
            row[i] = NULL;
    return FLEET_OK;
}

static fleet_status keep_last_changes(fl_change_log *g, fl_rows *rows)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < g->n; i += CHUNK) {
        int64_t n = g->n - i < CHUNK ? g->n - i : CHUNK;
        float *row[CHUNK];

        FL_TRY(find_last(rows, g->at + i, n, row));
        for (int64_t j = 0; j < n; j++)
            if (row[j])
                g->at[kept++] = g->at[i + j];
    }
    g->n = kept;
    return FLEET_OK;
}

/* Whole versions. */
static void forget_oldest(fl_change_log *g, int64_t n)
{
    g->since = g->at[n - 1].version;
    n = first_after(g, g->since);
    memmove(g->at, g->at + n, (size_t)(g->n - n) * sizeof *g->at);
    g->n -= n;
}

/* So that it is long until room is short again. */
static fleet_status make_room(fl_change_log *g, fl_rows *rows)
{
    int64_t most = g->most > 0 ? g->most : FL_MOST_CHANGE;

    if (g->n < most)
        return FLEET_OK;
    FL_TRY(keep_last_changes(g, rows));
    if (g->n > most / 2)
        forget_oldest(g, g->n - most / 2);
    return FLEET_OK;
}

void fl_change_log_forget(fl_change_log *g, const fl_rows *rows,
                          uint64_t version)
{
    g->n = 0;
    g->since = version;
    g->epoch = fl_rows_epoch(rows);
}

fleet_status fl_change_log_add(fl_change_log *g, fl_rows *rows,
                               const uint64_t *key, int64_t n, uint64_t version)
{
    if (g->epoch != fl_rows_epoch(rows)) /* rows have gone */
        fl_change_log_forget(g, rows, version);
    FL_TRY(make_room(g, rows));
    FL_TRY(fl_grow(&g->at, &g->capacity, (size_t)(g->n + n), sizeof *g->at));
    for (int64_t i = 0; i < n; i++)
        g->at[g->n++] = (fl_change){version, key[i]};
    return FLEET_OK;
}

static fleet_status read_chunk(fl_change_log *g, fl_rows *rows, int64_t first,
                               int64_t n)
{
    float *row[CHUNK];

    FL_TRY(find_last(rows, g->at + first, n, row));
    FL_TRY(fl_grow(&g->key, &g->key_capacity, (size_t)(g->n_read + n),
                   sizeof *g->key));
    FL_TRY(fl_grow(&g->row, &g->row_capacity, (size_t)(g->n_read + n),
                   sizeof *g->row));
    for (int64_t i = 0; i < n; i++)
        if (row[i]) {
            g->key[g->n_read] = g->at[first + i].key;
            g->row[g->n_read++] = row[i];
        }
    return FLEET_OK;
}

/* How many changes from this one on are read at once: of one version, so that
 * reading can stop behind it. */
static int64_t chunk_at(const fl_change_log *g, int64_t first)
{
    int64_t n = 1;

    while (n < CHUNK && first + n < g->n &&
           g->at[first + n].version == g->at[first].version)
        n++;
    return n;
}

fleet_status fl_change_log_read(fl_change_log *g, fl_rows *rows, uint64_t since,
                                uint64_t now, size_t most, uint64_t *until,
                                fl_change_status *found)
{
    size_t width = (size_t)rows->dim * sizeof(float);

    g->n_read = 0;
    *until = now;
    *found = FL_CHANGES_LOST;
    if (since < g->since || since > now || g->epoch != fl_rows_epoch(rows))
        return FLEET_OK;
    *found = FL_CHANGES_ALL;
    for (int64_t i = first_after(g, since), n; i < g->n; i += n) {
        n = chunk_at(g, i);
        if ((size_t)g->n_read * width >= most &&
            g->at[i].version != g->at[i - 1].version) {
            *until = g->at[i - 1].version;
            *found = FL_CHANGES_MORE;
            break;
        }
        FL_TRY(read_chunk(g, rows, i, n));
    }
    return FLEET_OK;
}
