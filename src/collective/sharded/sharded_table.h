/* sharded_table.h - tables whose rows are shared out over the ranks of a group: each
 * rank keeps the rows of its buckets. An exchange (runtime/plan/remote.h) for rows
 * alone; dense parameters are summed by the plan.
 *
 * Rows are fetched in a round of FL_WISH_ROWS, and brought back in the round of
 * the update, where the owner adds the ranks' sums in rank order and updates as
 * one process would.
 */
#ifndef FL_COLLECTIVE_SHARDS_H
#define FL_COLLECTIVE_SHARDS_H

#include "runtime/plan/remote.h"
#include "runtime/device/comm.h"

typedef struct fl_shards fl_shards;

/* The store has all its tables. What is given stays the caller's. */
fleet_status fl_shards_create(fl_shards **shards, fl_store *store,
                              const fl_rounds *rounds);
void fl_shards_destroy(fl_shards *s); /* NULL is fine */

fl_exchange *fl_shards_exchange(fl_shards *s);

/* Others fetch rows: a round that this rank did not wish for. */
fleet_status fl_shards_serve(fl_shards *s);

/* Buckets [first, end) of a rank. */
int fl_shards_first_bucket(int rank, int size);

#endif
