/* context.h - what the parts of one fleet handle share: log, seed, threads,
 * trace. */
#pragma once

#include "base/log.h"
#include "base/thread.h"
#include "base/pool.h"

enum { FL_MAX_THREAD = 64 };

typedef struct fl_context {
    fl_log log;
    uint64_t seed;
    fl_pool *pool;          /* NULL with one thread */
    struct fl_trace *trace; /* NULL: none is asked for */
    uint64_t fork_generation;
    bool survives_fork; /* no threads of its own, no locks held meanwhile */
} fl_context;

/* FLEET_NUM_THREADS, or OMP_NUM_THREADS as launchers set it, or all
 * processors. */
int fl_thread_count(fl_log *log);

/* n_thread 0: as the environment or the machine says. */
fleet_status fl_context_init(fl_context *c, uint64_t seed, int n_thread);
void fl_context_done(fl_context *c);

/* FLEET_ESTATE in a child of the process that made it: a child has neither its
 * threads nor its locks. */
fleet_status fl_context_check(const fl_context *c);
