/* lookup_kernels.h - the steps of a lookup on a device: all slots of a table
 * at once, as lookup.h has them, without parts, and with every count in device
 * memory, so that kernels run to planned capacities.
 *
 *   lookup.keys      key, cell, count <- ids of all features; an id that is
 *                    checked and not below the modulo is a fault
 *   lookup.unique    unique, start, position, which, n_unique <- key, count
 *   lookup.find      slot, fresh <- table, unique, n_unique
 *   lookup.gather    outputs of all features, winners <- table, slot, fresh,
 *                    which, weights of features
 *   lookup.sum       sum <- start, position, cell, n_unique, the outputs'
 *                    gradients, weights, winners
 *   lookup.append    merged key, cell, sum, count <- update, unique, sum,
 *                    n_unique: behind what the merge group's earlier batches
 *                    have appended
 *   lookup.norm      FL_LOOKUP_NORMS partial sums of squares (double) <-
 *                    update, sum, n_unique
 *   lookup.clip      sum <- the same sums of squares, update, sum, n_unique:
 *                    scaled to the clip by the table's own norm
 *   lookup.check     FL_LOOKUP_CHECKS findings (float: 1 where a sum is not
 *                    finite) <- sum, n_unique
 *   lookup.insert    table, slot <- update, unique, n_unique: missing rows
 *                    made, unless the update is skipped
 *   lookup.update    table <- update, sum, slot, n_unique: the same
 *   lookup.index     table <-: a new index of the rows it has; of no plan
 *   lookup.move      rows, one behind the other <- table, which; of no plan
 *
 * What was appended are positions again: lookup.unique numbers their keys, and
 * lookup.sum adds them up by one feature, whose gradient is the merged sums.
 *
 * Operands by their places in fl_device_step.arg are below; operands of
 * features come after them, where the features say. Arrays by position have
 * `capacity` elements, arrays by number (of a unique key, in the order of the
 * keys) as many, start one more.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <fleet/nn.h>

#include "runtime/optim/rule.h"

/* --- rows ---------------------------------------------------------------- */

/* A place in the index; open addressing, the next one follows. */
typedef struct fl_device_entry {
    uint64_t key;
    uint64_t number; /* the row's + 1; 0: free */
} fl_device_entry;

/* A table, in device memory, as kernels read it: all of this may change from
 * iteration to iteration, the addresses included. Rows are numbered as they
 * come, within one update in the order of their keys, whatever the threads do.
 * Before an update is queued the table has got room for all of its keys. */
typedef struct fl_device_rows {
    char *row; /* stride bytes each: head, weights, states; last the key */
    int64_t n, room, stride;
    fl_device_entry *index; /* a power of 2 of them, twice `room` or more */
    uint64_t mask;          /* that power - 1 */
    uint64_t secret[2];     /* fl_secret: which place a key has in the index */

    /* What a new row begins with: fl_filler_row()'s, and the states. */
    int32_t kind; /* fleet_initializer_kind */
    float a, b;
    uint64_t seed;
    int64_t n_float; /* of the states of a row: fl_rows_floats() */
    float state;
    int32_t spoilt; /* the index had no place for a key: a fault of each find */
} fl_device_rows;

/* --- lookups ------------------------------------------------------------- */

/* One id of each sample, or all ids of a ragged slot. */
typedef struct fl_feature {
    int ids;        /* operand: ids, or the feed whose offsets count */
    int64_t column; /* in its rows */
    int out;        /* operand: output, or its gradient */
    int64_t out_column;
    bool ragged;
    fleet_combiner combiner; /* FLEET_SUM, unless it is ragged */
    int weights;    /* operand: of its ids, whose offsets they have; 0: none */
    int nth_max;    /* FLEET_MAX: its number among all such features */
    int64_t most;   /* padded: ids that a sample keeps; else 0. Not on GPUs */
    bool keep_last; /* of these: the last ones */
} fl_feature;

/* What the sum of n rows is multiplied by. */
FL_EVERYWHERE float fl_combiner_factor(fleet_combiner combiner, int64_t n)
{
    if (n < 2 || (combiner != FLEET_MEAN && combiner != FLEET_SQRT))
        return 1.0f;
    return 1.0f / (combiner == FLEET_MEAN ? (float)n : sqrtf((float)n));
}

typedef struct fl_device_lookup {
    const fl_feature *feature;
    int n_feature;
    int n_max;   /* features of FLEET_MAX, also of slots that are not trained */
    int winners; /* operand: uint32, by (sample, nth_max): places in the sample
                    of the ids that won, by column; 0: none */
    int64_t dim;
    int64_t modulo;   /* ids are taken modulo this; 0: as they are */
    bool check;       /* they must be below it */
    int64_t capacity; /* positions */
    int bits;         /* of keys that are used: 64, or less with a modulo */
    fl_rule_kind rule;
    fl_update_rates rates; /* the table's own */
    int own; /* the optimizer's number in fl_device_update.own, from 1 on; 0: it
                is that of all other parameters */
    bool whole_rows; /* the rule keeps numbers of rows */
    bool bounds;     /* weights have to be in [low, high] */
    float low, high;
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
enum {
    FL_FIND_SLOT,  /* int64, by number: which row; -1: the table has none */
    FL_FIND_FRESH, /* by number: first values of missing rows; absent: none */
    FL_FIND_TABLE,
    FL_FIND_KEY,
    FL_FIND_COUNT
};
enum {
    FL_MOVE_TO, /* stride bytes each, as many as the operand says */
    FL_MOVE_TABLE,
    FL_MOVE_SLOT /* int64: which rows */
};
enum {
    FL_GATHER_TABLE,
    FL_GATHER_SLOT, /* absent: all of them are in fresh */
    FL_GATHER_FRESH,
    FL_GATHER_WHICH
};
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
enum { FL_CHECK, FL_CHECK_SUM, FL_CHECK_COUNT };
enum { FL_LOOKUP_CHECKS = 64 };
enum {
    FL_INSERT_TABLE,
    FL_INSERT_SLOT,
    FL_INSERT_UPDATE,
    FL_INSERT_KEY,
    FL_INSERT_COUNT
};
enum {
    FL_ROWS_TABLE,
    FL_ROWS_UPDATE,
    FL_ROWS_SUM,
    FL_ROWS_SLOT, /* int64, by number: which row */
    FL_ROWS_COUNT
};
