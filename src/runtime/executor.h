/* executor.h - the inside of an executor. */
#ifndef FL_RUNTIME_EXECUTOR_H
#define FL_RUNTIME_EXECUTOR_H

#include <fleet/executor.h>

#include "runtime/plan.h"

/* What a data variable gets in one iteration. */
typedef struct fl_input {
    const void *data;
    const int64_t *offsets; /* ragged */
} fl_input;

/* A plan with its memory and its kernels' state. */
typedef struct fl_compiled {
    fl_plan *plan;
    char **base;   /* base pointers, see place_bases() */
    char *kept;    /* values that last from iteration to iteration */
    char *staging; /* feeds, when they do not fill a plan's capacity */
    char *state;   /* of all instances */
    fl_arg *arg;
    fl_instance *instance; /* as the plan's steps */
    size_t n_prepared;
    void **scratch; /* one per thread */
    int n_scratch;
    struct fl_task_entry *task; /* of regions by parts: step and part */
    int *first_task;            /* by region; one more at the end */
    bool changes_store;
    struct fl_compiled *next;
} fl_compiled;

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
    int micro;       /* batches in the merge group so far */
    int64_t n_run;   /* iterations, for messages */
    bool has_passed; /* a pass over a dataset has begun, for its time */
};

/* One iteration on e->input. */
fleet_status fl_executor_iterate(fleet_executor *e, int64_t batch);

/* Let the variable be fetched from now on; plans may be made anew. */
fleet_status fl_executor_want(fleet_executor *e, const fleet_var *v);

/* Its value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);

/* What the next iteration of a batch of that size will run. */
fleet_status fl_executor_plan(fleet_executor *e, int64_t batch,
                              fl_compiled **compiled);

/* --- compile.c, run.c ---------------------------------------------------- */

typedef struct fl_task_entry {
    int step, part;
} fl_task_entry;

fleet_status fl_compile(const fleet_executor *e, int64_t batch,
                        fl_compiled **compiled);
void fl_compiled_destroy(fl_compiled *c);
void *fl_compiled_pointer(const fl_compiled *c, int value);

/* Run the regions of a phase: everything before the update, or the update. */
fleet_status fl_compiled_run(fl_compiled *c, fl_context *context, int64_t batch,
                             bool update);
void fl_compiled_bind(fl_compiled *c, const fl_input *input, int64_t batch);
fleet_status fl_compiled_begin(fl_compiled *c, int64_t batch);

/* The loss is not finite: run the forward steps one by one and say which is
 * the first to blame. */
fleet_status fl_compiled_blame(fl_compiled *c, int64_t batch, int64_t n_run);

#endif
