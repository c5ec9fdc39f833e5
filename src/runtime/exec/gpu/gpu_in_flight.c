/* gpu_in_flight.c - the iterations of an executor that are under way on a GPU:
 * their slots, their feeds, their status. */
#include "runtime/exec/gpu/gpu_in_flight.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/device/trace.h"
#include "runtime/exec/gpu/gpu_ids.h"
#include "runtime/exec/gpu/gpu_run.h"

enum { N_SLOT = 2 };

typedef struct slot {
    char *pinned;
    size_t bytes;
    fl_event *fed, *done;
    bool busy;
    bool traced;  /* its work is in the trace, and has not ended */
    bool updated; /* an update was queued with it */
    bool scaled;  /* the update may be skipped, which the GPU decides */
    int64_t batch, n_run;
    const fl_compiled *c; /* lives as long as the slot is busy */
} slot;

struct fl_in_flight {
    fl_gpu *gpu;
    slot slot[N_SLOT];
    int next;
    fl_device_status *status; /* in the GPU's memory */
    const fl_device_kernel *end;
    fl_error error; /* of an iteration that failed, not reported yet */
};

/* --- memory -------------------------------------------------------------- */

static fleet_status clear_status(fl_in_flight *f)
{
    return f->gpu->m->fill(f->gpu->d, f->gpu->queue, f->status, 0,
                           sizeof *f->status);
}

static fleet_status init_in_flight(fl_in_flight *f)
{
    fl_gpu *g = f->gpu;
    void *status;

    for (int i = 0; i < N_SLOT; i++) {
        FL_TRY(g->m->event_create(g->d, false, &f->slot[i].fed));
        FL_TRY(g->m->event_create(g->d, false, &f->slot[i].done));
    }
    FL_TRY(g->m->alloc(g->d, g->queue, sizeof *f->status, &status));
    f->status = status;
    f->end = g->m->kernel(g->d, "iteration.end", FLEET_FLOAT32);
    if (!f->end)
        return fl_fail(FLEET_ENODEVICE,
                       "gpu:%d has no kernel "
                       "\"iteration.end\"",
                       g->d->ordinal);
    return clear_status(f);
}

static void free_slot(fl_in_flight *f, slot *s)
{
    fl_gpu *g = f->gpu;

    g->m->free_pinned(g->d, s->pinned);
    if (s->fed)
        g->m->event_destroy(g->d, s->fed);
    if (s->done)
        g->m->event_destroy(g->d, s->done);
}

void fl_in_flight_destroy(fleet_executor *e)
{
    fl_in_flight *f = e->in_flight;

    if (!f)
        return;
    if (fl_gpu_is_ours(f->gpu)) {
        fl_gpu_lock(f->gpu);
        if (fl_gpu_wait(f->gpu) == FLEET_OK)
            for (int i = 0; i < N_SLOT; i++)
                free_slot(f, &f->slot[i]);
        f->gpu->m->free(f->gpu->d, f->gpu->queue, f->status);
        fl_gpu_unlock(f->gpu);
    }
    fl_free(f);
    e->in_flight = NULL;
}

/* All of it or nothing: the next iteration takes it for complete. */
static fleet_status make_in_flight(fleet_executor *e)
{
    fleet_status status;
    fl_error why;

    if (e->in_flight)
        return FLEET_OK;
    FL_TRY(FL_NEW(&e->in_flight, sizeof *e->in_flight));
    e->in_flight->gpu = e->place.gpu;
    status = init_in_flight(e->in_flight);
    if (status == FLEET_OK)
        return FLEET_OK;
    fl_error_take(&why, status);
    fl_in_flight_destroy(e);
    return fl_error_raise(&why);
}

/* --- the status of an iteration ------------------------------------------ */

static const fl_device_status *status_of(const slot *s)
{
    return (const fl_device_status *)(const void *)s->pinned;
}

static fleet_status report_failure(const fl_in_flight *f, const slot *s)
{
    const fl_device_status *how = status_of(s);
    const fl_step *step;

    if (how->step < 0)
        return fl_fail(FLEET_ENUMERIC,
                       "batch %" PRId64 ": the loss is not finite (gpu:%d)",
                       s->n_run, f->gpu->d->ordinal);
    step = s->c->plan->step[how->step];
    if (strcmp(step->kernel->name, "lookup.find") == 0)
        return fl_fail(FLEET_EIO,
                       "batch %" PRId64 ": a table's index in the memory of "
                       "gpu:%d was written over: it has no free place",
                       s->n_run, f->gpu->d->ordinal);
    return fl_fail(FLEET_EINVAL,
                   "batch %" PRId64 ": %s%s%s%s: the label or id of sample "
                   "%" PRIu64 " is out of range (%s, gpu:%d)",
                   s->n_run, step->node ? step->node->op->name : "",
                   step->node ? " \"" : "",
                   step->node ? step->node->out[0]->name : "",
                   step->node ? "\"" : "", how->row, step->kernel->name,
                   f->gpu->d->ordinal);
}

/* Updates that were skipped do not count. If the CPU decides it knows of them
 * already, and the GPU's number may be an earlier one. */
static void uncount_skipped(fl_store *s, const fl_scaling *now)
{
    int64_t skipped = now->skipped - s->known_skips;

    if (skipped <= 0)
        return;
    s->known_skips += skipped;
    s->updates -= skipped;
}

/* An iteration has failed: all that were queued after it have stopped, too. */
static fleet_status stop_all(fleet_executor *e)
{
    fl_in_flight *f = e->in_flight;

    for (int i = 0; i < N_SLOT; i++) {
        if (f->slot[i].busy && f->slot[i].updated)
            e->store->updates--;
        f->slot[i].busy = false;
    }
    FL_TRY(fl_gpu_wait(f->gpu));
    return clear_status(f);
}

/* An iteration is in the trace from its feeds until it is known to be over. */
static void trace_slot(slot *s, bool begins, int64_t n_run)
{
    if (begins)
        fl_trace_begin(s->c->trace, "gpu", (int)n_run, 0);
    else if (s->traced)
        fl_trace_end(s->c->trace, "gpu", (int)n_run);
    s->traced = begins;
}

/* Wait until the iteration of a slot is over. */
static fleet_status finish_slot(fleet_executor *e, slot *s)
{
    fl_in_flight *f = e->in_flight;

    if (!s->busy)
        return FLEET_OK;
    FL_TRY(f->gpu->m->event_wait(f->gpu->d, s->done, f->gpu->deadline_ms));
    trace_slot(s, false, s->n_run);
    if (!status_of(s)->stop) {
        if (s->c->gpu->loss >= 0)
            fl_executor_note_loss(e, s->n_run, s->batch, status_of(s)->loss);
        if (s->scaled)
            uncount_skipped(
                e->store,
                (const fl_scaling *)(const void *)(s->pinned +
                                                   FL_PINNED_SCALING));
        if (s->updated)
            fl_gpu_plan_read_counts(s->c, s->pinned);
        s->busy = false;
        return FLEET_OK;
    }
    fl_error_take(&f->error, report_failure(f, s));
    return stop_all(e);
}

static fleet_status finish_all(fleet_executor *e)
{
    fl_in_flight *f = e->in_flight;

    for (int i = 0; i < N_SLOT; i++) /* the older one first */
        FL_TRY(finish_slot(e, &f->slot[(f->next + i) % N_SLOT]));
    return FLEET_OK;
}

static fleet_status report_once(fl_in_flight *f)
{
    fl_error error = f->error;

    f->error.code = FLEET_OK;
    return fl_error_raise(&error);
}

fleet_status fl_in_flight_synchronize(fleet_executor *e)
{
    fleet_status status;

    if (!e->in_flight)
        return FLEET_OK;
    if (e->training) /* updates that were stopped do not count */
        pthread_rwlock_wrlock(&e->store->lock);
    fl_gpu_lock(e->in_flight->gpu);
    status = finish_all(e);
    if (status == FLEET_OK)
        status = report_once(e->in_flight);
    fl_gpu_unlock(e->in_flight->gpu);
    if (status != FLEET_OK && e->training) {
        /* a merge group's sums may hold a part of the batch that failed */
        if (e->micro > 0)
            e->store->n_flat--;
        e->micro = 0;
    }
    if (e->training)
        pthread_rwlock_unlock(&e->store->lock);
    return status;
}

void fl_in_flight_abandon(fleet_executor *e)
{
    fl_error cause;

    if (!e->in_flight || !fl_gpu_is_ours(e->in_flight->gpu))
        return;
    fl_error_take(&cause, fl_last_code());
    fl_gpu_lock(e->in_flight->gpu);
    if (e->last && e->last->gpu)
        fl_gpu_plan_discard(e->last);
    if (finish_all(e) == FLEET_OK && fl_gpu_wait(e->in_flight->gpu) == FLEET_OK)
        clear_status(e->in_flight);
    fl_gpu_unlock(e->in_flight->gpu);
    fl_error_raise(&cause);
}

/* --- an iteration -------------------------------------------------------- */

static fleet_status make_pinned(fl_in_flight *f, slot *s, const fl_gpu_plan *t)
{
    size_t bytes = t->pinned_bytes;
    fl_gpu *g = f->gpu;
    void *pinned;

    if (bytes <= s->bytes)
        return FLEET_OK;
    FL_TRY(g->m->alloc_pinned(g->d, bytes, &pinned));
    g->m->free_pinned(g->d, s->pinned); /* its iteration is over */
    s->pinned = pinned;
    s->bytes = bytes;
    return FLEET_OK;
}

/* Bytes of a slot's feeds that are next to be copied: pinned memory and the
 * GPU's have the same places. */
typedef struct span {
    size_t at, end;
} span;

static fleet_status send_span(const fl_gpu_plan *t, const slot *s, span *of)
{
    const char *pinned = s->pinned + t->feeds_at + of->at;
    size_t bytes = of->end - of->at;

    of->at = of->end;
    return bytes == 0 ? FLEET_OK
                      : t->gpu->m->copy(t->gpu->d, t->gpu->copies,
                                        t->feed[t->slot] + of->end - bytes,
                                        pinned, bytes, FL_TO_DEVICE);
}

/* Parts that are near each other are one copy, which costs the host as much
 * time as thousands of bytes do. Feeds come in the order of their places. */
static fleet_status feed_part(const fl_gpu_plan *t, const slot *s, size_t at,
                              const void *from, size_t bytes, span *of)
{
    enum { NEAR = 64 << 10 };

    if (bytes == 0)
        return FLEET_OK;
    if (of->end == of->at || at > of->end + NEAR) {
        FL_TRY(send_span(t, s, of));
        of->at = at;
    }
    memcpy(s->pinned + t->feeds_at + at, from, bytes);
    of->end = at + bytes;
    return FLEET_OK;
}

static fleet_status feed_one(const fleet_executor *e, const fl_compiled *c,
                             const slot *s, const fl_value *v, int64_t batch,
                             span *of)
{
    const fl_input *from = &e->input[v->var->id];
    size_t size = fleet_dtype_size(v->dtype);
    int64_t n =
        from->offsets ? from->offsets[batch] : fl_shape_count(&v->shape, batch);

    FL_TRY(
        feed_part(c->gpu, s, v->staged_at, from->data, (size_t)n * size, of));
    return from->offsets
               ? feed_part(c->gpu, s, v->staged_at + fl_gpu_plan_offsets_at(v),
                           from->offsets,
                           (size_t)(batch + 1) * sizeof *from->offsets, of)
               : FLEET_OK;
}

fleet_status fl_in_flight_fed(fleet_executor *e, const fl_compiled *c)
{
    fl_gpu *g = c->gpu->gpu;
    const slot *s = &e->in_flight->slot[c->gpu->slot];

    FL_TRY(g->m->event_record(g->d, s->fed, g->copies));
    return g->m->stream_after(g->d, g->queue, s->fed);
}

fleet_status fl_in_flight_next(fleet_executor *e, int *gpu_slot)
{
    fl_in_flight *f = e->in_flight;
    fl_gpu *g = f->gpu;
    const slot *s;

    *gpu_slot = (f->next + 1) % N_SLOT;
    s = &f->slot[*gpu_slot];
    return s->busy ? g->m->event_wait(g->d, s->done, g->deadline_ms) : FLEET_OK;
}

/* Copies beside what is computed; this iteration waits for them. */
static fleet_status feed_all(fleet_executor *e, const fl_compiled *c,
                             const slot *s, int64_t batch)
{
    const fl_plan *plan = c->plan;
    span of = {0};

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (v->kind == FL_VALUE_FEED && v->on_gpu && v->root == (int)i)
            FL_TRY(feed_one(e, c, s, v, batch, &of));
    }
    FL_TRY(send_span(c->gpu, s, &of));
    return fl_in_flight_fed(e, c);
}

static fleet_status take_slot(fleet_executor *e, fl_compiled *c, int64_t batch,
                              slot **taken)
{
    fl_gpu_plan *t = c->gpu;
    fl_in_flight *f;
    slot *s;

    FL_TRY(make_in_flight(e));
    f = e->in_flight;
    s = *taken = &f->slot[f->next];
    FL_TRY(finish_slot(e, s));
    FL_TRY(report_once(f));
    FL_TRY(fl_gpu_plan_begin_ids(c, e->input, batch, e->micro));
    FL_TRY(make_pinned(f, s, t));
    t->pinned = s->pinned;
    t->status = f->status;
    t->end = f->end;
    FL_TRY(fl_gpu_plan_prepare(c, batch, f->next));
    s->c = c;
    return FLEET_OK;
}

fleet_status fl_in_flight_begin(fleet_executor *e, fl_compiled *c,
                                int64_t batch)
{
    slot *s;

    FL_TRY(take_slot(e, c, batch, &s));
    trace_slot(s, true, e->n_run);
    FL_TRY(feed_all(e, c, s, batch));
    return fl_gpu_plan_begin(c);
}

fleet_status fl_in_flight_join(fleet_executor *e, fl_compiled *c)
{
    slot *s;

    FL_TRY(take_slot(e, c, c->plan->batch, &s));
    fl_gpu_plan_discard(c);
    c->gpu->n_updates_sent = 0;
    return FLEET_OK;
}

fleet_status fl_in_flight_check(fleet_executor *e, fl_compiled *c)
{
    fl_in_flight *f = e->in_flight;
    slot *s = &f->slot[c->gpu->slot];

    FL_TRY(fl_gpu_plan_end(c));
    if (!c->plan->training || !c->gpu->host_updates)
        return FLEET_OK;
    FL_TRY(fl_gpu_plan_queue(c));
    FL_TRY(fl_gpu_wait(f->gpu)); /* before the CPU changes anything */
    trace_slot(s, false, e->n_run);
    if (!status_of(s)->stop)
        return FLEET_OK;
    s->n_run = e->n_run;
    return report_failure(f, s);
}

/* Is it decided on the GPU whether updates are skipped? */
static bool is_scaled_on_gpu(const fl_compiled *c)
{
    return c->plan->scaling >= 0 && c->plan->value[c->plan->scaling].on_gpu;
}

fleet_status fl_in_flight_finish(fleet_executor *e, fl_compiled *c)
{
    const fl_gpu_plan *t = c->gpu;
    fl_scaling now;

    FL_TRY(fl_gpu_wait(t->gpu));
    if (!is_scaled_on_gpu(c))
        return FLEET_OK;
    FL_TRY(t->gpu->m->copy(t->gpu->d, t->gpu->queue, &now,
                           fl_gpu_plan_pointer(c, c->plan->scaling, t->slot),
                           sizeof now, FL_TO_HOST));
    FL_TRY(fl_gpu_wait(t->gpu));
    uncount_skipped(e->store, &now);
    return FLEET_OK;
}

fleet_status fl_in_flight_drain(fleet_executor *e)
{
    fleet_status status;

    if (!e->in_flight)
        return FLEET_OK;
    fl_gpu_lock(e->in_flight->gpu);
    status = finish_all(e);
    fl_gpu_unlock(e->in_flight->gpu);
    return status;
}

fleet_status fl_in_flight_end(fleet_executor *e, fl_compiled *c, int64_t batch,
                              bool updated)
{
    fl_in_flight *f = e->in_flight;
    slot *s = &f->slot[c->gpu->slot];

    s->scaled = updated && is_scaled_on_gpu(c);
    if (s->scaled)
        FL_TRY(fl_gpu_plan_copy_scaling(c));
    if (updated)
        FL_TRY(fl_gpu_plan_copy_counts(c));
    FL_TRY(fl_gpu_plan_queue(c));
    c->gpu->gathers = false;
    FL_TRY(f->gpu->m->event_record(f->gpu->d, s->done, f->gpu->queue));
    s->busy = true;
    s->updated = updated;
    s->batch = batch;
    s->n_run = e->n_run;
    f->next = (f->next + 1) % N_SLOT;
    return FLEET_OK;
}
