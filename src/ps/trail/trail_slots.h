/* trail_slots.h - two files that are written over in turn, each with one
 * record: a record that is half written, because its process was killed, leaves
 * the one before it whole. Nothing grows, and nothing has to be cut.
 *
 *   file    = magic (u32), sum (u32), number (u64), size (u64), bytes
 *   sum     = CRC-32C of number, size and bytes
 *
 * Numbers grow with each record that is written. All is little-endian, and what
 * is put begins at a multiple of 8.
 *
 * Threads: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct fl_trail_slots {
    int fd[2];
    char *path[2];
    bool flushes; /* a record is on the disk, and not only written */
    uint64_t number;
    char *bytes; /* of the record that is made, head and all */
    size_t used, capacity;
} fl_trail_slots;

/* A record as it was read. */
typedef struct fl_trail_record {
    char *data; /* for fl_free() */
    size_t size;
    uint64_t number;
} fl_trail_record;

/* FOLDER/NAME-0 and -1, which are made if need be. */
fleet_status fl_trail_slots_open(fl_trail_slots *s, const char *folder,
                                 const char *name, bool flushes);
void fl_trail_slots_close(fl_trail_slots *s); /* zeroed is fine */

/* The whole records that there are, *n of them, the older one first. */
fleet_status fl_trail_slots_read(fl_trail_slots *s, fl_trail_record found[2],
                                 int *n);

/* There is none any more. */
fleet_status fl_trail_slots_clear(fl_trail_slots *s);

/* A record: begun, put, written in place of the older one. FLEET_EIO names file
 * and cause. */
fleet_status fl_trail_slots_begin(fl_trail_slots *s);
fleet_status fl_trail_slots_put(fl_trail_slots *s, const void *data,
                                size_t size);
fleet_status fl_trail_slots_write(fl_trail_slots *s);

/* The next `size` bytes that were put at once, from *at on, which goes on
 * behind them; NULL: the record has no more. */
const void *fl_trail_take(const fl_trail_record *r, size_t *at, size_t size);
