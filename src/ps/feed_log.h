/* feed_log.h - what of a lane has changed, in order, for its subscribers: a
 * ring of keys, of all tables that servers keep, numbered from 0 on, and of
 * each dense block when it changed last. The newest changes overwrite the
 * oldest; nothing is kept of readers. docs/adr/0065 has why. */
#pragma once

#include "ps/partition.h"

enum { FL_FEED_CHANGES = 1 << 20 }; /* in the ring: 16 MB */

typedef struct fl_feed_change {
    uint64_t key;
    uint64_t version : 47, table : 16, gone : 1;
} fl_feed_change;

_Static_assert(sizeof(fl_feed_change) == 16, "two words");

typedef struct fl_feed_log {
    fl_change_watch watch; /* first: rows that go, writes by hand */
    const fl_partition *layout;
    fl_feed_change *ring; /* change i at i modulo `room`, a power of 2 */
    uint64_t room;
    uint64_t begin, end; /* it has changes begin .. end - 1 */
    uint64_t gone_end;   /* behind the last row that has gone; 0: none has */
    uint64_t written;    /* the newest version of rows written by hand */

    /* by block, in the order of parameters' numbers and blocks; all of a
     * parameter, whichever of them the lane has */
    uint64_t dense;  /* how often blocks have changed */
    uint64_t *block; /* the `dense` of its last change */
    int64_t *first;  /* by parameter: its first block; n_param + 1 */
} fl_feed_log;

/* From now on it hears of rows that go, and of writes. most: changes, 0:
 * FL_FEED_CHANGES. FLEET_EUNSUPPORTED names a table that it cannot be of. */
fleet_status fl_feed_log_begin(fl_feed_log *g, const fl_partition *layout,
                               int64_t most);
void fl_feed_log_done(fl_feed_log *g);

/* All is another: nothing that a reader has can be continued. */
void fl_feed_log_restart(fl_feed_log *g);

/* Rows of a table have got that version. */
void fl_feed_log_rows(fl_feed_log *g, int table, const uint64_t *key, int64_t n,
                      uint64_t version);

/* One more change of blocks begins; a block of it. */
static inline void fl_feed_log_next(fl_feed_log *g)
{
    g->dense++;
}

static inline void fl_feed_log_block(fl_feed_log *g, int param, int64_t block)
{
    g->block[g->first[param] + block] = g->dense;
}

static inline uint64_t fl_feed_log_block_at(const fl_feed_log *g, int param,
                                            int64_t block)
{
    return g->block[g->first[param] + block];
}

/* Change number i, begin <= i < end. */
static inline const fl_feed_change *fl_feed_log_at(const fl_feed_log *g,
                                                   uint64_t i)
{
    return &g->ring[i & (g->room - 1)];
}
