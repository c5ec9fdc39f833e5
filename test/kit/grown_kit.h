/* grown_kit.h - a tiny model whose rows and weights can be said by hand, and
 * the same grown by a parameter and a table: for what is loaded of another
 * model, and what is read and written row by row. Its loss is the mean of the
 * rows of "t" (dim 2) of a batch's ids, and the mean of "w" (3); grown also
 * those of "more" (dim 2) and "extra" (2). */
#pragma once

#include <fleet/fleet.h>

#include "ps_kit.h"

typedef struct grown {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} grown;

enum { GROWN_DIM = 2, GROWN_W = 3 };

typedef struct grown_how {
    const char *optimizer; /* of kit_rule() */
    bool larger, a_sync, is_collective;
    fleet_ps ps; /* of "t" */
    int64_t dim; /* of "t"; 0: GROWN_DIM */
    int64_t rows;
    int64_t cache_bytes; /* of workers; 0: none */
    int cache_staleness;
    fleet_table_options life;  /* of "t" */
    fleet_row_storage storage; /* of "t" */
    int threads;               /* 0: 1; of a job 1 */
    int merge;   /* batches of an update; of a job job.how.merge; 0: 1 */
    int64_t geo; /* in async: updates between exchanges; 0: not geo */
    int merged;  /* in async: pushes that are merged; 0: not half-async */
    fleet_wire_type push_type;
    float clip; /* by global norm; 0: none */
    fleet_options options;
} grown_how;

/* The program in a handle, minimized; the ids' variable. */
fleet_var *grown_build(fleet *f, fleet_program **p, const grown_how *how);

void grown_open(grown *g, const grown_how *how);
void grown_close(grown *g);

/* Train with the ids 0 .. n - 1; with these. */
void grown_train(grown *g, int n);
void grown_train_ids(grown *g, const int64_t *id, int n);

/* n keys from the first one on, in one update. */
void grown_train_keys(grown *g, int64_t first, int n);

uint64_t grown_hash(const grown *g);
fleet_table_statistics grown_stat(const grown *g, const char *table);
int64_t grown_rows(const grown *g, const char *table);

/* A parameter's value, by a fetch. */
void grown_fetch(grown *g, const char *name, float *value, size_t size);

/* The row of "t" as an executor for test reads it. */
void grown_row(const grown *g, int64_t id, float row[GROWN_DIM]);

/* As a job with servers: job.user is a grown_how; the ids are a file's. */
void grown_open_node(ps_node *n, const fleet_options *o);
const char *grown_ids(const char *name, int from, int n);
