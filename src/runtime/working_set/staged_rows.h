/* staged_rows.h - the rows that a table's working set will have next, while the
 * GPU trains another set of rows: keys, listed one way (pass_keys.h), and
 * copies of the rows that the GPU does not have. A row of both is newest on the
 * GPU and stays on it.
 *
 * Threads: one at a time for each; staging takes the store's lock for some rows
 * at a time, beside training.
 */
#pragma once

#include <stdatomic.h>

#include "runtime/store/store.h"
#include "runtime/store/table_gpu.h"
#include "runtime/working_set/pass_keys.h"

typedef struct fl_staged_rows {
    fl_pass_keys keys;
    uint64_t *key; /* n_fresh that the GPU does not have, then n_shared */
    size_t key_capacity;
    int64_t n_fresh, n_shared;
    char *staged; /* of the fresh keys' rows, as a GPU has them */
    size_t staged_capacity;
    int64_t n_staged;
    bool is_staged;
    uint64_t written; /* how often the store was, as copying began */
} fl_staged_rows;

/* Rows that are looked at under one lock: few, as they have to fit into a cap
 * beside nothing else. */
enum { FL_ROWS_AT_ONCE = 256 };

/* Visit the rows of the first FL_ROWS_AT_ONCE of n keys, where keys have rows.
 * Of a capped table the next rows are expected. Under the store's lock, for
 * writing. */
fleet_status fl_rows_visit_first(fl_rows *rows, const uint64_t *key, int64_t n,
                                 fl_row_visitor *visit, void *arg);

/* Copy the rows of the keys that `now` does not have; it stays as it is till
 * this returns. Copies are right as long as nothing but rows of `now` changes:
 * of a load, which on_batch may make, `written` tells. *stop, set by another
 * thread: leave early, and it counts for nothing. */
fleet_status fl_staged_rows_stage(fl_staged_rows *n, const fl_pass_keys *now,
                                  fl_store *s, fl_rows *rows,
                                  const atomic_bool *stop);

void fl_staged_rows_done(fl_staged_rows *n);
