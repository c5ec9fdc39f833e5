/* executor.h - an executor: what it consists of, and one iteration of it. The
 * room's other files are parts of one: plan_cache.h its plans, compile.h a plan
 * with its memory, run.h the plan's regions, prefetch.h its pulls, feed_fetch.h
 * what goes in and out, uneven_ranks.h and localsgd_schedule.h what it does
 * with other ranks, backend.h what it runs on. */
#pragma once

#include <fleet/executor.h>

#include "runtime/plan/plan.h"

typedef struct fl_compiled fl_compiled;

/* What a data variable gets in one iteration. */
typedef struct fl_input {
    const void *data;
    const int64_t *offsets; /* ragged */
} fl_input;

/* A batch and the pull that was made for it, see prefetch.c. */
typedef struct fl_pulled {
    fl_input *input; /* by variable */
    int64_t batch;   /* 0: no batch */
    fl_compiled *c;  /* NULL: nothing is pulled */
    int slot;        /* of the remote store, and of c */
    int64_t version; /* in sync: how many updates it comes after */
    int copied_to;   /* the backend's slot that its rows are in; -1: none */
} fl_pulled;

/* The loss of an iteration that is over. */
typedef struct fl_loss {
    int64_t n_run; /* 0: of no iteration */
    double loss;
} fl_loss;

enum { FL_LOSSES = 2 }; /* as many iterations end in one call at most */

struct fleet_executor {
    fleet_program *program;
    fl_context *context;
    fl_store *store;
    fl_place place;
    const struct fl_backend *backend;
    bool training;
    struct fl_shown_data *shown; /* that tables with an accessor count, of a
                                    program that trains; n_shown of them */
    size_t n_shown;
    int64_t max_batch;
    bool any_batch;  /* sizes change all the time: a plan for each power of 2 */
    bool *fetched;   /* by variable */
    fl_input *input; /* by variable */
    fl_compiled *compiled; /* the one used last first */
    fl_compiled *last;     /* of the last iteration, for fetches */
    int64_t last_batch;
    fl_compiled *merged;  /* has the sums of the merge group under way */
    struct fl_crew *crew; /* its trainer threads; NULL: none yet */
    fl_crew_kind kind;    /* of the crew that it is a member of */
    char *arena;          /* of all plans: one runs at a time */
    size_t arena_bytes;
    int micro;                /* batches in the merge group so far */
    int64_t n_run;            /* iterations, for messages */
    struct fl_remote *remote; /* that the plans were made for; or NULL */
    int64_t n_joined;         /* the same, of the store's */
    fl_pulled current;        /* this iteration's pull */
    fl_pulled next;           /* the next one's, if its batch is known */
    bool has_passed; /* a pass over a dataset has begun, for its time */
    bool in_pass;    /* its batches are of the pass whose rows a GPU has */
    bool joins;      /* takes part in the updates of other ranks */
    bool gpu_passes; /* that the plans were made for, of the store's */
    struct fl_in_flight *in_flight; /* the backend's: iterations under way;
                                     * NULL: none has begun yet */
    fl_loss loss[FL_LOSSES];        /* of the last iterations, by n_run */
    double loss_sum;      /* of all iterations, times their samples; and of */
    int64_t loss_samples; /* how many samples. The caller sets them to 0. */
};

/* One iteration on e->input. */
fleet_status fl_executor_iterate(fleet_executor *e, int64_t batch);

/* The variable of the executor's program that the user's is: of a program that
 * is trained in stages the one of that name, and for the loss that of this
 * stage. NULL: there is none. */
const fleet_var *fl_executor_own_var(const fleet_executor *e,
                                     const fleet_var *v);

/* An iteration's loss, if it is one of the last that are known: on a GPU two
 * iterations later, or after a flush. Nothing is waited for. */
bool fl_executor_loss_of(const fleet_executor *e, int64_t n_run, double *loss);
void fl_executor_note_loss(fleet_executor *e, int64_t n_run, int64_t batch,
                           float loss);

/* Before the store is saved: wait for iterations under way on a GPU; the
 * failure of one. */
fleet_status fl_store_synchronize(fl_store *s);

/* With ranks: this thread's failure ends their training, too. */
void fl_executor_give_up(const fleet_executor *e);

/* A part of an iteration; a failure says which batch's it is. */
fleet_status fl_executor_run_part(fleet_executor *e, fl_compiled *c,
                                  int64_t batch, fl_phase phase);

/* --- an update, under the store's lock ------------------------------------ */

/* Before an executor trains where another one did: that one's iterations are
 * over, and so the number of updates is known. */
fleet_status fl_executor_take_over(fleet_executor *e);

/* How many batches the merge group has now. */
void fl_executor_set_micro(fleet_executor *e, int micro);

/* The update of a merge group whose sums c has, after a batch of that many
 * rows. */
fleet_status fl_executor_update(fleet_executor *e, fl_compiled *c,
                                int64_t batch, fl_compiled *next);

/* Of all ranks, in one update. The divisor is the gradients', which a strategy
 * may have added up: moving averages are of all. 0: no rank has any. */
typedef struct fl_update_count {
    int divisor, all;
} fl_update_count;

#define FL_ONE_BATCH ((fl_update_count){1, 1})

fleet_status fl_executor_count(fleet_executor *e, fl_update_count *batches);

/* leaves: the number of batches is final, gradients may go to other ranks.
 * FLEET_ENUMERIC: the optimizer cannot make that update. */
fleet_status fl_executor_set_update(fleet_executor *e, fl_compiled *c,
                                    fl_update_count batches, bool leaves);

/* The number of the batch that comes, before which the merge group has that
 * many of this process; it stays for backward. */
void fl_executor_set_batch(const fleet_executor *e, fl_compiled *c, int before);
fleet_status fl_executor_end_update(fleet_executor *e, const fl_compiled *c,
                                    fl_compiled *next);

/* This thread's failure ends the training of the other ranks, too; afterwards
 * no reduction of the plan is under way any more. */
void fl_executor_end_works(const fleet_executor *e, fl_compiled *c);
