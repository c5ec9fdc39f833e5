/* gpu_in_flight.c - the iterations of an executor that are under way on a GPU; see
 * gpu_plan.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/exec/gpu_plan.h"
#include "runtime/device/trace.h"

enum { N_SLOT = 2 };

typedef struct slot {
    char *pinned;
    size_t bytes;
    fl_event *fed, *done;
    bool busy;
    bool traced;  /* its work is in the trace, and has not ended */
    bool updated; /* an update was queued with it */
    bool scaled;  /* ... which may have been skipped */
    int64_t batch, n_run;
    const fl_compiled *c; /* lives as long as the slot is busy */
} slot;

struct fl_in_flight {
    fl_gpu *gpu;
    slot slot[N_SLOT];
    int next;
    fl_device_status *status; /* of the GPU */
    const fl_device_kernel *end;
    fl_error error; /* of one that failed, not told yet */
};

/* --- memory -------------------------------------------------------------- */

static fleet_status forget_faults(fl_in_flight *f)
{
    return f->gpu->m->fill(f->gpu->d, f->gpu->queue, f->status, 0,
                           sizeof *f->status);
}

static fleet_status set_up(fl_in_flight *f)
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
    return forget_faults(f);
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

/* Half of one would be taken for a whole one by the next iteration. */
static fleet_status make(fleet_executor *e)
{
    fleet_status status;
    fl_error why;

    if (e->in_flight)
        return FLEET_OK;
    FL_TRY(FL_NEW(&e->in_flight, sizeof *e->in_flight));
    e->in_flight->gpu = e->place.gpu;
    status = set_up(e->in_flight);
    if (status == FLEET_OK)
        return FLEET_OK;
    fl_error_take(&why, status);
    fl_in_flight_destroy(e);
    return fl_error_raise(&why);
}

/* --- how it went --------------------------------------------------------- */

static const fl_device_status *status_of(const slot *s)
{
    return (const fl_device_status *)(const void *)s->pinned;
}

static fl_scaling *scaling_of(const slot *s)
{
    return (fl_scaling *)(void *)(s->pinned + FL_PINNED_SCALING);
}

static fleet_status say(const fl_in_flight *f, const slot *s)
{
    const fl_device_status *how = status_of(s);
    const fl_step *step;

    if (how->step < 0)
        return fl_fail(FLEET_ENUMERIC,
                       "batch %" PRId64 ": the loss is not finite (gpu:%d)",
                       s->n_run, f->gpu->d->ordinal);
    step = s->c->plan->step[how->step];
    return fl_fail(FLEET_EINVAL,
                   "batch %" PRId64 ": %s%s%s%s: the label or id of sample "
                   "%" PRIu64 " is out of range (%s, gpu:%d)",
                   s->n_run, step->node ? step->node->op->name : "",
                   step->node ? " \"" : "",
                   step->node ? step->node->out[0]->name : "",
                   step->node ? "\"" : "", how->row, step->kernel->name,
                   f->gpu->d->ordinal);
}

static void take_loss(fleet_executor *e, const slot *s)
{
    if (s->c->gpu->loss >= 0)
        fl_executor_note_loss(e, s->n_run, s->batch, status_of(s)->loss);
}

/* Updates that were skipped do not count. Where the CPU decides it knows of
 * them already, and what the GPU has told may be from before. */
static void leave_out(fl_store *s, const fl_scaling *now)
{
    int64_t skipped = now->skipped - s->known_skips;

    if (skipped <= 0)
        return;
    s->known_skips += skipped;
    s->updates -= skipped;
}

/* What was queued after it has stopped, too. */
static fleet_status stop_all(fleet_executor *e)
{
    fl_in_flight *f = e->in_flight;

    for (int i = 0; i < N_SLOT; i++) {
        if (f->slot[i].busy && f->slot[i].updated)
            e->store->updates--;
        f->slot[i].busy = false;
    }
    FL_TRY(fl_gpu_wait(f->gpu));
    return forget_faults(f);
}

/* In the trace from its feeds until it is known to be over. */
static void trace(slot *s, bool begins, int64_t n_run)
{
    if (begins)
        fl_trace_begin(s->c->trace, "gpu", (int)n_run, 0);
    else if (s->traced)
        fl_trace_end(s->c->trace, "gpu", (int)n_run);
    s->traced = begins;
}

/* The iteration of a slot is over. */
static fleet_status collect(fleet_executor *e, slot *s)
{
    fl_in_flight *f = e->in_flight;

    if (!s->busy)
        return FLEET_OK;
    FL_TRY(f->gpu->m->event_wait(f->gpu->d, s->done, f->gpu->deadline_ms));
    trace(s, false, s->n_run);
    if (!status_of(s)->stop) {
        take_loss(e, s);
        if (s->scaled)
            leave_out(e->store, scaling_of(s));
        if (s->updated)
            fl_gpu_plan_counted(s->c, s->pinned);
        s->busy = false;
        return FLEET_OK;
    }
    fl_error_take(&f->error, say(f, s));
    return stop_all(e);
}

static fleet_status collect_all(fleet_executor *e)
{
    fl_in_flight *f = e->in_flight;

    for (int i = 0; i < N_SLOT; i++) /* the older one first */
        FL_TRY(collect(e, &f->slot[(f->next + i) % N_SLOT]));
    return FLEET_OK;
}

/* Told once. */
static fleet_status tell(fl_in_flight *f)
{
    fl_error error = f->error;

    f->error.code = FLEET_OK;
    return fl_error_raise(&error);
}

/* Its sums may hold a part of the batch that failed. */
static void give_up_group(fleet_executor *e)
{
    if (e->micro > 0)
        e->store->n_flat--;
    e->micro = 0;
}

fleet_status fl_in_flight_synchronize(fleet_executor *e)
{
    fleet_status status;

    if (!e->in_flight)
        return FLEET_OK;
    if (e->training) /* updates that were stopped do not count */
        pthread_rwlock_wrlock(&e->store->lock);
    fl_gpu_lock(e->in_flight->gpu);
    status = collect_all(e);
    if (status == FLEET_OK)
        status = tell(e->in_flight);
    fl_gpu_unlock(e->in_flight->gpu);
    if (status != FLEET_OK && e->training)
        give_up_group(e);
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
        fl_gpu_plan_forget(e->last);
    if (collect_all(e) == FLEET_OK &&
        fl_gpu_wait(e->in_flight->gpu) == FLEET_OK)
        forget_faults(e->in_flight);
    fl_gpu_unlock(e->in_flight->gpu);
    fl_error_raise(&cause); /* what it was about */
}

/* --- an iteration -------------------------------------------------------- */

static fleet_status make_room(fl_in_flight *f, slot *s, const fl_gpu_plan *t)
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

static fleet_status feed_part(const fl_gpu_plan *t, const slot *s, size_t at,
                              const void *from, size_t bytes)
{
    char *pinned = s->pinned + t->feeds_at + at;

    if (bytes == 0)
        return FLEET_OK;
    memcpy(pinned, from, bytes);
    return t->gpu->m->copy(t->gpu->d, t->gpu->copies, t->feed[t->slot] + at,
                           pinned, bytes, FL_TO_DEVICE);
}

static fleet_status feed_one(const fleet_executor *e, const fl_compiled *c,
                             const slot *s, const fl_value *v, int64_t batch)
{
    const fl_input *from = &e->input[v->var->id];
    size_t size = fleet_dtype_size(v->dtype);
    int64_t n =
        from->offsets ? from->offsets[batch] : fl_shape_count(&v->shape, batch);

    FL_TRY(feed_part(c->gpu, s, v->staged_at, from->data, (size_t)n * size));
    return from->offsets
               ? feed_part(c->gpu, s, v->staged_at + fl_gpu_plan_offsets_at(v),
                           from->offsets,
                           (size_t)(batch + 1) * sizeof *from->offsets)
               : FLEET_OK;
}

fleet_status fl_in_flight_fed(fleet_executor *e, const fl_compiled *c)
{
    fl_gpu *g = c->gpu->gpu;
    const slot *s = &e->in_flight->slot[c->gpu->slot];

    FL_TRY(g->m->event_record(g->d, s->fed, g->copies));
    return g->m->stream_after(g->d, g->queue, s->fed);
}

fleet_status fl_in_flight_next(fleet_executor *e, int *there)
{
    fl_in_flight *f = e->in_flight;
    fl_gpu *g = f->gpu;
    const slot *s;

    *there = (f->next + 1) % N_SLOT;
    s = &f->slot[*there];
    return s->busy ? g->m->event_wait(g->d, s->done, g->deadline_ms) : FLEET_OK;
}

/* Beside what is computed, which waits for it. */
static fleet_status feed(fleet_executor *e, const fl_compiled *c, const slot *s,
                         int64_t batch)
{
    const fl_plan *plan = c->plan;

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (v->kind == FL_VALUE_FEED && v->on_gpu && v->root == (int)i)
            FL_TRY(feed_one(e, c, s, v, batch));
    }
    return fl_in_flight_fed(e, c);
}

static fleet_status take_slot(fleet_executor *e, fl_compiled *c, int64_t batch,
                              slot **taken)
{
    fl_gpu_plan *t = c->gpu;
    fl_in_flight *f;
    slot *s;

    FL_TRY(make(e));
    f = e->in_flight;
    s = *taken = &f->slot[f->next];
    FL_TRY(collect(e, s));
    FL_TRY(tell(f));
    FL_TRY(fl_gpu_plan_begin_ids(c, e->input, batch, e->micro));
    FL_TRY(make_room(f, s, t));
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
    trace(s, true, e->n_run);
    FL_TRY(feed(e, c, s, batch));
    return fl_gpu_plan_begin(c);
}

fleet_status fl_in_flight_update_others(fleet_executor *e, fl_compiled *c)
{
    slot *s;

    if (!c->gpu)
        return FLEET_OK;
    FL_TRY(take_slot(e, c, c->plan->batch, &s));
    fl_gpu_plan_forget(c);
    c->gpu->n_told = 0;
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
    trace(s, false, e->n_run);
    if (!status_of(s)->stop)
        return FLEET_OK;
    s->n_run = e->n_run;
    return say(f, s);
}

/* Is it decided on the GPU whether updates are skipped? */
static bool is_scaled_there(const fl_compiled *c)
{
    return c->plan->scaling >= 0 && c->plan->value[c->plan->scaling].on_gpu;
}

fleet_status fl_in_flight_finish(fleet_executor *e, const fl_compiled *c)
{
    const fl_gpu_plan *t = c->gpu;
    fl_scaling now;

    FL_TRY(fl_gpu_wait(t->gpu));
    if (!is_scaled_there(c))
        return FLEET_OK;
    FL_TRY(t->gpu->m->copy(t->gpu->d, t->gpu->queue, &now,
                           fl_gpu_plan_pointer(c, c->plan->scaling, t->slot),
                           sizeof now, FL_TO_HOST));
    FL_TRY(fl_gpu_wait(t->gpu));
    leave_out(e->store, &now);
    return FLEET_OK;
}

fleet_status fl_in_flight_take_over(fleet_executor *e)
{
    fleet_executor *before = e->store->trainer;
    fleet_status status;

    if (!before || before == e || !before->in_flight)
        return FLEET_OK;
    fl_gpu_lock(before->in_flight->gpu);
    status = collect_all(before);
    fl_gpu_unlock(before->in_flight->gpu);
    return status;
}

fleet_status fl_in_flight_end(fleet_executor *e, fl_compiled *c, int64_t batch,
                              bool updated)
{
    fl_in_flight *f = e->in_flight;
    slot *s = &f->slot[c->gpu->slot];

    s->scaled = updated && is_scaled_there(c);
    if (s->scaled)
        FL_TRY(fl_gpu_plan_tell_scaling(c));
    if (updated)
        FL_TRY(fl_gpu_plan_count(c));
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
