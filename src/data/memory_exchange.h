/* memory_exchange.h - samples of all workers in one shuffled order, which is a
 * function: each worker knows of each of its samples where it goes, and sends
 * it to that worker. */
#pragma once

#include "data/permutation.h"
#include "data/sample_memory.h"

/* How workers talk: in rounds, in which each has a message for each worker, of
 * to[r] bytes at out[r], and gets one of each, of from[r] bytes at in[r], until
 * the next round. to[r] below 0 for all: this worker gives up, and the round
 * fails for all. */
typedef struct fl_memory_swap {
    void *arg;
    int index, n;
    fleet_status (*round)(void *arg, const char *const *out, const int64_t *to,
                          const char **in, int64_t *from);
} fl_memory_swap;

/* The places of all samples are shared out among the workers by batches: batch
 * b of the whole is batch b / n of worker b mod n. */
typedef struct fl_memory_share {
    uint64_t rows; /* of all workers */
    uint64_t batch, n;
} fl_memory_share;

uint64_t fl_memory_rows(const fl_memory_share *s, uint64_t worker);
uint64_t fl_memory_place(const fl_memory_share *s, uint64_t worker,
                         uint64_t row);

/* Which sample of all a worker's row is: as the last exchange has left it, at
 * its place, or else counted on from the workers' rows before. */
typedef struct fl_memory_origin {
    bool shared;                  /* it is what stands at its place, */
    const fl_permutation *before; /* of this order; NULL: of the files' */
    uint64_t first;               /* not shared: of the worker's first row */
} fl_memory_origin;

/* m's rows are what stands at the worker's places in the order `after`, of
 * all workers' `held`. m is empty before, and after a failure. */
fleet_status fl_memory_exchange(
    const fl_sample_memory *held, const fl_memory_origin *origin,
    const fl_memory_share *share, const fl_permutation *after,
    const fl_stream_spec *spec, const fl_memory_swap *swap,
    const fl_memory_limit *limit, fl_sample_memory *m);
