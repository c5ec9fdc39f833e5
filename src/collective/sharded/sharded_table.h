/* sharded_table.h - tables whose rows are shared out over the ranks of a group: each
 * rank keeps the rows of its buckets. An exchange (runtime/plan/remote.h) for rows
 * alone; dense parameters are summed by the plan.
 *
 * Rows are fetched in a round of FL_INTENT_ROWS, and brought back in the round of
 * the update, where the owner adds the ranks' sums in rank order and updates as
 * one process would.
 */
#ifndef FL_COLLECTIVE_SHARDED_SHARDED_TABLE_H
#define FL_COLLECTIVE_SHARDED_SHARDED_TABLE_H

#include "runtime/plan/remote.h"
#include "runtime/plan/agree.h"

typedef struct fl_sharded_tables fl_sharded_tables;

/* The store has all its tables. What is given stays the caller's. */
fleet_status fl_sharded_create(fl_sharded_tables **shards, fl_store *store,
                               const fl_agree *rounds);
void fl_sharded_destroy(fl_sharded_tables *s); /* NULL is fine */

fl_remote *fl_sharded_remote(fl_sharded_tables *s);

/* Others fetch rows: a round that this rank did not wish for. */
fleet_status fl_sharded_serve(fl_sharded_tables *s);

/* Buckets [first, end) of a rank. */
int fl_sharded_first_bucket(int rank, int size);

#endif
