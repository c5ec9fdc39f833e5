/* backend.h - the functions by which an executor runs its plans, as a table.
 * There are two: on the host's threads alone (host_backend.c), and on a GPU
 * with the host beside it (gpu_backend.c). No other file of this room but
 * backend.c knows of a GPU.
 *
 * An executor has the backend of its place, host or GPU. Its compiled plans
 * have the same backend, but a plan without a step on the GPU has the host's.
 */
#pragma once

#include "runtime/exec/executor.h"
#include "base/pool.h"

typedef struct fl_backend {
    /* Zeroed memory of the host for values; and the right to queue work. */
    fleet_status (*alloc)(const fleet_executor *e, size_t bytes, char **p);
    void (*free)(const fleet_executor *e, char *p);
    void (*lock)(fleet_executor *e);
    void (*unlock)(fleet_executor *e);

    /* What a compiled plan needs besides. prepare() gives a plan that has no
     * step on the GPU the host's backend. */
    fleet_status (*prepare)(fleet_executor *e, fl_compiled *c);
    void (*release)(fl_compiled *c);

    /* An iteration, in this order, with its regions in between. It begins when
     * its feeds are bound, perhaps with the failure of an earlier one. Of plans
     * that prefetch rows: this iteration's are copied to where they are used;
     * after forward the next one's, if they come before this one is computed.
     * check(): is the loss finite? begin_update(): room for what it adds. */
    fleet_status (*begin)(fleet_executor *e, fl_compiled *c, int64_t batch);
    fleet_status (*copy_rows)(fleet_executor *e, fl_compiled *c);
    fleet_status (*prefetch_rows)(fleet_executor *e, fl_compiled *c);
    fleet_status (*check)(fleet_executor *e, fl_compiled *c, int64_t batch);
    fleet_status (*begin_update)(fleet_executor *e, fl_compiled *c);
    fleet_status (*end)(fleet_executor *e, fl_compiled *c, int64_t batch,
                        bool updated);

    /* A region of the plan, by its number. */
    fleet_status (*run_region)(fl_compiled *c, fl_pool *pool, size_t region,
                               int64_t batch);

    /* In place of an iteration: an update of other ranks follows. */
    fleet_status (*begin_join)(fleet_executor *e, fl_compiled *c);

    /* Outside of an iteration: wait for what is queued; and for an update,
     * which may turn out to have been skipped. */
    fleet_status (*wait)(fleet_executor *e, fl_compiled *c);
    fleet_status (*finish_update)(fleet_executor *e, fl_compiled *c);

    /* Rows of a value, without gaps, wherever it is. */
    fleet_status (*read)(const fl_compiled *c, int value, int64_t rows,
                         void *to);

    /* Iterations under way. drain() waits for all; synchronize() reports the
     * failure of the first that failed besides, once. abandon(): something else
     * has failed, and none is under way any more. */
    fleet_status (*drain)(fleet_executor *e);
    fleet_status (*synchronize)(fleet_executor *e);
    void (*abandon)(fleet_executor *e);
    void (*destroy)(fleet_executor *e);
} fl_backend;

/* That of room exec/gpu, which stands above this one: bound when the library is
 * linked, as kernels of plug-ins are. */
extern const fl_backend fl_gpu_backend;

/* The backend of what is placed like this. */
const fl_backend *fl_backend_of(const fl_place *place);
