/* snapshot.h - what a store was like at one moment, for a save that is written
 * while training goes on: copy on write.
 *
 * The thread that changes the store (a lane's) makes the snapshot, and says
 * which rows it is about to change; a row that was not read yet is copied
 * first. Another thread reads the snapshot. Dense parameters are copied
 * when it is made: an update changes all of them anyway.
 *
 * A thread waits for the other one for as long as one bucket of rows is copied,
 * or the rows of one call. Copies take at most as much memory as the table. If
 * they take more than a FL_SNAPSHOT_SHARE-th of it, each change waits until a
 * bucket was read, at most FL_SNAPSHOT_WAIT_MS: training slows down, and does
 * not stop.
 */
#pragma once

#include "runtime/store/store.h"

enum { FL_SNAPSHOT_SHARE = 4, FL_SNAPSHOT_WAIT_MS = 5 };

typedef struct fl_snapshot fl_snapshot;

/* store->snapshot from now on, until its end, when no thread reads it any
 * more. version: the lane's; done: the last step of each stream that is in it,
 * which is copied. */
fleet_status fl_snapshot_begin(fl_store *s, int64_t version,
                               const uint64_t *done, int n_stream);
void fl_snapshot_end(fl_store *s);

/* --- the thread that changes the store ------------------------------------ */

/* Before these rows change. FLEET_ENOMEM: they must not. */
fleet_status fl_snapshot_change(const fl_snapshot *s, const fl_rows *r,
                                const uint64_t *key, int64_t n);

/* Of rows that it has copied and not read yet. From any thread. */
int64_t fl_snapshot_bytes(const fl_snapshot *s);

/* --- the thread that reads ------------------------------------------------ */

int64_t fl_snapshot_version(const fl_snapshot *s);
int64_t fl_snapshot_updates(const fl_snapshot *s); /* the store's */
int fl_snapshot_streams(const fl_snapshot *s, const uint64_t **done);

/* A group's weights (state -1) or states, as flat->weight or flat->state. */
const float *fl_snapshot_floats(const fl_snapshot *s, const fl_flat *g,
                                int state);

/* As fl_rows_class.each and count. Each table once. */
fleet_status fl_snapshot_each(const fl_snapshot *s, const fl_rows *r,
                              fl_row_visitor *visit, void *arg);
int64_t fl_snapshot_count(const fl_snapshot *s, const fl_rows *r);
