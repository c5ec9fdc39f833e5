/* aggregate_feed.h - what a lane's subscribers get: rows of a walk through the
 * tables, or of the list of changes, and blocks, written into an answer. Each
 * call looks at a bounded number of rows. */
#pragma once

#include "ps/aggregate/aggregate.h"
#include "ps/feed_position.h"

enum {
    FL_SLICE_ROWS = 8192,      /* rows that an answer looks at */
    FL_SLICE_BYTES = 1 << 20,  /* of rows in an answer, or one row */
    FL_SLICE_DENSE = 32 << 20, /* of a lane's blocks at most, in one answer */
    FL_SLICE_TABLES = 24       /* in an answer */
};

typedef struct fl_feed_row {
    uint64_t key;
    const float *row; /* NULL: it is gone */
    int table;        /* its place among the tables of the answer */
} fl_feed_row;

/* Rows of an answer. Memory is the lane's, and used again. */
typedef struct fl_feed_rows {
    fl_feed_row at[FL_SLICE_ROWS];
    int n, looked;
    size_t bytes;
    int table[FL_SLICE_TABLES], n_table; /* their numbers */
} fl_feed_rows;

/* A position at which everything is still to come, or all that was changed
 * after version `since`. */
void fl_aggregate_feed_begin(const fl_aggregate *u, uint64_t epoch,
                             uint64_t since, fl_feed_position *p);

/* Is it a position that this lane can have said? FLEET_EINVAL says no. */
fleet_status fl_aggregate_feed_check(const fl_aggregate *u,
                                     const fl_feed_position *p);

/* Rows from the position on, until an answer is full; the position goes behind
 * them. Pointers are good until anything changes. */
fleet_status fl_aggregate_feed_rows(const fl_aggregate *u, fl_feed_position *p,
                                    fl_feed_rows *rows);

/* Has the position all rows that there are? */
bool fl_aggregate_feed_has_all(const fl_aggregate *u,
                               const fl_feed_position *p);

/* Sections of them. */
void fl_aggregate_feed_write(const fl_aggregate *u, const fl_feed_rows *rows,
                             fl_msg_writer *w);

/* Bytes of all blocks. */
size_t fl_aggregate_feed_most_dense(const fl_aggregate *u);

/* Bytes of the blocks that have changed since; and a section of them, if
 * any have, the position going behind them. */
size_t fl_aggregate_feed_dense(const fl_aggregate *u,
                               const fl_feed_position *p);
void fl_aggregate_feed_blocks(const fl_aggregate *u, fl_feed_position *p,
                              fl_msg_writer *w);
