/* live_hash.h - a hash of a table's rows that is kept as they change, so that
 * rows that have changed otherwise, in memory that has lost a bit, are found,
 * and not trained on (adr/0066).
 *
 * It is a sum over rows, for each bucket, in lanes of 32 bits: what changes a
 * row takes its hash out before, and adds that of the new bits behind it. A
 * row's hash is of its key and of its record as it lies in memory: weights,
 * states, and what an accessor counts. A row in which one word is another one
 * has another hash, always. It is no params_hash, which has other bits, and
 * takes several times as long (store_hash.h).
 *
 * Threads: one at a time. */
#pragma once

#include "runtime/store/table_api.h"

typedef struct fl_live_hash {
    fl_hash_sum bucket[FL_N_BUCKET];
    fl_hash_sum again[FL_N_BUCKET]; /* of a check */
} fl_live_hash;

/* From now on r->live is kept; it begins with the rows that there are, and goes
 * with the table. A kind of table that cannot (fl_rows_class.hashes) has
 * none. */
fleet_status fl_live_hash_begin(fl_rows *r);

/* The rows go out of the sum before they change, and come into it after. A
 * table itself does it for rows that it makes, erases or clears, and
 * fl_rows_change() for rows that an optimizer changes; everything else that
 * writes into rows calls both. n rows of these keys, each once:
 * fl_live_hash_apart() says how many of them are. */
void fl_live_hash_out_of(const fl_rows *r, const uint64_t *key,
                         float *const *row, int64_t n);
void fl_live_hash_into(const fl_rows *r, const uint64_t *key, float *const *row,
                       int64_t n);

static inline void fl_live_hash_out(const fl_rows *r, const uint64_t *key,
                                    float *const *row, int64_t n)
{
    if (r->live)
        fl_live_hash_out_of(r, key, row, n);
}

static inline void fl_live_hash_in(const fl_rows *r, const uint64_t *key,
                                   float *const *row, int64_t n)
{
    if (r->live)
        fl_live_hash_into(r, key, row, n);
}

/* How many rows, from the first one on, are different ones, at least 1: they go
 * out and come in together. A step from elsewhere may have a key twice. Without
 * a hash: n. */
int64_t fl_live_hash_apart_of(float *const *row, int64_t n);

static inline int64_t fl_live_hash_apart(const fl_rows *r, float *const *row,
                                         int64_t n)
{
    return r->live ? fl_live_hash_apart_of(row, n) : n;
}

/* Of a table that has lost all rows. */
void fl_live_hash_clear(const fl_rows *r);

/* Of all buckets, in one number. */
uint64_t fl_live_hash_sum(const fl_rows *r);

/* All rows are hashed again, and compared: FLEET_ECORRUPT names the first
 * bucket whose rows are other ones. Of a table without live: nothing. */
fleet_status fl_live_hash_check(const fl_rows *r);

/* The same of one bucket, of a table whose rows are all in memory: *n of them.
 * Of other tables nothing, as of rows in a file; they are in the check of all.
 */
fleet_status fl_live_hash_check_bucket(const fl_rows *r, int bucket,
                                       int64_t *n);
