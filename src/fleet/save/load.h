/* load.h - reading saves: a folder that save.c wrote, checked as a whole before
 * any of it is used; docs/formats.md. */
#pragma once

#include "fleet/save/save.h"

/* A save that is being read. */
typedef struct fl_saved_item {
    const char *name;
    fl_shape shape;                 /* tables: [modulo, dim] */
    int n_state, n_row;             /* as fl_rule's; n_row: tables */
    const char *state[FL_MAX_NAME]; /* n_state of them, then n_row */
    int64_t n;                      /* floats, or rows */
    int64_t seen;                   /* of them, in the parts */
    int64_t own;                    /* rows that were brought into a store */
    int state_at[FL_MAX_NAME]; /* where the store's states are among `state`,
                                  once it is compared with one; -1: missing */
    bool is_table;
    bool accessor;    /* the last FL_N_ACCESSOR numbers of its rows are an
                         accessor's */
    bool ages;        /* its rows have ages, and its parts what the table
                         remembers of earlier updates */
    bool has_life;    /* that was brought into a store */
    bool row_steps;   /* of Adam's rows: see fl_optimizer_has_row_steps() */
    fl_filler filler; /* tables */
} fl_saved_item;

/* Floats of a saved row: its weights and states. */
static inline int64_t fl_saved_width(const fl_saved_item *item)
{
    return item->shape.dim[1] * (1 + item->n_state) + item->n_row +
           (item->accessor ? FL_N_ACCESSOR : 0);
}

/* Bytes of the age of a saved row. */
static inline size_t fl_saved_age_bytes(const fl_saved_item *item)
{
    return item->ages ? sizeof(int64_t) : 0;
}

typedef struct fl_saved {
    fl_source_folder folder;
    fl_json *manifest;
    uint64_t seed;
    int64_t updates;
    fl_scaling scaling;       /* scale 0: none */
    fl_plateau_state plateau; /* reports 0: none */
    bool row_steps;           /* of Adam's rows whose table does not say so */
    fl_saved_item *param, *table;
    int n_param, n_table;
    fl_map params, tables; /* the items by name */
    uint64_t hash;         /* of the manifest */
    struct fl_saved *link; /* the saves that it adds to, the base first */
    int n_link;
    bool chained;                 /* it has links, or is one that has */
    struct fl_saved_newer *newer; /* by table; of a save with links */
    uint64_t *block; /* dense records that were found: item << 32 | index */
    size_t n_block, block_capacity;
} fl_saved;

/* Open and check everything: the manifest, each part's size and checksum, and
 * that the parts hold just what the manifest promises. what: "checkpoint",
 * FL_WHAT_ADDS, or NULL for anything that a predictor can run. Then use it, and
 * close it. If another save takes the place of this one meanwhile, all of it is
 * done again with that one: `use` must not mind what its call before has
 * left. */
typedef fleet_status fl_saved_user(void *arg, fl_saved *s);
fleet_status fl_saved_use(const char *path, const char *what,
                          fl_saved_user *use, void *arg);

/* One that fl_saved_use() has not opened. */
void fl_saved_close(fl_saved *s);

/* A record of a part: its header, then what follows it. Calls visit for each
 * one; each part is checked against its sum first. */
typedef struct fl_saved_record {
    fl_record head;
    const fl_saved_item *item;
    const char *payload;
} fl_saved_record;

/* Of a save with links each row has one record, that of the newest link that
 * has the row. */

/* What a record of rows has, one after the other: keys, ages (if the item has
 * any), steps, and fl_saved_width() numbers of each row. */
typedef struct fl_saved_rows {
    const char *keys, *ages, *steps, *values;
} fl_saved_rows;

static inline fl_saved_rows fl_saved_rows_of(const fl_saved_record *r)
{
    const size_t n = (size_t)r->head.n;
    fl_saved_rows rows = {.keys = r->payload};

    rows.ages = rows.keys + n * sizeof(uint64_t);
    rows.steps = rows.ages + n * fl_saved_age_bytes(r->item);
    rows.values = rows.steps + n * sizeof(uint32_t);
    return rows;
}

typedef fleet_status fl_saved_visitor(void *arg, const fl_saved_record *r);
fleet_status fl_saved_each(const fl_saved *s, fl_saved_visitor *visit,
                           void *arg);

/* The records of its own parts alone. */
fleet_status fl_saved_each_own(const fl_saved *s, fl_saved_visitor *visit,
                               void *arg);
