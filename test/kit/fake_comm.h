/* fake_comm.h - ranks that are threads of this process: a group of the tests'
 * own. What is reduced is added in rank order.
 */
#pragma once

#include <pthread.h>

#include "fleet/job/handle.h"
#include "runtime/device/comm.h"

enum { FAKE_MOST_RANKS = 4 };

typedef struct fake_group fake_group;

enum { FAKE_MOST_WORK = 64 };

typedef struct fake_work {
    fl_wire_type type;
    const void *in;
    void *out;
    int64_t n;
    bool scatters;
} fake_work;

typedef struct fake_rank {
    fl_comm p; /* first */
    fl_agree rounds;
    fake_group *group;
    int n_call; /* calls so far */
    int n_work;
    fake_work work[FAKE_MOST_WORK];
    char calls[4000]; /* "gather reduce130" */
} fake_rank;

struct fake_group {
    fake_rank rank[FAKE_MOST_RANKS];
    int n;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_here;    /* ranks in this call */
    int64_t round; /* calls that are done */
    const char *call[FAKE_MOST_RANKS];
    const void *in[FAKE_MOST_RANKS];
    void *out[FAKE_MOST_RANKS];
    int64_t size[FAKE_MOST_RANKS];
    int fail_at;   /* which call of rank 1 fails; 0: none */
    char why[400]; /* of an abort */
};

void fake_group_open(fake_group *g, int n);
void fake_group_close(fake_group *g);

typedef void fake_rank_work(fake_rank *r, void *arg);

/* Each rank in a thread of its own; returns when all are done. */
void fake_group_run(fake_group *g, fake_rank_work *work, void *arg);
