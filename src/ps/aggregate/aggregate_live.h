/* aggregate_live.h - what a lane keeps is hashed as it changes, and looked at
 * again, so that memory which has lost a bit is found, and not trained on
 * (adr/0066).
 *
 * Rows: each change of a row takes its hash out of its bucket's sum, and puts
 * the new one in (runtime/store/live_hash.h); of FL_LIVE_SHARE rows that were
 * changed one row that lies in memory is hashed again, a bucket at a time, in
 * turn. So a row is looked at again when FL_LIVE_SHARE times as many rows as
 * the lane has were changed, or sooner. A change that was no update's stays in
 * the sum, also when the row is updated after it.
 *
 * Blocks: all of their floats change with each update. They are hashed after
 * each `every`-th update, and again before the next one.
 *
 * Threads: the lane's. */
#pragma once

#include "ps/aggregate/aggregate.h"

enum { FL_LIVE_SHARE = 32, FL_LIVE_EMPTY = 4 /* rows that a bucket costs */ };

/* From now on, of all tables and blocks of the lane's store. */
fleet_status fl_aggregate_live_begin(fl_aggregate *u, int every);
void fl_aggregate_live_done(fl_aggregate *u);

/* Before the next update: what is looked at again is as it was left;
 * FLEET_ECORRUPT says what is not. Nothing without a live hash. */
fleet_status fl_aggregate_live_check(fl_aggregate *u);

/* After that many updates, as the last of them was applied. */
void fl_aggregate_live_after(fl_aggregate *u, int64_t updates);

/* Blocks have changed otherwise: by a load. */
void fl_aggregate_live_forget(fl_aggregate *u);

/* What is kept now, for a record: a number for each table, in their order, and
 * one for all blocks, if they are hashed at this time. At most
 * fl_aggregate_live_most(); 0: nothing is kept. */
size_t fl_aggregate_live_most(const fl_aggregate *u);
size_t fl_aggregate_live_hashes(const fl_aggregate *u, uint64_t *to);

/* Is it what a record says, which has n of them? FLEET_ECORRUPT names the table
 * that is other, or that blocks are. */
fleet_status fl_aggregate_live_compare(fl_aggregate *u, const uint64_t *hash,
                                       size_t n);
