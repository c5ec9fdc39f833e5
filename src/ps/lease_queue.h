/* lease_queue.h - a training pass that is shared out in leases, each of a
 * number of batches: a state machine, without messages and without time.
 *
 * The leases of a pass are numbered from 0 on, in the order of its batches;
 * where they end only readers of the data know. A worker that asks gets the
 * next one, so a slow worker gets fewer. What each worker was given is
 * remembered, and it asks for its first one, its second one, and so on: a
 * worker that asks again, as its answer was lost, or as its process has died
 * and another one goes on in its place, gets the same lease as before.
 *
 * Of passes before this one, the last one of each dataset is remembered, as it
 * may have been stopped and goes on, and the last one of all: a process that is
 * started again between two passes does the end of that one again.
 *
 * All workers are in the same pass: between two of them they make a sum
 * together, so of a pass that is new more sums are over than of the one before.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Which pass it is. */
typedef struct fl_lease_pass {
    uint64_t pass;    /* of that dataset */
    uint32_t dataset; /* the how-manieth of the program to train */
    uint32_t batches; /* of a lease */
} fl_lease_pass;

/* As a worker asks it. */
typedef struct fl_lease_question {
    fl_lease_pass pass;
    uint64_t number; /* of the worker's leases in the pass, from 0 on */
} fl_lease_question;

typedef struct fl_lease_list {
    uint64_t *at; /* rising */
    size_t n, capacity;
} fl_lease_list;

typedef struct fl_lease_queue {
    int n_worker;
    fl_lease_pass pass;
    uint64_t sums;       /* of all workers, that were over when it began */
    uint64_t next;       /* the lowest lease that no worker has */
    fl_lease_list *list; /* by worker; NULL: no pass has begun */
    struct fl_lease_queue *before; /* earlier passes, the latest one first */
} fl_lease_queue;

/* Memory comes with the first pass. */
void fl_lease_init(fl_lease_queue *q, int n_worker);
void fl_lease_done(fl_lease_queue *q);

/* The worker's lease of that number, from 0 on, also of a pass before; *fresh:
 * it is to be given yet. Nothing has changed then. sums: that are over for the
 * worker.
 *
 *   FLEET_EINVAL  the other workers train another pass, or it by other leases;
 *                 or the worker has not had the lease before this one
 */
fleet_status fl_lease_find(const fl_lease_queue *q, uint32_t worker,
                           const fl_lease_pass *pass, uint64_t sums,
                           uint64_t number, uint64_t *lease, bool *fresh);

/* The worker has that lease from now on, as its number `number`; of another
 * pass than the queue's it is the first one of all, or the pass goes on.
 * FLEET_ECORRUPT: it cannot be that one. */
fleet_status fl_lease_give(fl_lease_queue *q, uint32_t worker,
                           const fl_lease_pass *pass, uint64_t sums,
                           uint64_t number, uint64_t lease);
