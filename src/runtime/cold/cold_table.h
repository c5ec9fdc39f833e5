/* cold_table.h - rows of which a part is in memory, and the rest in a file: a
 * table with a cap.
 *
 *   places   rows in memory. One that no token wants may go: the clock takes
 *            rows that were not wanted for a while
 *   pages    of the file, which have rows that went, in spots of one size; a
 *            row that comes back leaves a hole, and pages that are half holes
 *            are filled again
 *   index    of what is in the file: 6 bytes for each row, by hash; the row's
 *            key is read with it
 *
 * A thread of the table reads and writes. want, is_ready and release never wait
 * for a disk; erase, each and each_changed do. Which rows are in memory changes
 * no bit of them. docs/adr/0053-cold-rows.md.
 *
 * The file is scratch of this process: it has no name, so that nothing of it is
 * left when the process has ended, however that happens.
 */
#pragma once

#include "runtime/store/table_api.h"

/* FLEET_EIO: the folder does not take a file. */
fl_capped_maker fl_cold_make;

/* Made by fl_cold_make()? */
bool fl_is_cold(const fl_rows *r);

/* What has been done since the start. */
typedef struct fl_cold_counts {
    int64_t hits, misses;  /* keys wanted: in memory, in the file */
    int64_t unknown;       /* and keys without a row */
    int64_t ahead;         /* misses that were expected */
    int64_t evicted;       /* rows that went into pages */
    int64_t reads, writes; /* system calls */
    int64_t cold;          /* rows that are in the file, now */
    int64_t file_bytes;    /* now */
    int64_t memory_bytes;  /* now; at most the cap, but for what is pinned */
} fl_cold_counts;

void fl_cold_count(const fl_rows *r, fl_cold_counts *c);
