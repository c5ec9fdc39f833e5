/* gpu_prefetch.c - rows of remote tables that a GPU's iteration needs. Rows of
 * a prefetch that come while the GPU computes are copied to it meanwhile. They
 * are not waited for longer than for the GPU: rows that come later are copied
 * when their own iteration begins. */
#include "runtime/exec/gpu/gpu_prefetch.h"

#include <time.h>

#include "base/clock.h"
#include "runtime/exec/gpu/gpu_in_flight.h"
#include "runtime/exec/gpu/gpu_plan.h"
#include "runtime/exec/gpu/gpu_run.h"
#include "runtime/exec/prefetch.h"
#include "runtime/exec/run.h"
#include "runtime/plan/remote.h"

static fleet_status copy_pulled(fleet_executor *e, fl_pulled *p, int gpu_slot)
{
    fl_compiled_slot(p->c, p->slot);
    FL_TRY(fl_gpu_plan_begin_rows(p->c, gpu_slot));
    FL_TRY(fl_compiled_run(p->c, e->context, p->batch, FL_PREFETCH));
    p->copied_to = gpu_slot;
    return FLEET_OK;
}

fleet_status fl_gpu_copy_rows(fleet_executor *e, fl_compiled *c)
{
    if (e->current.copied_to == c->gpu->slot)
        return FLEET_OK;
    FL_TRY(copy_pulled(e, &e->current, c->gpu->slot));
    return fl_in_flight_fed(e, c);
}

/* For as long as the GPU computes, and no longer: other processes wait for its
 * gradients. */
static fleet_status wait_for_rows(const fleet_executor *e, bool *came)
{
    const struct timespec pause = {0, 20000};
    fl_gpu *g = e->place.gpu;
    fl_remote *x = e->remote;
    int64_t end = fl_now_ms() + g->deadline_ms;
    bool done = !g->copying;

    for (;;) {
        *came = x->methods->came(x, e->next.slot);
        if (*came || done || fl_now_ms() > end)
            return FLEET_OK;
        nanosleep(&pause, NULL);
        FL_TRY(g->m->event_done(g->d, g->copied, &done));
    }
}

fleet_status fl_gpu_prefetch_rows(fleet_executor *e, fl_compiled *c)
{
    fl_pulled *next = &e->next;
    int gpu_slot;
    bool came;

    if (!next->c || !next->c->plan->prefetches_rows ||
        !e->remote->methods->came)
        return FLEET_OK;
    FL_TRY(fl_gpu_plan_queue(c));
    FL_TRY(wait_for_rows(e, &came));
    if (came && (fl_in_flight_next(e, &gpu_slot) != FLEET_OK ||
                 copy_pulled(e, next, gpu_slot) != FLEET_OK))
        fl_executor_drop_pull(e, next); /* its own iteration pulls again */
    fl_compiled_slot(c, e->current.slot);
    return FLEET_OK;
}
