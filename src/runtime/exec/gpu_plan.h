/* gpu_plan.h - the part of an executor that is on a GPU: memory, prepared steps,
 * feeds, and the iterations that are under way.
 *
 * An iteration is queued and not waited for. Two may be under way: each has a
 * slot of pinned memory with its feeds, what its update is told, and how it
 * went. Before a slot is used again its iteration is over; then its loss is
 * known, and whether it failed. One that fails (its loss is not finite, a label
 * is out of range) stops itself and all that were queued after it in the GPU's
 * own memory: nothing is updated any more. So a failure is reported by the
 * iteration after the next one, or by whatever waits: a fetch, a flush, the end
 * of a pass; at once where the CPU has a part in the update.
 */
#ifndef FL_RUNTIME_EXEC_GPU_PLAN_H
#define FL_RUNTIME_EXEC_GPU_PLAN_H

#include "runtime/exec/executor.h"
#include "runtime/device/command_graph.h"
#include "runtime/optim/update_gpu.h"

/* --- gpu_plan.c: a compiled plan's ------------------------------------------ */

typedef struct fl_gpu_plan fl_gpu_plan;
typedef struct fl_prepared fl_prepared;

/* Steps prepared for a number of rows, and a slot's feeds. */
struct fl_prepared {
    int64_t batch;
    int slot;
    fl_device_step *step; /* as the plan's */
    fl_device_arg *arg;
    char *state;
    void *scratch;
    size_t n_prepared;
    fl_command_graph *known; /* what was queued with it */
    fl_device_step end;      /* the iteration's */
    fl_device_arg end_arg[3];
    fl_device_end end_config;
    fl_prepared *next;
};

struct fl_gpu_plan {
    fl_gpu *gpu;
    char *arena, *persistent, *faults; /* of the GPU */
    char *feed[2];                     /* by slot */
    size_t feed_bytes;
    char *per_slot[2];                        /* what is there once per slot */
    size_t counts_at, feeds_at, pinned_bytes; /* of a slot's pinned memory */
    size_t *sends_at; /* the same, by step; 0: it sends nothing */
    void **stored;    /* by value: a mirror's memory, or that of positions */
    const fl_device_kernel **kernel; /* by step; NULL: not there */
    int n_tell;                      /* steps that tell an update */
    bool host_updates; /* the CPU has a part in what comes after forward */
    int loss;          /* value that is there, -1: none is */
    bool graphs; /* an iteration's work is gathered, see command_graph.h */
    fl_prepared *prepared, *now;
    void *correct[2]; /* the optimizer's corrections by row step; NULL: none */

    /* of the iteration under way */
    int slot;
    char *pinned; /* its status, and what was told in it, n_tell of them */
    int n_told;
    fl_device_status *status;    /* of the GPU */
    const fl_device_kernel *end; /* "iteration.end" */

    /* rows that come ahead: which slot they go to now; after the last copy from
     * a slot of the host's, if there was one */
    int rows_to;
    fl_event *sent[2];
    bool sends[2];

    bool gathers;         /* now; else work is queued at once */
    bool crosses;         /* what was gathered copies between the memories */
    fl_gpu_commands work; /* that was gathered */
};

/* The pinned memory of a slot: its status, and the loss's scaling after it, so
 * many bytes; what is told; counts of rows; feeds; what steps send of the
 * store's. Placed again when there is more of it. */
enum { FL_PINNED_SCALING = 32, FL_PINNED_STATUS = 64 };
_Static_assert(sizeof(fl_device_status) <= FL_PINNED_SCALING &&
                   FL_PINNED_SCALING + sizeof(fl_scaling) <= FL_PINNED_STATUS,
               "the status and the scaling have room");
fleet_status fl_gpu_plan_place_pinned(fl_compiled *c);

/* Memory of the host that copies are made from and to in their turn. */
bool fl_gpu_plan_is_pinned(const fl_value *root);

/* c->there, if its plan has steps on a GPU. */
fleet_status fl_gpu_plan_make(const fleet_executor *e, fl_compiled *c);
void fl_gpu_plan_destroy(fl_compiled *c);

/* Steps for a batch of that many rows, with the feeds of a slot. */
fleet_status fl_gpu_plan_prepare(fl_compiled *c, int64_t batch, int slot);

/* Prepare them all anew when they are next asked for: operands will move. */
fleet_status fl_gpu_plan_unprepare(fl_compiled *c);

/* --- gpu_run.c -------------------------------------------------------- */

/* Queue a region; what an iteration begins with, and how its loss and labels
 * are, which stops the updates: inside an iteration it is only gathered, until
 * fl_gpu_plan_queue(). */
fleet_status fl_gpu_plan_run(fl_compiled *c, const fl_region *region,
                             int64_t batch);
fleet_status fl_gpu_plan_begin(fl_compiled *c);
fleet_status fl_gpu_plan_end(fl_compiled *c);
fleet_status fl_gpu_plan_tell_scaling(fl_compiled *c); /* after an update */

/* One piece of what an iteration does. */
fleet_status fl_gpu_plan_put(fl_gpu_plan *t, const fl_gpu_command *work);

/* Queue what was gathered: before the CPU works besides, or waits. */
fleet_status fl_gpu_plan_queue(fl_compiled *c);

/* Before the CPU reads what was copied to it, or writes what is copied. */
fleet_status fl_gpu_plan_arrived(fl_compiled *c);

/* The iteration has failed: what was gathered is not queued. */
void fl_gpu_plan_forget(fl_compiled *c);

void *fl_gpu_plan_pointer(const fl_compiled *c, int value, int slot);

/* Before FL_PREFETCH is run: the host's slot, which is that of c, may be written,
 * and copies go to that one of the GPU's. They are queued at once, beside what
 * is computed. */
fleet_status fl_gpu_plan_begin_rows(fl_compiled *c, int to);

/* Rows of a value that is there, without gaps, to the host; waits. */
fleet_status fl_gpu_plan_read(const fl_compiled *c, int value, int64_t rows,
                              void *to);

/* --- gpu_ids.c: what depends on how many ids there are ----------------- */

/* Where feeds lie in a slot's memory, and that memory. */
fleet_status fl_gpu_plan_place_feeds(fl_compiled *c);

/* A ragged feed's ids come before their offsets. */
size_t fl_gpu_plan_offsets_at(const fl_value *v);

/* Tables, and the positions of lookups. */
fleet_status fl_gpu_plan_find_tables(fl_compiled *c);
fleet_status fl_gpu_plan_make_positions(fl_compiled *c);

/* Before a batch is fed: room for its ids; they are of the merge group's
 * `micro`-th batch, from 0. Before an update: room for its rows. */
fleet_status fl_gpu_plan_begin_ids(fl_compiled *c, const fl_input *input,
                                   int64_t batch, int micro);
fleet_status fl_gpu_plan_make_room(fl_compiled *c);

/* Counts of rows after an update: so many bytes of pinned memory; on their way;
 * and there. */
size_t fl_gpu_plan_count_bytes(const fl_compiled *c);
fleet_status fl_gpu_plan_count(fl_compiled *c);
void fl_gpu_plan_counted(const fl_compiled *c, const char *pinned);

/* --- gpu_in_flight.c: an executor's --------------------------------------------- */

typedef struct fl_in_flight fl_in_flight;

/* Of an iteration: take a slot, perhaps with the failure of an earlier one;
 * feed; see how it went, once FL_FORWARD is queued; and it is under way. */
fleet_status fl_in_flight_begin(fleet_executor *e, fl_compiled *c,
                                int64_t batch);
fleet_status fl_in_flight_check(fleet_executor *e, fl_compiled *c);
fleet_status fl_in_flight_end(fleet_executor *e, fl_compiled *c, int64_t batch,
                              bool updated);

/* Let what is queued from now on wait for the copies beside it. */
fleet_status fl_in_flight_fed(fleet_executor *e, const fl_compiled *c);

/* The slot of the GPU's memory that the next iteration will use, once the one
 * before this has left it. */
fleet_status fl_in_flight_next(fleet_executor *e, int *there);

/* Before an executor trains where another one did: its iterations are over. */
fleet_status fl_in_flight_take_over(fleet_executor *e);

/* Wait for an update that was queued by itself. */
fleet_status fl_in_flight_finish(fleet_executor *e, const fl_compiled *c);

/* In place of an iteration: steps of an update of other ranks follow, which are
 * waited for before anything else is begun. Nothing without a GPU. */
fleet_status fl_in_flight_update_others(fleet_executor *e, fl_compiled *c);

/* Wait for all that are under way; the failure of the first that failed, told
 * once. Nothing without a GPU. */
fleet_status fl_in_flight_synchronize(fleet_executor *e);

/* Something else has failed: nothing is under way any more. */
void fl_in_flight_abandon(fleet_executor *e);
void fl_in_flight_destroy(fleet_executor *e);

#endif
