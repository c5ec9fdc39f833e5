/* save.h - saves: a folder of parts and a manifest; docs/formats.md.
 *
 * A save is written and read by name. Dense parameters travel in blocks of
 * FL_BLOCK floats, rows bucket by bucket, so that any number of processes can
 * write the parts of one save and any other number can read them.
 */
#ifndef FL_FLEET_SAVE_SAVE_H
#define FL_FLEET_SAVE_SAVE_H

#include "base/file.h"
#include "base/json.h"
#include "ps/partition.h"

#define FL_MANIFEST     "manifest.json"
#define FL_MANIFEST_SUM "manifest.xxh64"

enum { FL_SAVE_VERSION = 1 };

/* What stands before every piece of a part, little-endian. */
typedef struct fl_record {
    uint32_t magic; /* FL_RECORD_MAGIC */
    uint32_t kind;  /* 1: a dense block, 2: rows of a bucket */
    uint32_t item;  /* place in the manifest's params or tables */
    uint32_t index; /* which block, or bucket */
    uint64_t n;     /* floats, or rows */
} fl_record;

enum { FL_RECORD_MAGIC = 0x43524c46, FL_RECORD_DENSE = 1, FL_RECORD_ROWS = 2 };

/* Parts that others write: the servers. */
struct fl_save;
typedef struct fl_save_elsewhere {
    /* Have them written into the folder, list them as a manifest does, count
     * each table's rows into `rows`. */
    fleet_status (*write)(void *arg, const struct fl_save *s,
                          const char *folder, fl_json *list);
    void *arg;
    int64_t *rows;   /* by table of the save */
    int64_t updates; /* that were done */
} fl_save_elsewhere;

/* What is saved: which of the store's things, and what else the manifest says.
 * An entry that is NULL has its place in the manifest, and others write it. */
typedef struct fl_save {
    fl_store *store;
    fl_param **param;
    int n_param;
    fl_rows **table;
    int n_table;
    bool states;                  /* the optimizer's, too */
    const char *what;             /* "checkpoint" or "inference" */
    const fl_json *program;       /* what a predictor runs; NULL: none */
    const fl_json *statistics;    /* of the training data; NULL: none */
    fl_save_elsewhere *elsewhere; /* NULL: all is here */
    const fl_buckets *own; /* the part of it that is written; NULL: all */
} fl_save;

fleet_status fl_save_write(const fl_save *s, const char *path);

/* Its parts alone, in files whose names begin so; they are appended to the
 * list. For a lane of a server, under nobody's lock. */
fleet_status fl_save_parts(const fl_save *s, const char *folder,
                           const char *prefix, fl_json *list);

/* Could a save be written there? Leaves nothing. */
fleet_status fl_save_check(const char *path);

/* A save that is being read. */
typedef struct fl_saved_item {
    const char *name;
    fl_shape shape; /* tables: [modulo, dim] */
    int n_state;
    const char *state[FL_MAX_STATE];
    int64_t n;        /* floats, or rows */
    int64_t seen;     /* of them, in the parts */
    int64_t own;      /* rows that were brought into a store */
    fl_filler filler; /* tables */
} fl_saved_item;

typedef struct fl_saved {
    fl_source_folder folder;
    fl_json *manifest;
    uint64_t seed;
    int64_t updates;
    fl_scaling scaling; /* scale 0: none */
    fl_saved_item *param, *table;
    int n_param, n_table;
    fl_map params, tables; /* the items by name */
    uint64_t *block; /* dense records that were there: item << 32 | index */
    size_t n_block, block_capacity;
} fl_saved;

/* Open and check everything: the manifest, each part's size and checksum, and
 * that the parts hold just what the manifest promises. what: "checkpoint", or
 * NULL for anything that a predictor can run. Then use it, and close it. If
 * another save takes the place of this one meanwhile, all of it is done again
 * with that one: use must not mind what a call of it before has left. */
typedef fleet_status fl_saved_user(void *arg, fl_saved *s);
fleet_status fl_saved_use(const char *path, const char *what,
                          fl_saved_user *use, void *arg);

/* Bring it into the store, or what is in those buckets of it (NULL: all; a
 * store with an exchange has no rows of its own and gets none): whatever the
 * store has and the save has, too. The store's parameters and tables must all
 * be there, with equal shapes; states must be those of its optimizer, if it has
 * one. */
fleet_status fl_saved_apply(fl_saved *s, fl_store *store,
                            const fl_buckets *own);

/* The same with all dense parameters, and rows of those buckets. */
fleet_status fl_saved_apply_rows_of(fl_saved *s, fl_store *store,
                                    const fl_buckets *own);

#endif
