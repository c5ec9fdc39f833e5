/* lookup_device.h - the steps of a lookup on a device: all slots of a table at
 * once, as lookup.h has them, without parts, and with every count in device
 * memory, so that kernels run to planned capacities.
 *
 *   lookup.keys      key, cell, count <- ids of all lanes
 *   lookup.unique    unique, start, position, which, n_unique <- key, count
 *   lookup.gather    outputs of all lanes <- rows, slot, which
 *   lookup.sum       sum <- start, position, cell, n_unique, the outputs'
 *                    gradients
 *   lookup.append    merged key, cell, sum, count <- update, unique, sum,
 *                    n_unique: after those of the merge group's batches before
 *   lookup.norm      FL_LOOKUP_NORMS partial sums of squares (double) <-
 * update, sum, n_unique lookup.update    rows <- update, sum, slot, n_unique
 *
 * What was appended are positions again: lookup.unique numbers their keys, and
 * lookup.sum adds them up by one lane, whose gradient is the merged sums.
 *
 * Operands by their places in fl_device_step.arg are below; those of lanes come
 * after them, where the lanes say. Arrays by position have `capacity` elements,
 * those by number (of a unique key, in the order of the keys) as many, start
 * one more.
 */
#ifndef FL_RUNTIME_LOOKUP_DEVICE_H
#define FL_RUNTIME_LOOKUP_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* One id of each sample, or all ids of a ragged slot. */
typedef struct fl_device_lane {
    int ids;        /* operand: ids, or the feed whose offsets count */
    int64_t column; /* in its rows */
    int out;        /* operand: output, or its gradient */
    int64_t out_column;
    bool ragged, mean;
} fl_device_lane;

typedef struct fl_device_lookup {
    const fl_device_lane *lane;
    int n_lane;
    int64_t dim;
    int64_t modulo;   /* ids are taken modulo this; 0: as they are */
    int64_t capacity; /* positions */
    int bits;         /* of keys that are used: 64, or less with a modulo */
    int rule;         /* fl_rule_kind */

    /* Rows lie `stride` bytes apart, the weights `head` bytes from a row's
     * start; with a head (fl_row_head) they are rows of a table, and states of
     * the rule follow the weights. */
    int64_t stride, head;
} fl_device_lookup;

enum { FL_KEYS_KEY, FL_KEYS_CELL, FL_KEYS_COUNT };
enum {
    FL_UNIQUE_KEY,      /* uint64, by number */
    FL_UNIQUE_START,    /* uint32: a key's first rank in position */
    FL_UNIQUE_POSITION, /* uint32, by rank: positions sorted by key */
    FL_UNIQUE_WHICH,    /* uint32, by position: the key's number */
    FL_UNIQUE_COUNT,    /* int64 */
    FL_UNIQUE_OF,       /* keys by position */
    FL_UNIQUE_OF_COUNT
};
enum { FL_GATHER_ROWS, FL_GATHER_SLOT, FL_GATHER_WHICH };
enum { FL_SUM, FL_SUM_START, FL_SUM_POSITION, FL_SUM_CELL, FL_SUM_COUNT };
enum {
    FL_APPEND_KEY,
    FL_APPEND_CELL,
    FL_APPEND_SUM,
    FL_APPEND_COUNT,
    FL_APPEND_UPDATE,
    FL_APPEND_OF,
    FL_APPEND_OF_SUM,
    FL_APPEND_OF_COUNT
};
enum { FL_NORM, FL_NORM_UPDATE, FL_NORM_SUM, FL_NORM_COUNT };
enum { FL_LOOKUP_NORMS = 64 };
enum {
    FL_ROWS_ROWS,
    FL_ROWS_UPDATE,
    FL_ROWS_SUM,
    FL_ROWS_SLOT, /* int64, by number: which row; absent: the number itself */
    FL_ROWS_COUNT
};

#endif
