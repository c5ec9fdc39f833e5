/* agree.h - how the ranks of a job agree what they do next together.
 *
 * Ranks agree by an all_gather in which every rank gives its intent. The
 * highest intent wins: ranks that gave it do it, all other ranks serve it and
 * ask again. So ranks need not be equally far: a rank that waits in a barrier
 * takes part in the updates of ranks that still train, and gives rows of its
 * tables to a rank that evaluates.
 *
 * Ranks that update must have set their optimizers alike: with its intent each
 * sends a hash of the settings. A difference is an error of all of them, with
 * the field and the values of two ranks.
 */
#pragma once

#include "runtime/device/comm.h"
#include "runtime/store/store.h"

typedef enum fl_intent {
    FL_INTENT_NONE,    /* the rank's pass is over, it waits for other ranks */
    FL_INTENT_UPDATE,  /* ranks without an intent serve it, with no batch */
    FL_INTENT_ROWS,    /* of tables that are sharded over the ranks */
    FL_INTENT_WEIGHTS, /* that are shared out: all of them, at once */
    FL_INTENT_COMMAND  /* of the facade: a save, a load, a hash */
} fl_intent;

typedef struct fl_agreed {
    fl_intent done; /* the rank's own intent; or an update, if it had none */
    int batches;    /* UPDATE: of all ranks */
    int most;       /* UPDATE: of the rank that has most */
    int ranks;      /* UPDATE: how many have a batch */
    int first;      /* the first rank with the intent */
    bool stops;     /* a rank wants that all of them stop after this */
} fl_agreed;

/* What a rank does for ranks whose intent is rows, weights or a command. */
typedef fleet_status fl_agree_serve(void *arg, const fl_agreed *agreed);

typedef struct fl_agree {
    fl_comm *comm;
    fl_comm *hierarchy; /* the same ranks, summing in groups; NULL: as comm */
    const fl_store *store; /* with the optimizer; NULL: none is compared */
    fl_agree_serve *serve;
    void *arg;
    bool wants_stop; /* this rank wants all ranks to stop after an update */
    bool stops;      /* an update was agreed on after which they do */
} fl_agree;

/* Serve other ranks until this rank's intent is done; batches: how many it has
 * for an update. */
fleet_status fl_agree_on(const fl_agree *r, fl_intent intent, int batches,
                         fl_agreed *agreed);

/* abort() of both communicators, as fl_comm_abort(). */
void fl_agree_abort(const fl_agree *r, const char *why);
