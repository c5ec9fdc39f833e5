/* evict.h - rows of a table with a life that go: for new rows where the table
 * is full, and because they have lived too long. */
#pragma once

#include "runtime/life/life.h"

/* What each bucket of a table with that life may have; 0: any number. */
static inline int64_t fl_life_bucket_rows(const fl_life *life)
{
    return life->bucket_rows;
}

/* So that `wanted` more keys fit into the bucket of r, which is the update's
 * table or its `waiting`, rows go that have changed longest ago, and none with
 * the update's version. *fit: how many of the keys do. */
fleet_status fl_life_make_room(const fl_life_update *u, fl_rows *r, int bucket,
                               int64_t wanted, int64_t *fit);

/* An accessor's numbers decay, and rows go by them; what ttl_updates and
 * ttl_seconds say is too old goes, after that number of updates and at that
 * time; keys that wait, too. Alone. */
fleet_status fl_life_shrink(fl_rows *rows, uint64_t updates, int64_t now);

/* A save of that mode is in its place: what that changes of an accessor's
 * numbers. Alone. FLEET_EIO, of rows out of memory: of some. */
fleet_status fl_life_saved(fl_rows *rows, fleet_save_mode mode);

/* Rows that have their vector (fleet_accessor.embedx_dim); reads all rows. */
fleet_status fl_life_count_vectors(const fl_rows *rows, int64_t *n);
