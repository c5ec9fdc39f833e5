/* feed_log.c - a ring of changes. */
#include "ps/feed_log.h"

#include "base/memory.h"

static void add_change(fl_feed_log *g, uint64_t key, uint64_t version,
                       int table, bool gone)
{
    g->ring[g->end++ & (g->room - 1)] =
        (fl_feed_change){.key = key,
                         .version = version & (((uint64_t)1 << 47) - 1),
                         .table = (uint16_t)table,
                         .gone = gone};
    if (g->end - g->begin > g->room)
        g->begin = g->end - g->room;
    if (gone)
        g->gone_end = g->end;
}

void fl_feed_log_rows(fl_feed_log *g, int table, const uint64_t *key, int64_t n,
                      uint64_t version)
{
    if (!g->layout->table[table]->watch)
        return;
    for (int64_t i = 0; i < n; i++)
        add_change(g, key[i], version, table, false);
}

/* --- what no update says -------------------------------------------------- */

static void note_row(fl_change_watch *w, const fl_rows *rows, uint64_t key,
                     uint64_t version, bool gone)
{
    fl_feed_log *g = (fl_feed_log *)(void *)w;
    int table = 0;

    while (g->layout->table[table] != rows)
        table++;
    add_change(g, key, gone ? (uint64_t)g->layout->store->updates : version,
               table, gone);
    if (!gone)
        g->written = version;
}

static void note_weights(fl_change_watch *w, const char *param, int64_t first,
                         int64_t n)
{
    fl_feed_log *g = (fl_feed_log *)(void *)w;
    int number = fl_partition_param(g->layout, param);

    if (number < 0 || n == 0)
        return; /* the workers', which are ranks */
    fl_feed_log_next(g);
    for (int64_t b = first / FL_BLOCK; b <= (first + n - 1) / FL_BLOCK; b++)
        fl_feed_log_block(g, number, b);
}

/* --- life ----------------------------------------------------------------- */

/* Filters' counts are no parameters: they are of no use without training. */
static bool is_told(const fl_rows *r)
{
    return !r->counts;
}

static fleet_status check_tables(const fl_partition *l)
{
    if (l->n_table > UINT16_MAX)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "a feed of %d tables, which is more than %d", l->n_table,
                       UINT16_MAX);
    for (int i = 0; i < l->n_table; i++)
        if (l->table[i]->methods->want)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "table \"%.200s\" has rows out of memory (a cap): "
                           "there is no feed of such a table in this version",
                           l->table[i]->name);
    return FLEET_OK;
}

static fleet_status make_blocks(fl_feed_log *g)
{
    const fl_partition *l = g->layout;

    FL_TRY(FL_NEW(&g->first, ((size_t)l->n_param + 1) * sizeof *g->first));
    for (int i = 0; i < l->n_param; i++)
        g->first[i + 1] = g->first[i] + fl_blocks_of(l->param[i]);
    return FL_NEW(&g->block,
                  ((size_t)g->first[l->n_param] + 1) * sizeof *g->block);
}

static void listen_to(fl_feed_log *g, fl_change_watch *watch)
{
    const fl_partition *l = g->layout;

    l->store->watch = watch;
    for (int i = 0; i < l->n_table; i++)
        if (is_told(l->table[i]))
            l->table[i]->watch = watch;
}

fleet_status fl_feed_log_begin(fl_feed_log *g, const fl_partition *layout,
                               int64_t most)
{
    fleet_status status;

    *g = (fl_feed_log){
        .watch = {note_row, note_weights}, .layout = layout, .room = 1};
    FL_TRY(check_tables(layout));
    while (g->room < (uint64_t)(most > 0 ? most : FL_FEED_CHANGES))
        g->room *= 2;
    status = FL_NEW(&g->ring, g->room * sizeof *g->ring);
    if (status == FLEET_OK)
        status = make_blocks(g);
    if (status != FLEET_OK) {
        fl_feed_log_done(g);
        return status;
    }
    fl_feed_log_restart(g);
    listen_to(g, &g->watch);
    return FLEET_OK;
}

void fl_feed_log_restart(fl_feed_log *g)
{
    const fl_partition *l = g->layout;

    g->begin = g->end;
    fl_feed_log_next(g);
    for (int64_t i = 0; i < g->first[l->n_param]; i++)
        g->block[i] = g->dense;
}

void fl_feed_log_done(fl_feed_log *g)
{
    if (g->ring && g->first && g->block)
        listen_to(g, NULL);
    fl_free(g->ring);
    fl_free(g->block);
    fl_free(g->first);
    *g = (fl_feed_log){0};
}
