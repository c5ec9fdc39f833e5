/* change_log.h - which rows of a table have changed since a version, without a
 * look at all of them: keys in the order of their changes. A reader says since
 * which version it asks; nothing is kept of readers.
 *
 * The number of changes is bounded: where room is short a row's last change
 * stays alone, and then the oldest rows are forgotten. A reader of before then
 * has to ask for rows by their keys.
 */
#pragma once

#include "runtime/store/table_api.h"

enum { FL_MOST_CHANGE = 1 << 20 };

typedef struct fl_change {
    uint64_t version, key;
} fl_change;

typedef struct fl_change_log {
    fl_change *at;     /* by version */
    int64_t n, most;   /* most 0: FL_MOST_CHANGE */
    size_t page_bytes; /* of weights in an answer; 0: a piece's */
    size_t capacity;
    uint64_t since; /* it has all changes after this version */
    uint64_t epoch; /* of the table, of which it has them */

    /* the last fl_change_log_read() */
    int64_t n_read;
    uint64_t *key;
    float **row;
    size_t key_capacity, row_capacity;
} fl_change_log;

void fl_change_log_done(fl_change_log *g);

/* These rows have got that version: not below an earlier call's. */
fleet_status fl_change_log_add(fl_change_log *g, fl_rows *rows,
                               const uint64_t *key, int64_t n,
                               uint64_t version);

/* What changed up to that version is not known, of rows as they are now. */
void fl_change_log_forget(fl_change_log *g, const fl_rows *rows,
                          uint64_t version);

typedef enum fl_change_status {
    FL_CHANGES_ALL,
    FL_CHANGES_MORE, /* there are more, after `until` */
    FL_CHANGES_LOST  /* it does not know, or no longer */
} fl_change_status;

/* Rows that changed after version `since`, each once, until about `most` bytes
 * of weights: g->key and g->row. With them a reader has what changed up to
 * version *until; `now` is the table's. LOST brings none, and *until is now. */
fleet_status fl_change_log_read(fl_change_log *g, fl_rows *rows, uint64_t since,
                                uint64_t now, size_t most, uint64_t *until,
                                fl_change_status *found);

/* How many rows it brings at most. */
int64_t fl_change_log_after(const fl_change_log *g, uint64_t since);
