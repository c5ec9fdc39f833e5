/* lookup_data.h - what the steps of a lookup hand to each other; see lookup.h.
 * Arrays grow by half and never shrink, so that a step allocates nothing once
 * the batches have shown how large they are. */
#pragma once

#include <pthread.h>

#include "runtime/plan/kernel.h"
#include "runtime/store/lookup_kernels.h"
#include "runtime/lookup/wanted_rows.h"

/* Of the operands of a lookup's steps: the first slot's output or gradient. */
enum { FL_FIRST_OUT = 2 };

/* A set of keys, numbered in the order in which they came. */
typedef struct fl_key_set {
    uint64_t *key; /* n of them */
    int64_t n;
    size_t capacity;
    uint32_t *slot; /* open addressing: number + 1 */
    size_t n_slot, slot_capacity;
} fl_key_set;

/* Gradients of rows, added up by key: of several batches. */
typedef struct fl_row_sums {
    fl_key_set keys;
    float *sum; /* of the i-th key: sum + i * fl_rows_pushed() */
    size_t capacity;
} fl_row_sums;

/* The rows of one part of the table in this batch. */
typedef struct fl_lookup_part {
    fl_key_set keys;
    fl_wanted_rows wanted; /* from the batch's find to its update, or to the
                              next batch */
    uint32_t *head, *tail; /* a key's first and last position */
    float **row;           /* NULL: unknown */
    uint64_t epoch;        /* of the table, when they were found */
    const float **value;   /* row, or initial values in fresh */
    size_t capacity;       /* of the arrays above */
    float *fresh;
    size_t fresh_capacity;

    /* keys that got a gradient: n_grad of them */
    uint32_t *which; /* key's number */
    const float **grad;
    float **target;    /* rows to change */
    uint64_t *changed; /* their keys, of a table whose weights are no floats */
    size_t changed_capacity;
    size_t grad_capacity;
    int64_t n_grad;
    float *sum; /* where gradients had to be added */
    size_t sum_capacity;

    fl_row_sums merged;         /* of a merge group */
    struct fl_norm_row *sorted; /* for the clip */
    size_t sorted_capacity;
} fl_lookup_part;

typedef struct fl_lookup_config {
    const fleet_var *table;
    const struct fl_lookup_slot *slot;
    const fl_feature *feature;
    int n_feature;
    int n_max;       /* features of FLEET_MAX */
    int n_padded;    /* padded features */
    bool ragged;     /* any feature is */
    bool weighted;   /* any feature is */
    bool merged;     /* updates read the sums of merge groups */
    bool predicts;   /* rows that are missing read as the table says */
    int show, click; /* of rows.sum: operands that an accessor counts; 0:
                        none */
} fl_lookup_config;

typedef struct fl_lookup {
    fl_rows *rows;
    pthread_mutex_t *lock;   /* by part, where other threads update the table at
                              the same time (plan/hogwild.h): values are copies
                              then. NULL: none does */
    const int64_t **offsets; /* of ragged features in this batch, by feature;
                                of padded ones of the ids they keep */
    int64_t n;               /* positions */
    uint64_t *key;           /* by position */
    uint32_t *next;          /* by position: the next of the same key + 1 */
    uint32_t *order;         /* positions by (slice, part) */
    const float **row;       /* by position */
    uint32_t *cell; /* by position: sample * n_feature + feature; ragged */
    float *weight; /* by position: its id's, 1 of a feature without; weighted */
    uint32_t *winner; /* (sample * n_max + nth_max) * dim + column: position */
    uint32_t *place;  /* by position: which of its cell's; padded */
    int64_t *kept;    /* offsets of what padded features keep */
    size_t capacity, cell_capacity, weight_capacity, winner_capacity,
        place_capacity, kept_capacity;
    uint32_t *bound; /* where a slice's part begins in order */
    size_t bound_capacity;
    int64_t n_slice;
    fl_lookup_part part[FL_N_PART];
} fl_lookup;

fleet_status fl_key_set_begin(fl_key_set *s, int64_t most);

/* Room for n more keys in a set that stays as it is. */
fleet_status fl_key_set_room(fl_key_set *s, int64_t n);
uint32_t fl_key_set_add(fl_key_set *s, uint64_t key, bool *is_new);

/* Also of a set whose last keys were taken off, by a smaller n. */
bool fl_key_set_has(const fl_key_set *s, uint64_t key);

/* The slot that a key looks at first. */
static inline size_t fl_key_set_place(const fl_key_set *s, uint64_t key)
{
    return fl_mix_secretly(fl_mix(key)) & (s->n_slot - 1);
}

/* A key will be added soon. */
static inline void fl_key_set_prefetch(const fl_key_set *s, uint64_t key)
{
    __builtin_prefetch(&s->slot[fl_key_set_place(s, key)]);
}
void fl_key_set_done(fl_key_set *s);

/* Forget all sums; their memory stays. */
void fl_row_sums_clear(fl_row_sums *s);

/* Room for n more gradients: adding them cannot fail then. */
fleet_status fl_row_sums_room(fl_row_sums *s, int64_t n, const fl_rows *rows);

/* A key's first gradient is copied, later ones are added; times the factor,
 * but for what an accessor counts. */
void fl_row_sums_add(fl_row_sums *s, uint64_t key, const float *grad,
                     float factor, const fl_rows *rows);
void fl_row_sums_done(fl_row_sums *s);

/* Around the use of the table's rows of a part. */
static inline void fl_lookup_lock(const fl_lookup *k, int part)
{
    if (k->lock)
        pthread_mutex_lock(&k->lock[part]);
}

static inline void fl_lookup_unlock(const fl_lookup *k, int part)
{
    if (k->lock)
        pthread_mutex_unlock(&k->lock[part]);
}

/* That of a step: operand 0. */
static inline fl_lookup *fl_lookup_of(const fl_instance *in)
{
    return fl_ptr(in, 0);
}

/* The position of a sample's first id. */
int64_t fl_lookup_position(const fl_lookup *k, const fl_lookup_config *c,
                           int64_t sample);

/* The rows of the part's keys. */
fleet_status fl_lookup_find(const fl_lookup *k, fl_lookup_part *p);

/* Free what it has; it is zero then. */
void fl_lookup_done(fl_lookup *k);

extern const fl_kernel fl_kernel_rows_split, fl_kernel_rows_find,
    fl_kernel_rows_unique, fl_kernel_rows_place, fl_kernel_rows_gather;
extern const fl_kernel fl_kernel_rows_sum, fl_kernel_rows_merge,
    fl_kernel_rows_check, fl_kernel_rows_norm, fl_kernel_rows_update;
