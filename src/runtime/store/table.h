/* table.h - rows in this process's memory: the maker for a store.
 *
 * A table is FL_N_BUCKET buckets. Each has a hash index of cache lines, five
 * keys to a line with the numbers of their rows, and pages of rows that never
 * move. Calls for different parts touch different buckets and may run at once.
 */
#pragma once

#include "runtime/store/table_api.h"

fl_rows_maker fl_table_make;

/* --- for snapshots (table_snapshot.c) ------------------------------------- */

/* Rows 0 .. n-1 of a bucket: pages that never move, each of 1 << shift rows of
 * `stride` bytes, head included. */
typedef struct fl_table_bucket {
    char *const *page;
    int64_t n;
    size_t stride;
    int shift;
} fl_table_bucket;

bool fl_is_table(const fl_rows *r); /* made by fl_table_make() */
fl_table_bucket fl_table_bucket_of(const fl_rows *r, int index);

/* Call visit for these rows of a bucket, which are sorted, by growing key. */
fleet_status fl_table_visit(const float **row, int64_t n, int bucket,
                            fleet_status (*visit)(void *arg, int bucket,
                                                  const float *row),
                            void *arg);

/* Which row of its bucket a key has; -1: none. */
int64_t fl_table_number(const fl_rows *r, uint64_t key);
