/* compile.h - a plan made ready to run: its memory, resolved operands, kernels'
 * state, task lists. */
#pragma once

#include "base/pool.h"
#include "runtime/exec/executor.h"

/* A step and one of its parts: a task of a region by parts. */
typedef struct fl_task_entry {
    int step, part;
} fl_task_entry;

struct fl_compiled {
    fl_plan *plan;
    const struct fl_backend *backend;
    struct fl_gpu_plan *gpu; /* the GPU backend's part; NULL: none */
    char **base;             /* base pointers, see place_bases() */
    char *persistent;        /* values that last from iteration to iteration */
    char *per_slot;          /* such values that there is one of per slot */
    int slot;                /* whose are in use */
    char *staging;           /* feeds that do not fill a plan's capacity */
    char *state;             /* of all instances */
    fl_arg *arg;
    fl_instance *instance; /* as the plan's steps */
    size_t n_prepared;
    void **scratch; /* one per thread */
    int n_scratch;
    fl_task_entry *task; /* of all regions by parts */
    int *first_task;     /* by region; one more at the end */
    bool changes_store;
    fl_engine engine; /* of the region that ran last: where a failure is from */
    struct fl_trace *trace; /* the context's */
    bool alone;             /* not on the handle's threads: on the caller's, and
                               on the threads of `team` */
    fl_pool *team;          /* NULL: on the caller's alone */
    int first_thread;       /* for the trace */
    fl_compiled *next;
};

fleet_status fl_compile(fleet_executor *e, int64_t batch,
                        fl_compiled **compiled);
void fl_compiled_destroy(const fleet_executor *e, fl_compiled *c);
void *fl_compiled_pointer(const fl_compiled *c, int value);

/* The store's memory of a flat buffer or a state, or its fl_rows; NULL: the
 * value is none of them. */
void *fl_store_memory(const fl_plan *plan, const fl_value *v);

/* From now on values that there is one of per slot are this slot's. */
void fl_compiled_slot(fl_compiled *c, int slot);
