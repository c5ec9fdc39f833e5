/* sharded_table.h - tables whose rows are sharded by rank: each rank keeps the
 * rows of its buckets. A remote storage (runtime/plan/remote.h) for rows alone;
 * dense parameters are summed by the plan.
 *
 * Rows are fetched when ranks agree on FL_INTENT_ROWS, and their gradients come
 * back when they agree on the update: the owner adds the ranks' sums in rank
 * order and updates as one process would.
 */
#pragma once

#include "runtime/plan/remote.h"
#include "runtime/plan/agree.h"

typedef struct fl_sharded_tables fl_sharded_tables;

/* The store has all its tables. What is given stays the caller's. */
fleet_status fl_sharded_create(fl_sharded_tables **out, fl_store *store,
                               const fl_agree *agree);
void fl_sharded_destroy(fl_sharded_tables *s); /* NULL is fine */

fl_remote *fl_sharded_remote(fl_sharded_tables *s);

/* Other ranks fetch rows, and this one does not. */
fleet_status fl_sharded_serve(fl_sharded_tables *s);

/* Buckets [first, end) of a rank. */
int fl_sharded_first_bucket(int rank, int size);
