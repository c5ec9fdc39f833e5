/* life.h - which keys become rows, and which rows go: a table with an fl_life
 * (table_api.h).
 *
 * An update that is about to change rows of a table asks once, with all keys of
 * some buckets, before any of these rows changes. What comes of it depends on
 * the keys that an update has, and on no order among them: so it is the same in
 * one process, which asks once for each part of the table, and on servers and
 * ranks, which ask for what they keep.
 */
#pragma once

#include "runtime/store/store.h"

/* A key without a row. */
typedef struct fl_life_key {
    uint64_t key;
    int64_t at;        /* in the update */
    float show, click; /* of updates before it, while it waited for a score */
} fl_life_key;

/* Keys that an update changes: n of them, each once. */
typedef struct fl_life_update {
    fl_rows *rows; /* with a life */
    int part;      /* no other thread uses this one at the same time */
    const uint64_t *key;
    const uint32_t *which;    /* the i-th is key[which[i]]; NULL: key[i] */
    const float *const *grad; /* of the i-th, with what an accessor counts; only
                                 for a show-click entry */
    int64_t n;
    uint64_t version;                 /* of the update */
    const struct fl_snapshot *frozen; /* is told what changes; or NULL */
} fl_life_update;

/* row[i] is that key's row, or NULL for a key without one. Where the key
 * becomes a row it is made, and row[i] set; where not, row[i] stays NULL: the
 * gradient is dropped. Of a table with most_rows other rows may go: none of
 * row[]. On failure some may have been made, and counted. */
fleet_status fl_life_admit(const fl_life_update *u, float **row);

/* Leave out what has no row, of each array that is not NULL; returns how many
 * are left. */
int64_t fl_life_keep(float **row, const float **grad, uint64_t *key, int64_t n);
