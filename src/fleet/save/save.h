/* save.h - writing saves: a folder of parts and a manifest; docs/formats.md.
 *
 * A save is written and read by name. Dense parameters travel in blocks of
 * FL_BLOCK floats, rows bucket by bucket, so that any number of processes can
 * write the parts of one save and any other number can read them.
 */
#pragma once

#include "base/file.h"
#include "base/json/json.h"
#include "ps/partition.h"

#define FL_MANIFEST     "manifest.json"
#define FL_MANIFEST_SUM "manifest.xxh64"

/* A chain's version: a reader of the first one alone would miss rows. */
enum { FL_SAVE_VERSION = 1, FL_SAVE_CHAINED = 2 };

/* What stands before every piece of a part, little-endian. */
typedef struct fl_record {
    uint32_t magic; /* FL_RECORD_MAGIC */
    uint32_t kind;  /* 1: a dense block, 2: rows of a bucket, 3: what a table
                       remembers of earlier updates (row_ages.h), 4: keys
                       whose rows went */
    uint32_t item;  /* place in the manifest's params or tables */
    uint32_t index; /* which block, or bucket */
    uint64_t n;     /* floats, rows, marks, or keys */
} fl_record;

enum {
    FL_RECORD_MAGIC = 0x43524c46,
    FL_RECORD_DENSE = 1,
    FL_RECORD_ROWS = 2,
    FL_RECORD_LIFE = 3,
    FL_RECORD_GONE = 4
};

/* Parts that other processes write: servers, or ranks. */
struct fl_save;
typedef struct fl_save_elsewhere {
    /* Have them written into the folder, list them as a manifest does, count
     * each table's rows into `rows`. */
    fleet_status (*write)(void *arg, const struct fl_save *s,
                          const char *folder, fl_json *list);
    void *arg;
    int64_t *rows;   /* by table of the save */
    fl_json *cuts;   /* of lanes that train on: docs/formats.md */
    int64_t updates; /* that were done */
} fl_save_elsewhere;

/* A save that later saves may add to, and that may add to one: it has the rows
 * that have changed since. */
typedef struct fl_save_link {
    uint64_t token;       /* what processes with rows know it by; not 0 */
    uint64_t base;        /* that of the save it adds to; 0: it has all rows */
    const fl_json *chain; /* with a base: the saves that it is read with, as
                             its manifest has them */

    /* what came of it */
    bool refused;  /* a process does not know what has changed since `base`:
                      nothing was saved */
    uint64_t hash; /* of its manifest; 0: there is none */
    int64_t bytes; /* of its parts */
} fl_save_link;

/* What is saved: which of the store's things, and what else the manifest says.
 * An entry that is NULL has its place in the manifest, and other processes
 * write it. */
typedef struct fl_save {
    fl_store *store;
    fl_param **param;
    int n_param;
    fl_rows **table;
    int n_table;
    bool states;               /* the optimizer's, too */
    const char *what;          /* "checkpoint" or "inference" */
    const fl_json *program;    /* what a predictor runs; NULL: none */
    const fl_json *reader;     /* how lines are read for it; NULL: none */
    const fl_json *statistics; /* of the training data; NULL: none */
    const fl_json *positions;  /* of datasets that train; NULL: none */
    const void *extra;         /* the user's, extra_size bytes; NULL: none */
    size_t extra_size;
    fl_save_elsewhere *elsewhere; /* NULL: this process writes all */
    const fl_bucket_set *own; /* the part of it that is written; NULL: all */
    fl_save_link *link;       /* NULL: it is no link of a chain */
    fleet_save_mode mode;     /* of tables with an accessor */
    const float *least_shows; /* by table: rows that were shown less often are
                                 left out; NULL: none */
    int64_t *written; /* by table: rows; NULL: they are not counted. Another
                         process's are `elsewhere` */
    int64_t total;    /* of these, once it is written */
} fl_save;

fleet_status fl_save_write(const fl_save *s, const char *path);

/* Its parts alone, in files whose names begin so; they are appended to the
 * list. For a lane of a server, without the store's lock. */
fleet_status fl_save_parts(const fl_save *s, const char *folder,
                           const char *prefix, fl_json *list);

/* Remove the save, and its folder if nothing else is in it. */
void fl_save_remove(const char *path);

/* Could a save be written to that path? Leaves nothing. */
fleet_status fl_save_check(const char *path);
