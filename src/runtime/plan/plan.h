/* plan.h - a plan: one iteration of a program as a list of steps on values,
 * for one batch size. Made by lowering (lower.h) and passes (pass.h), run by an
 * executor.
 */
#pragma once

#include "runtime/plan/kernel.h"
#include "runtime/store/store.h"

typedef enum fl_value_kind {
    FL_VALUE_FEED,
    FL_VALUE_PARAM,     /* a parameter's weights, in the store */
    FL_VALUE_TABLE,     /* rows, in the store; operands carry dependencies */
    FL_VALUE_STATE,     /* in the store */
    FL_VALUE_TEMP,      /* of one iteration: its memory is shared */
    FL_VALUE_PERSISTENT /* the plan's own, from iteration to iteration */
} fl_value_kind;

typedef struct fl_value {
    const char *name;
    fl_value_kind kind;
    fleet_dtype dtype;
    fl_shape shape;
    const fleet_var *var; /* FEED, PARAM, TABLE, STATE and fetched ones */
    int root;             /* the value whose memory this one lies in */
    int64_t column;       /* where, in elements from the root's start */
    int64_t ld;           /* elements from row to row */
    size_t object;        /* PERSISTENT: not numbers but that many bytes */
    void *pointer;        /* into the store, where var does not say it;
                             PERSISTENT: of all plans, NULL: the plan's own */
    float first;          /* PERSISTENT: every element at the start */
    bool merged;          /* PERSISTENT: sums of a merge group, one for a whole
                             crew */
    bool per_slot;        /* PERSISTENT: written by FL_PULL or FL_PREFETCH,
                             once per slot */
    bool fetched;         /* may be read after the iteration */
    bool zero_tail;       /* rows past the batch must read as zero */
    bool on_gpu;          /* in the GPU's memory */
    bool shadow;          /* of one that is at home in the other memory */

    /* On a GPU: a row for each of a lookup's positions, in memory of its own;
     * it grows with the batches. NULL: as its shape says. */
    const struct fl_device_lookup *positions;
    int64_t most_ids; /* FEED, ragged, of a GPU: room in it */

    bool changed; /* a root, by a step of the plan; set by compiling */

    /* set by the last passes, for roots */
    int begin, end;   /* regions in which it is alive; of a GPU: steps */
    int base;         /* which base pointer */
    size_t offset;    /* from it */
    size_t staged_at; /* FEED: from the staging memory's start */
} fl_value;

typedef enum fl_mode { FL_READ, FL_WRITE, FL_READ_WRITE } fl_mode;

typedef struct fl_operand {
    int value;
    fl_mode mode;
} fl_operand;

/* When a step runs. */
typedef enum fl_phase {
    FL_PULL,      /* perhaps while the iteration before this one is under way */
    FL_PULL_WAIT, /* what was pulled has come; of plans that prefetch rows,
                     or sum in forward, and of members of a crew */
    FL_PREFETCH,  /* rows are made ready for a GPU; perhaps at the same time */
    FL_FORWARD,
    FL_BACKWARD,
    FL_MERGE,        /* every iteration, after backward */
    FL_REDUCE_BEGIN, /* once per merge group: sums of gradients are begun, while
                        the rest of backward is computed */
    FL_UPDATE,       /* once per merge group */
    FL_AVERAGE       /* after an update, when ranks make their weights equal */
} fl_phase;

/* What does it: the pool's threads; servers or other ranks, which are called on
 * the executor's own thread; the GPU, also what is copied to it and from it. */
typedef enum fl_engine {
    FL_ENGINE_COMPUTE,
    FL_ENGINE_COMM,
    FL_ENGINE_GPU
} fl_engine;

typedef struct fl_step {
    const fl_kernel *kernel;
    const fl_node *node; /* whose step it is; NULL: a pass's own */
    const void *config;  /* what the kernel wants to know, in the arena */
    const fl_operand *operand;
    int n_operand;
    fl_phase phase;
    fl_engine engine;
    int period; /* runs in every period-th iteration: 1, or the merge steps */
    int stage;  /* of forward and backward: steps of lower ones are over
                   before it, see recompute.h; -1: none */
    int region;
} fl_step;

/* Steps that run without waiting for each other; all wait between regions. */
typedef struct fl_region {
    int first, n; /* steps of the plan */
    fl_split split;
    fl_phase phase; /* of forward, backward and merge: FL_FORWARD before the
                       first reduction, or with prefetched rows before the
                       CPU's first region behind forward; FL_BACKWARD from
                       it on, or from the next stage's gradients on, where
                       several batches are in flight. Of a crew's plan merge is
                       a phase of its own */
    fl_engine engine;
} fl_region;

/* A table's gradient: what a lookup has summed up. */
typedef struct fl_sparse {
    const fleet_var *table;
    int rows;   /* value of the table */
    int lookup; /* value: fl_lookup */
    int sums;   /* value: the fl_lookup that has the merged sums; -1: lookup */
    const struct fl_lookup_config *config;
    const fl_operand *gradient; /* of the outputs, which sums may point into */
    int n_gradient;
    struct fl_lookup_gpu *gpu; /* its rows are on a GPU; NULL: else */
    int norms; /* squares that its update clips by; -1: it does not */
} fl_sparse;

/* A group's gradient. */
typedef struct fl_dense {
    fl_flat *flat;
    int weight, gradient; /* values */
    int64_t first;        /* float of the group that the gradient begins with:
                             0, unless ranks share out gradients */
    int64_t first_weight; /* the same of the weights: 0, unless ranks share
                             them out */
    int one;              /* value: what is merged into the gradient */
    bool updated;         /* by a pass before update */
} fl_dense;

/* A crew: trainer threads of one process that train the same program, each on
 * batches of its own (exec/crew.h). All zero: a plan of no crew. */
typedef struct fl_crew_kind {
    int n;          /* trainer threads, each with such a plan; 0, 1: no crew */
    bool hogwild;   /* each updates by itself; else the gradients of all of them
                     are merged, for one update */
    bool in_flight; /* of a program whose next stage is another process's: one
                       thread sends the batches of all members, and then
                       receives what comes back */
    int number;     /* of the member whose plan it is, from 0 on */
} fl_crew_kind;

typedef struct fl_plan {
    const fleet_program *program;
    fl_store *store;
    const fl_place *place; /* where its steps may run */
    bool training;
    fl_crew_kind crew;
    int group;     /* batches of an update: the strategy's, of each member of a
                      crew that merges */
    int64_t batch; /* capacity */
    int64_t slice; /* rows of a slice */
    fl_arena arena;
    fl_value *value;
    size_t n_value, value_capacity;
    fl_step **step;
    size_t n_step, step_capacity;
    fl_region *region;
    size_t n_region, region_capacity;
    fl_dense *dense; /* groups that this plan uses */
    size_t n_dense, dense_capacity;
    fl_sparse *sparse; /* tables that this plan trains */
    size_t n_sparse, sparse_capacity;
    struct fl_lookup_gpu *lookups; /* in tables that are on the GPU */
    struct fl_numbered *numbered;  /* their keys */
    int *value_of;    /* value by variable's id, -1: not computed */
    int *gradient_of; /* its gradient's value, -1: none */
    int loss;         /* value, -1: none */
    int update;       /* value: an fl_update_now, -1: none */
    int scaling;      /* value: the store's fl_scaling, -1: none */
    int works;        /* value: fl_work * of each bucket, -1: none */
    int n_work;
    int pull;             /* value: begins with an fl_pull_now, -1: none */
    bool prefetches_rows; /* there are steps of FL_PULL_WAIT and FL_PREFETCH */
    bool syncs;   /* ranks meet in forward, too: sync_sums.h, gather_weights.c.
                   They have what they pulled before, in FL_PULL_WAIT */
    bool gathers; /* weights are in the plan's memory while layers use them */
    size_t arena_bytes;      /* of TEMP; the executor's plans share one arena */
    size_t persistent_bytes; /* of PERSISTENT: the plan's own */
    size_t slot_bytes;       /* of PERSISTENT per_slot, for each slot */
    size_t gpu_arena_bytes, gpu_persistent_bytes, gpu_slot_bytes; /* on the
                                                                      GPU */
    fl_text passes; /* names of the passes that applied */
} fl_plan;

/* The scalars of an update, for the steps that do it. */
typedef struct fl_update_now {
    const fleet_optimizer *optimizer;
    fl_update u;
    int micro;        /* which batch of the merge group this is, from 0 */
    int64_t batch;    /* which batch of the training this is, of all workers'
                         batches in the order in which one process that merges
                         them would have them */
    bool leaves;      /* reductions may begin: the group's last batch */
    bool joins;       /* other ranks' update: this one adds no gradients */
    bool alone;       /* this rank's own: nothing is reduced */
    int ranks;        /* AVERAGE: whose weights count */
    int batches;      /* that the sum of all ranks' gradients is divided by */
    bool skip;        /* nothing is updated: a gradient is not finite */
    float loss_scale; /* that gradients are still to be divided by; 0: none */
    double density;   /* of dgc: the part that is sent; 0: all is reduced */
    struct fl_hogwild *hogwild; /* locks, where other threads update at the same
                                   time; NULL: none do */
} fl_update_now;

/* The scalars of a pull: which of the remote's slots, and of which version. */
typedef struct fl_pull_now {
    int slot;
    bool prefetches;
    bool rows_alone; /* the weights come with another pull */
} fl_pull_now;

/* The largest batch that a plan is made for. */
#define FL_MOST_BATCH ((int64_t)1 << 31)

/* Base pointers of values: one for the arena, one for persistent values, one
 * for what a slot has of these, two per feed (values, offsets), one per thing
 * in the store. */
enum { FL_BASE_ARENA, FL_BASE_PERSISTENT, FL_BASE_SLOT, FL_FIRST_BASE };

void fl_plan_destroy(fl_plan *plan);

/* A new value; -1 without memory. `like` is copied. */
int fl_plan_value(fl_plan *plan, const fl_value *like);
int fl_plan_root(const fl_plan *plan, int value);
/* At the end: a copy of a step with these operands, or a step of the plan's
 * arena as it is. */
fleet_status fl_plan_step(fl_plan *plan, const fl_step *like,
                          const fl_operand *operand, int n_operand);
fleet_status fl_plan_add_step(fl_plan *plan, fl_step *s);

/* Of bfloat16 or float16, where an operand is; else of float32. */
fleet_dtype fl_step_dtype(const fl_plan *plan, const fl_step *s);

struct fl_gpu;

/* Its kernel on that GPU; NULL: there is none. */
const struct fl_device_kernel *fl_step_on_gpu(const fl_plan *plan,
                                              const fl_step *s,
                                              const struct fl_gpu *gpu);

/* Does the step write what is in the store? */
bool fl_step_changes_store(const fl_plan *plan, const fl_step *s);

int64_t fl_value_rows(const fl_plan *plan, const fl_value *v);
size_t fl_value_bytes(const fl_plan *plan, const fl_value *v);

/* Rows of a slice for a batch: a rule of the batch alone, so that what is
 * computed never depends on the threads. */
int64_t fl_slice_rows(int64_t batch);
