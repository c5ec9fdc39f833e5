/* key_log.h - which keys of a table became rows, or went, since its last save:
 * a save of what has changed (adr/0122) finds the other changes by the rows'
 * versions, and these by the log.
 *
 * Threads: one at a time, but for fl_key_log_add(), whose keys may be of
 * different parts at once, also while another thread saves what was frozen. */
#pragma once

#include "runtime/store/live_hash.h"

typedef struct fl_key_log fl_key_log;

/* From now on r->keys is kept; it goes with the table. Of a table that has one
 * nothing changes. */
fleet_status fl_key_log_begin(fl_rows *r);
void fl_key_log_end(fl_rows *r);

/* Without memory, or room for one more key, all of it is lost. */
void fl_key_log_add(fl_key_log *log, uint64_t key);

/* Rows have changed in a way that neither versions nor the log tell. */
void fl_key_log_lose(const fl_rows *r);

/* --- a save of the table as it is now ------------------------------------- */

/* What comes later is the next save's. */
void fl_key_log_freeze(const fl_rows *r);

/* Is all known that has changed since the save of that token? `since` is the
 * number of updates that it was made after. Tokens are not 0. */
bool fl_key_log_knows(const fl_rows *r, uint64_t token, uint64_t *since);

/* The keys until it was frozen, by size, each once, for fl_free(). */
fleet_status fl_key_log_keys(const fl_rows *r, uint64_t **key, int64_t *n);

/* What was frozen is in the save of that token. A table without a log has
 * none. */
void fl_key_log_saved(const fl_rows *r, uint64_t token, uint64_t updates);

/* --- for kinds of tables -------------------------------------------------- */

/* A row was made, is about to go, or all are gone. */
static inline void fl_key_log_made(const fl_rows *r, uint64_t key, float *row)
{
    fl_live_hash_in(r, &key, &row, 1);
    if (r->keys)
        fl_key_log_add(r->keys, key);
}

static inline void fl_key_log_gone(const fl_rows *r, uint64_t key, float *row)
{
    fl_live_hash_out(r, &key, &row, 1);
    if (r->keys)
        fl_key_log_add(r->keys, key);
}

static inline void fl_key_log_cleared(const fl_rows *r)
{
    fl_live_hash_clear(r);
    fl_key_log_lose(r);
}
