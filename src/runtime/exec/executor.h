/* executor.h - the inside of an executor. */
#ifndef FL_RUNTIME_EXEC_EXECUTOR_H
#define FL_RUNTIME_EXEC_EXECUTOR_H

#include <fleet/executor.h>

#include "runtime/plan/plan.h"

/* What a data variable gets in one iteration. */
typedef struct fl_input {
    const void *data;
    const int64_t *offsets; /* ragged */
} fl_input;

/* A plan with its memory and its kernels' state. */
typedef struct fl_compiled {
    fl_plan *plan;
    char **base;      /* base pointers, see place_bases() */
    char *persistent; /* values that last from iteration to iteration */
    char *per_slot;   /* those of them that are there once per slot */
    int slot;         /* whose are in use */
    char *staging;    /* feeds, when they do not fill a plan's capacity */
    char *state;      /* of all instances */
    fl_arg *arg;
    fl_instance *instance; /* as the plan's steps */
    size_t n_prepared;
    void **scratch; /* one per thread */
    int n_scratch;
    struct fl_task_entry *task; /* of regions by parts: step and part */
    int *first_task;            /* by region; one more at the end */
    struct fl_gpu_plan *gpu;    /* its part on a GPU; NULL: none */
    bool changes_store;
    fl_engine engine; /* of the region that ran last: where a failure is from
                        */
    struct fl_trace *trace; /* the context's */
    struct fl_compiled *next;
} fl_compiled;

/* A batch and the pull that was made for it, see prefetch.c. */
typedef struct fl_pulled {
    fl_input *input; /* by variable */
    int64_t batch;   /* 0: no batch */
    fl_compiled *c;  /* NULL: nothing is pulled */
    int slot;        /* of the exchange, and of c */
    int64_t version; /* in sync: the updates after which it holds */
    int gpu_slot;    /* slot of the GPU's memory that its rows are in; -1: none
                      */
} fl_pulled;

/* The loss of an iteration that is over. */
typedef struct fl_loss {
    int64_t n_run; /* 0: of none */
    double loss;
} fl_loss;

enum { FL_LOSSES = 2 }; /* that one call can find: of what was under way */

struct fleet_executor {
    fleet_program *program;
    fl_context *context;
    fl_store *store;
    bool training;
    int64_t max_batch;
    bool any_batch;  /* sizes change all the time: a plan for each power of 2 */
    bool *fetched;   /* by variable */
    fl_input *input; /* by variable */
    fl_compiled *compiled; /* the one used last first */
    fl_compiled *last;     /* of the last iteration */
    int64_t last_batch;
    char *arena; /* of all plans: one runs at a time */
    size_t arena_bytes;
    int micro;                /* batches in the merge group so far */
    int64_t n_run;            /* iterations, for messages */
    struct fl_remote *remote; /* that the plans were made for; or NULL */
    int64_t n_joined;         /* the same, of the store's */
    fl_pulled current, next; /* this iteration's pull; the next one's, if it was
                             announced */
    bool has_passed;         /* a pass over a dataset has begun, for its time */
    bool joins;              /* takes part in the updates of other ranks */
    fl_place place;
    struct fl_in_flight *in_flight; /* what is under way on a GPU; NULL: nothing
                                 ever was */
    fl_loss loss[FL_LOSSES];        /* of the last ones, by n_run */
    double loss_sum;      /* of all, by samples, and of how many samples: */
    int64_t loss_samples; /* for whoever sets them to 0 before */
};

/* One iteration on e->input. */
fleet_status fl_executor_iterate(fleet_executor *e, int64_t batch);

/* An iteration's loss, while it is one of the last that are known: on a GPU two
 * iterations later, or after a flush. Nothing is waited for. */
bool fl_executor_loss_of(const fleet_executor *e, int64_t n_run, double *loss);
void fl_executor_note_loss(fleet_executor *e, int64_t n_run, int64_t batch,
                           float loss);

/* With an exchange: the batch that will follow the next iteration, so that its
 * rows travel meanwhile. Its memory stays valid until its own iteration is
 * over, or something else was iterated, flushed or failed. A promise that need
 * not be kept; what is wrong with the batch is said in its own iteration. */
void fl_executor_prefetch(fleet_executor *e, const fl_input *input,
                          int64_t batch);

/* What was announced or pulled ahead is not wanted any more: to be called
 * before its memory goes. */
void fl_executor_forget(fleet_executor *e);

/* With an exchange or peers: the pass is over for this worker, after a flush.
 * Returns when it is for all, with sum[] over them. Else nothing happens. */
fleet_status fl_executor_end_pass(fleet_executor *e, double *sum, int n);

/* With peers: take part in the updates of those that still have batches, until
 * nobody has any. No batch of this one may be under way. */
fleet_status fl_executor_join(fleet_executor *e);

/* The same with whichever executor trains. A failure is told to the peers. */
fleet_status fl_store_join(fl_store *s);

/* Before the store is saved: wait for iterations under way on a GPU; the
 * failure of one. */
fleet_status fl_store_synchronize(fl_store *s);

/* With peers: this thread's failure ends their training, too. */
void fl_executor_give_up(const fleet_executor *e);

/* With an exchange: dense weights as they are now. Else nothing. */
fleet_status fl_executor_refresh(fleet_executor *e);

/* Let the variable be fetched from now on; plans may be made anew. */
fleet_status fl_executor_want(fleet_executor *e, const fleet_var *v);

/* Its value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);

/* What the next iteration of a batch of that size will run. */
fleet_status fl_executor_plan(fleet_executor *e, int64_t batch,
                              fl_compiled **compiled);

/* That of the batch that was announced; NULL: none was, or there cannot be one,
 * which its own iteration will say. */
fl_compiled *fl_executor_prefetch_plan(fleet_executor *e, fl_compiled *here);

void fl_executor_forget_plans(fleet_executor *e);

/* Plans are for a store with its exchange and its ranks: FLEET_ESTATE if they
 * are others now. */
fleet_status fl_executor_check_store(const fleet_executor *e);

/* --- compile.c, run.c ---------------------------------------------------- */

typedef struct fl_task_entry {
    int step, part;
} fl_task_entry;

fleet_status fl_compile(const fleet_executor *e, int64_t batch,
                        fl_compiled **compiled);
void fl_compiled_destroy(fl_compiled *c);
void *fl_compiled_pointer(const fl_compiled *c, int value);

/* The store's memory of a parameter group or a state, or its fl_rows; NULL: it
 * is neither. */
void *fl_store_memory(const fl_plan *plan, const fl_value *v);

/* Let values that are there once per slot be those of this one. */
void fl_compiled_slot(fl_compiled *c, int slot);

/* What the store keeps is where the plan is to find it; under the store's lock.
 */
fleet_status fl_compiled_map_store(const fl_compiled *c);

/* Run the regions of a phase: FL_PULL; FL_PULL_WAIT; FL_PREFETCH; FL_FORWARD, up to
 * the first gradients that leave; FL_BACKWARD for the rest and what leaves, or
 * FL_REDUCE_BEGIN for that alone; FL_UPDATE; FL_AVERAGE. Before a pull and FL_FORWARD
 * feeds are bound and kernels begin: for the pull, or for the rest. */
fleet_status fl_compiled_run(fl_compiled *c, fl_context *context, int64_t batch,
                             fl_phase phase);
void fl_compiled_bind(fl_compiled *c, const fl_input *input, int64_t batch,
                      bool pull);
fleet_status fl_compiled_begin(fl_compiled *c, int64_t batch, bool pull);

/* --- executor.c: an update, under the store's lock ------------------------ */

/* How many batches the gradients' sum is divided by; 0: no rank has any. */
fleet_status fl_executor_count(fleet_executor *e, int *batches);

/* leaves: the number of batches is that of the update. */
void fl_executor_set_update(fleet_executor *e, fl_compiled *c, int batches,
                            bool leaves);
fleet_status fl_executor_end_update(fleet_executor *e, const fl_compiled *c,
                                    fl_compiled *next);

/* This thread's failure ends the peers' training, too; then nothing of what has
 * left is under way any more. */
void fl_executor_end_works(const fleet_executor *e, fl_compiled *c);

/* --- localsgd.c: under the store's lock ------------------------------------- */

/* Does the rank make its next update on its own? */
bool fl_localsgd_is_next(const fleet_executor *e);

/* After an update, its own or one of all ranks. */
fleet_status fl_localsgd_updated(fleet_executor *e, fl_compiled *c, bool alone);

/* The pass is over for this rank: the next mean; *over: for all ranks. */
fleet_status fl_localsgd_join(fleet_executor *e, fl_compiled *c, bool *over);

/* --- prefetch.c: all of it under the store's lock -------------------------- */

/* Pull for this iteration, unless that was done ahead, and for the next one
 * with its plan, if there is one. The slot of this one is chosen. */
fleet_status fl_executor_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                              fl_compiled *next);

/* Rows of this iteration that are not on the GPU yet; and those of the next
 * one, if they come while the GPU computes what was queued. */
fleet_status fl_executor_wait_rows(fleet_executor *e, fl_compiled *c);
fleet_status fl_executor_prefetch_rows(fleet_executor *e, fl_compiled *c);

/* The update is over: in sync pull for the next iteration, and if it was pushed
 * wait until it is made. */
fleet_status fl_executor_finish_update(fleet_executor *e, fl_compiled *next,
                                       bool pushed);

/* The iteration is over, and the next one's pull is the first now. */
void fl_executor_pulled(fleet_executor *e);

/* Nothing is pulled or announced any more. */
void fl_executor_drop(fleet_executor *e);

/* The loss is not finite: run the forward steps one by one and say which is
 * the first to blame. */
fleet_status fl_compiled_find_nonfinite(fl_compiled *c, int64_t batch,
                                        int64_t n_run);

#endif
