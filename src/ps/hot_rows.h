/* hot_rows.h - rows of the servers' tables that a worker keeps, within a bound
 * in bytes: found by key, and replaced as by a clock, whose hand goes around
 * and takes the first row that was not used since it came by last. What they
 * are good for is hot_pull.h's.
 *
 * A row does not move. One that a pull slot points to is not replaced until the
 * slot lets it go; its values may become newer ones meanwhile. */
#pragma once

#include "runtime/store/table_api.h"

typedef struct fl_hot_row {
    uint64_t key;
    uint64_t version; /* of its lane, that the values are of */
    uint32_t life;    /* of its lane's rows then (ps/aggregate/aggregate.h) */
    uint32_t batch;   /* of this worker, that asked for them */
    uint32_t asked;   /* the last one that did */
    uint8_t slots;    /* bits of the pull slots that point to it */
    bool used;        /* since the hand came by */
    bool narrow;      /* its values have travelled in fewer bytes */
    bool trained;     /* it was given to a batch whose rows are pushed: it has
                         changed since, or will soon */
} fl_hot_row;         /* its values follow it */

/* Rows of a table. Memory comes in chunks, which stay. */
typedef struct fl_hot_table {
    int64_t dim;
    size_t stride; /* of a row, its values included */
    char **chunk;
    size_t n_chunk, chunk_capacity;
    int64_t n, hand; /* rows; where the hand is */
    uint32_t *index; /* open addressing: number of the row + 1 */
    size_t n_index;
} fl_hot_table;

typedef struct fl_hot_rows {
    fl_hot_table *table;
    int n_table;
    size_t most, bytes; /* allowed; taken by rows and what finds them */
    uint64_t n_replaced;
} fl_hot_rows;

static inline float *fl_hot_values(fl_hot_row *row)
{
    return (float *)(void *)(row + 1);
}

/* Nothing is kept yet. FLEET_EINVAL: not every table has room for its first
 * rows; the text says how much has. FLEET_ENOMEM. */
fleet_status fl_hot_rows_make(fl_hot_rows *h, const fl_rows *const *table,
                              int n_table, size_t most);
void fl_hot_rows_done(fl_hot_rows *h);

enum { FL_HOT_AT_ONCE = 64 };

/* row[i] of key[i], n of them, at most FL_HOT_AT_ONCE; NULL: it is not kept. */
void fl_hot_rows_find(const fl_hot_table *t, const uint64_t *key, int64_t n,
                      fl_hot_row **row);

/* A row for a key that has none: its head is zero but for the key, its values
 * are the caller's to write. NULL: all that could be replaced are in use. */
fl_hot_row *fl_hot_rows_add(fl_hot_rows *h, fl_hot_table *t, uint64_t key);

int64_t fl_hot_rows_count(const fl_hot_rows *h); /* of all tables */
