/* gpu_backend.c - the backend of executors whose place has a GPU: iterations
 * are queued on it (gpu_in_flight.c), and the host runs the other steps. */
#include "runtime/exec/backend.h"

#include "runtime/exec/gpu/gpu_ids.h"
#include "runtime/exec/gpu/gpu_in_flight.h"
#include "runtime/exec/gpu/gpu_prefetch.h"
#include "runtime/exec/gpu/gpu_run.h"
#include "runtime/exec/host_backend.h"
#include "runtime/exec/run.h"
#include "base/pool.h"

/* Pinned memory, from and to which queued copies run. */
static fleet_status alloc_pinned(const fleet_executor *e, size_t bytes,
                                 char **p)
{
    return fl_gpu_host_alloc(e->place.gpu, bytes, p);
}

static void free_pinned(const fleet_executor *e, char *p)
{
    fl_gpu_host_free(e->place.gpu, p);
}

static void lock_gpu(fleet_executor *e)
{
    fl_gpu_lock(e->place.gpu);
}

static void unlock_gpu(fleet_executor *e)
{
    fl_gpu_unlock(e->place.gpu);
}

static fleet_status begin_iteration(fleet_executor *e, fl_compiled *c,
                                    int64_t batch)
{
    FL_TRY(fl_in_flight_begin(e, c, batch));
    return fl_compiled_begin(c, batch, false);
}

/* The loss of a GPU is known when its iteration is over. */
static fleet_status check_iteration(fleet_executor *e, fl_compiled *c,
                                    int64_t batch)
{
    FL_TRY(fl_gpu_plan_wait_copies(c));
    FL_TRY(fl_in_flight_check(e, c));
    return c->gpu->loss >= 0 ? FLEET_OK : fl_host_check(e, c, batch);
}

/* The GPU computes what was queued while a region of the host runs. */
static fleet_status run_region(fl_compiled *c, fl_pool *pool, size_t r,
                               int64_t batch)
{
    const fl_region *region = &c->plan->region[r];

    if (region->engine == FL_ENGINE_GPU)
        return fl_gpu_plan_run(c, region, batch);
    if (region->phase >= FL_FORWARD) {
        FL_TRY(fl_gpu_plan_queue(c));
        FL_TRY(fl_gpu_plan_wait_copies(c));
    }
    return fl_host_run_region(c, pool, r, batch);
}

static fleet_status wait_for_gpu(fleet_executor *e, fl_compiled *c)
{
    (void)e;
    return fl_gpu_wait(c->gpu->gpu);
}

static fleet_status read_value(const fl_compiled *c, int value, int64_t rows,
                               void *to)
{
    fleet_status status;

    if (!c->plan->value[value].on_gpu)
        return fl_host_read(c, value, rows, to);
    fl_gpu_lock(c->gpu->gpu);
    status = fl_gpu_plan_read(c, value, rows, to);
    fl_gpu_unlock(c->gpu->gpu);
    return status;
}

const fl_backend fl_gpu_backend = {
    .alloc = alloc_pinned,
    .free = free_pinned,
    .lock = lock_gpu,
    .unlock = unlock_gpu,
    .prepare = fl_gpu_plan_make,
    .release = fl_gpu_plan_destroy,
    .begin = begin_iteration,
    .copy_rows = fl_gpu_copy_rows,
    .prefetch_rows = fl_gpu_prefetch_rows,
    .check = check_iteration,
    .begin_update = fl_gpu_plan_make_room,
    .end = fl_in_flight_end,
    .run_region = run_region,
    .begin_join = fl_in_flight_join,
    .wait = wait_for_gpu,
    .finish_update = fl_in_flight_finish,
    .read = read_value,
    .drain = fl_in_flight_drain,
    .synchronize = fl_in_flight_synchronize,
    .abandon = fl_in_flight_abandon,
    .destroy = fl_in_flight_destroy,
};
