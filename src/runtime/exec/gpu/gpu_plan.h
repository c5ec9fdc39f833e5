/* gpu_plan.h - the part of a compiled plan that is on a GPU: memory, prepared
 * steps, feeds.
 *
 * An iteration is queued and not waited for. Two may be in flight: each has a
 * slot of pinned memory with its feeds, the numbers of its update, and its
 * status. Before a slot is used again its iteration is over; the host then
 * reads its loss, and whether it has failed. An iteration that fails (its loss
 * is not finite, a label is out of range) stops the updates of itself and of
 * all iterations queued after it, by a flag in the GPU's own memory. So a
 * failure is reported two iterations later, or by the next call that waits: a
 * fetch, a flush, the end of a pass; at once if the CPU has a part in the
 * update.
 */
#pragma once

#include "runtime/device/command_graph.h"
#include "runtime/exec/compile.h"
#include "runtime/optim/update_gpu.h"

typedef struct fl_gpu_plan fl_gpu_plan;
typedef struct fl_prepared fl_prepared;

/* Steps prepared for a number of rows, and for the feeds of a slot. */
struct fl_prepared {
    int64_t batch;
    int slot;
    fl_device_step *step; /* as the plan's */
    fl_device_arg *arg;
    char *state;
    void *scratch;
    size_t n_prepared;
    fl_command_graph *known; /* what was queued with these steps */
    fl_device_step end;      /* "iteration.end" */
    fl_device_arg end_arg[3];
    fl_device_end end_config;
    fl_prepared *next;
};

struct fl_gpu_plan {
    fl_gpu *gpu;
    char *arena, *persistent, *faults; /* of the GPU */
    char *feed[2];                     /* by slot */
    size_t feed_bytes;
    char *per_slot[2]; /* values that there is one of per slot */
    size_t counts_at, feeds_at, pinned_bytes; /* of a slot's pinned memory */
    size_t *sends_at; /* the same, by step; 0: it sends nothing */
    void **stored;    /* by value: a mirror's memory, or that of positions */
    const fl_device_kernel **kernel; /* by step; NULL: the step has none */
    int n_update_steps;              /* steps that are sent the update */
    bool host_updates; /* the CPU has a part in what comes after forward */
    int loss;          /* value on the GPU, -1: none */
    bool graphs; /* an iteration's work is gathered, see command_graph.h */
    fl_prepared *prepared, *now;
    /* corrections by row_steps, of the optimizer and of tables; NULL: none */
    const float *correct[1 + FL_MOST_OWN][2];

    /* of the iteration under way */
    int slot;
    char *pinned; /* see fl_gpu_plan_place_pinned() */
    int n_updates_sent;
    fl_device_status *status;    /* in the GPU's memory */
    const fl_device_kernel *end; /* "iteration.end" */

    /* prefetched rows: which slot they go to now; by slot of the host, after
     * the last copy from it, and whether there was one */
    int rows_to;
    fl_event *sent[2];
    bool sends[2];

    bool gathers;         /* now; else work is queued at once */
    bool copies;          /* gathered work copies between host and GPU */
    fl_gpu_commands work; /* that was gathered */
};

/* A slot's pinned memory: its status, and behind it the loss's scaling, in
 * FL_PINNED_STATUS bytes; updates that are sent; counts of rows; feeds; what
 * steps send of the store's. Laid out again when there is more of it. */
enum { FL_PINNED_SCALING = 32, FL_PINNED_STATUS = 64 };
_Static_assert(sizeof(fl_device_status) <= FL_PINNED_SCALING &&
                   FL_PINNED_SCALING + sizeof(fl_scaling) <= FL_PINNED_STATUS,
               "the status and the scaling have room");
fleet_status fl_gpu_plan_place_pinned(fl_compiled *c);

/* Is the host's value in memory that queued copies may use? */
bool fl_gpu_plan_is_pinned(const fl_value *root);

/* Is it one of the steps that copy between host and GPU? */
bool fl_gpu_plan_is_copy(const fl_kernel *k);

/* c->gpu; a plan without a step on the GPU becomes one of the host's. */
fleet_status fl_gpu_plan_make(fleet_executor *e, fl_compiled *c);
void fl_gpu_plan_destroy(fl_compiled *c);

/* Steps for a batch of that many rows, with the feeds of a slot. */
fleet_status fl_gpu_plan_prepare(fl_compiled *c, int64_t batch, int slot);

/* Prepare all steps anew when they are next asked for: operands will move. */
fleet_status fl_gpu_plan_unprepare(fl_compiled *c);

/* Where a value is on the GPU; `slot` if there is one of it per slot. */
void *fl_gpu_plan_pointer(const fl_compiled *c, int value, int slot);
