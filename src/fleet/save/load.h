/* load.h - reading saves: a folder that save.c wrote, checked as a whole before
 * any of it is used; docs/formats.md. */
#pragma once

#include <fleet/io.h>

#include "fleet/save/save.h"

/* A save that is being read. */
typedef struct fl_saved_item {
    const char *name;
    fl_shape shape; /* tables: [modulo, dim] */
    int n_state;
    const char *state[FL_MAX_STATE];
    int64_t n;                  /* floats, or rows */
    int64_t seen;               /* of them, in the parts */
    int64_t own;                /* rows that were brought into a store */
    int state_at[FL_MAX_STATE]; /* where the store's states are among `state`,
                                   once it is compared with one; -1: missing */
    fl_filler filler;           /* tables */
} fl_saved_item;

typedef struct fl_saved {
    fl_source_folder folder;
    fl_json *manifest;
    uint64_t seed;
    int64_t updates;
    fl_scaling scaling; /* scale 0: none */
    bool row_steps;     /* of Adam's rows: see fl_optimizer_has_row_steps() */
    fl_saved_item *param, *table;
    int n_param, n_table;
    fl_map params, tables; /* the items by name */
    uint64_t *block; /* dense records that were found: item << 32 | index */
    size_t n_block, block_capacity;
} fl_saved;

/* Open and check everything: the manifest, each part's size and checksum, and
 * that the parts hold just what the manifest promises. what: "checkpoint", or
 * NULL for anything that a predictor can run. Then use it, and close it. If
 * another save takes the place of this one meanwhile, all of it is done again
 * with that one: `use` must not mind what its call before has left. */
typedef fleet_status fl_saved_user(void *arg, fl_saved *s);
fleet_status fl_saved_use(const char *path, const char *what,
                          fl_saved_user *use, void *arg);

/* A record of a part: its header, then what follows it. Calls visit for each
 * one; each part is checked against its sum first. */
typedef struct fl_saved_record {
    fl_record head;
    const fl_saved_item *item;
    const char *payload;
} fl_saved_record;

typedef fleet_status fl_saved_visitor(void *arg, const fl_saved_record *r);
fleet_status fl_saved_each(const fl_saved *s, fl_saved_visitor *visit,
                           void *arg);

/* What is loaded of a save, and how. All-zero fields are defaults. */
typedef struct fl_load_how {
    fleet_load_options o;
    const char *table;  /* that one alone; NULL: all of the store */
    const char *source; /* its name in the save; NULL: the same, or that of the
                           only table there */
    bool keep_rows;     /* the table's rows that the save does not have */
    bool wider;         /* the save may have fewer columns */
    bool own_filler;    /* unknown rows begin as they do now, not as those of
                           the save */
} fl_load_how;

/* FLEET_EINVAL, naming the option that is none of its choices. */
fleet_status fl_load_options_check(const fleet_load_options *o);

/* As a text, for fl_free(), to other processes; and back: the texts belong to
 * the json. */
fleet_status fl_load_how_print(const fl_load_how *how, const char *path,
                               char **text);
fleet_status fl_load_how_read(const fl_json *json, fl_load_how *how,
                              const char **path);

/* Bring the save into the store, whatever both have: of dense parameters the
 * blocks that the store keeps, of tables the rows in the buckets `rows` (NULL:
 * all). A store with a remote has no rows of its own and gets none. All of it
 * is compared before anything is changed: shapes are equal; what one of both
 * does not have is as fleet_load_options says. */
fleet_status fl_saved_apply(fl_saved *s, fl_store *store,
                            const fl_bucket_set *rows, const fl_load_how *how);

/* Say in the log what was not loaded as it was saved. */
void fl_saved_note(const fl_saved *s, const fl_store *store,
                   const fl_load_how *how);
