/* fake_remote.h - an exchange of the tests' own: a second store in this
 * process keeps what servers would, and the workers are driven in turn, worker
 * 0 first in every step.
 *
 * It is strict: rows come at the last moment and go, as NaN, as soon as they
 * may; in sync a pull must be of the version that there is when it arrives.
 */
#pragma once

#include "fleet/job/handle.h"
#include "runtime/plan/remote.h"
#include "runtime/lookup/lookup_data.h"

typedef enum fake_call {
    FAKE_PULL,
    FAKE_ARRIVE,
    FAKE_PUSH,
    FAKE_SETTLE,
    FAKE_END_PASS,
    FAKE_REFRESH,
    FAKE_N_CALL
} fake_call;

enum { FAKE_MOST_TABLES = 8, FAKE_N_SUM = 5 };

/* A step's contributions of one table. */
typedef struct fake_sum {
    const char *table;
    fl_key_set keys;
    float *sum;
    size_t capacity;
} fake_sum;

typedef struct fake_server {
    fl_store *store;
    int n_worker;
    bool sync;
    bool idle;             /* pushes are taken and forgotten */
    int n_pushed, n_batch; /* of this step */
    int64_t updates;
    float **dense; /* by parameter: its sum in this step, or NULL */
    fake_sum table[FAKE_MOST_TABLES];
    double sum[FAKE_N_SUM]; /* of a pass: of the workers so far */
} fake_server;

typedef struct fake_slot {
    const fl_pull_rows *table;
    int n_table;
    bool asked, dense, now, has_rows;
    int64_t version;
    float *row;
    size_t capacity;
} fake_slot;

typedef struct fake_worker {
    fl_remote x; /* first */
    fake_server *server;
    fl_store *store; /* the worker's own */
    int index;
    fake_slot slot[FL_MOST_PULL_SLOT];
    int fail_at[FAKE_N_CALL]; /* which call from now on fails, once; 0: none */
    bool looks, comes_early;  /* came() has the rows of then, and says so */
    float clip, mean;         /* of the last push; fl_push_mean() */
    char calls[4000];         /* what was called: "pull0 pull1a arrive0 push" */
} fake_worker;

/* Servers for the program's parameters, with its optimizer, as yet untrained;
 * one for all workers. */
void fake_server_open(fake_server *s, fleet_program *p, int n_worker,
                      bool sync);
void fake_server_close(fake_server *s);
uint64_t fake_server_hash(fake_server *s);

/* Let the handle be a worker: before its first executor. Its tables are names:
 * who looks for a row in them fails the test. */
void fake_worker_open(fake_worker *w, fake_server *s, fleet *f, int index);

/* After its executors; nothing may be under way. */
void fake_worker_close(fake_worker *w);
