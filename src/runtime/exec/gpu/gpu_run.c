/* gpu_run.c - what an iteration does on a GPU, gathered or queued at once. */
#include "runtime/exec/gpu/gpu_run.h"

#include <string.h>

#include "base/clock.h"
#include "runtime/device/trace.h"
#include "runtime/plan/copy_steps.h"
#include "runtime/optim/own_optimizers.h"

fleet_status fl_gpu_plan_put(fl_gpu_plan *t, const fl_gpu_command *command)
{
    return t->gathers ? fl_gpu_commands_add(&t->work, command)
                      : fl_gpu_command_queue(t->gpu, command);
}

fleet_status fl_gpu_plan_queue(fl_compiled *c)
{
    int64_t began = c->trace ? fl_now_ns() : 0;
    fl_gpu_plan *t = c->gpu;
    bool copies = t->copies;

    if (t->work.n > 0) {
        FL_TRY(fl_command_graph_queue(t->gpu, &t->now->known, &t->work,
                                      &c->plan->store->context->log));
        fl_trace_step(c->trace, "gpu.queue", 0, began, began ? fl_now_ns() : 0);
    }
    t->work.n = 0;
    t->copies = false;
    return copies ? fl_gpu_copy_queued(t->gpu) : FLEET_OK;
}

fleet_status fl_gpu_plan_wait_copies(fl_compiled *c)
{
    if (c->gpu->copies)
        FL_TRY(fl_gpu_plan_queue(c));
    return fl_gpu_wait_copies(c->gpu->gpu);
}

void fl_gpu_plan_discard(fl_compiled *c)
{
    c->gpu->work.n = 0;
    c->gpu->gathers = c->gpu->copies = false;
}

fleet_status fl_gpu_plan_begin(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    fl_gpu_plan_discard(c);
    t->n_updates_sent = 0;
    t->gathers = t->graphs;
    return fl_gpu_plan_put(
        t, &(fl_gpu_command){.filled = t->faults,
                             .bytes = c->plan->n_step * sizeof(uint64_t)});
}

static fleet_status put_copy(fl_gpu_plan *t, void *to, const void *from,
                             size_t bytes, fl_copy kind)
{
    return fl_gpu_plan_put(
        t, &(fl_gpu_command){.rows = {to, from, 0, 0, bytes, 1, kind}});
}

fleet_status fl_gpu_plan_end(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    FL_TRY(fl_gpu_plan_put(
        t, &(fl_gpu_command){.kernel = t->end, .step = &t->now->end}));
    return put_copy(t, t->pinned, t->status, sizeof *t->status, FL_TO_HOST);
}

fleet_status fl_gpu_plan_copy_scaling(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    return put_copy(t, t->pinned + FL_PINNED_SCALING,
                    fl_gpu_plan_pointer(c, c->plan->scaling, t->slot),
                    sizeof(fl_scaling), FL_TO_HOST);
}

/* What is copied of a value: rows of the batch, or all of it. */
static fl_gpu_rows rows_of(const fl_value *to, const fl_value *from,
                           int64_t batch)
{
    size_t size = fleet_dtype_size(from->dtype);

    if (from->object)
        return (fl_gpu_rows){.bytes = from->object, .n = 1};
    if (!fl_shape_batched(&from->shape))
        return (fl_gpu_rows){
            .bytes = (size_t)fl_shape_count(&from->shape, 1) * size, .n = 1};
    return (fl_gpu_rows){
        .ld_to = (size_t)to->ld * size,
        .ld_from = (size_t)from->ld * size,
        .bytes = (size_t)fl_shape_cols(&from->shape) * size,
        .n = (size_t)fl_shape_rows(&from->shape, batch),
    };
}

/* Memory of the host that is not pinned is copied at once: what is queued is
 * waited for before, with a deadline. */
static fleet_status copy_at_once(fl_compiled *c, const fl_gpu_rows *r)
{
    fl_gpu *g = c->gpu->gpu;

    FL_TRY(fl_gpu_plan_queue(c));
    FL_TRY(fl_gpu_wait(g));
    FL_TRY(fl_gpu_copy(g, r));
    return fl_gpu_copy_queued(g);
}

static fleet_status run_copy(fl_compiled *c, int i, int64_t batch)
{
    const fl_plan *plan = c->plan;
    const fl_step *s = plan->step[i];
    fl_gpu_plan *t = c->gpu;
    int to = s->operand[0].value, from = s->operand[1].value;
    bool to_gpu = plan->value[to].on_gpu;
    const fl_value *host = &plan->value[to_gpu ? from : to];
    fl_gpu_rows r = rows_of(&plan->value[to], &plan->value[from], batch);

    r.kind = to_gpu ? FL_TO_DEVICE : FL_TO_HOST;
    r.to = to_gpu ? fl_gpu_plan_pointer(c, to, t->slot)
                  : fl_compiled_pointer(c, to);
    r.from = to_gpu ? fl_compiled_pointer(c, from)
                    : fl_gpu_plan_pointer(c, from, t->slot);
    if (t->sends_at[i] > 0) { /* without a batch, and so without gaps */
        memcpy(t->pinned + t->sends_at[i], r.from, r.bytes);
        r.from = t->pinned + t->sends_at[i];
        return fl_gpu_plan_put(t, &(fl_gpu_command){.rows = r});
    }
    if (!fl_gpu_plan_is_pinned(&plan->value[host->root]))
        return copy_at_once(c, &r);
    FL_TRY(fl_gpu_plan_put(t, &(fl_gpu_command){.rows = r}));
    t->copies = t->gathers;
    return t->gathers ? FLEET_OK : fl_gpu_copy_queued(t->gpu);
}

/* --- prefetched rows ----------------------------------------------------- */

fleet_status fl_gpu_plan_begin_rows(fl_compiled *c, int to)
{
    fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;

    t->rows_to = to;
    if (t->sends[c->slot])
        FL_TRY(g->m->event_wait(g->d, t->sent[c->slot], g->deadline_ms));
    t->sends[c->slot] = false;
    return FLEET_OK;
}

static fleet_status send_all_rows(fl_compiled *c, const fl_region *region,
                                  int64_t batch)
{
    int64_t began = c->trace ? fl_now_ns() : 0;
    const int end = region->first + region->n;
    fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;
    fleet_status status = FLEET_OK;

    for (int i = region->first; i < end && status == FLEET_OK; i++) {
        const fl_operand *o = c->plan->step[i]->operand;
        fl_gpu_rows r = rows_of(&c->plan->value[o[0].value],
                                &c->plan->value[o[1].value], batch);

        r.kind = FL_TO_DEVICE;
        r.to = fl_gpu_plan_pointer(c, o[0].value, t->rows_to);
        r.from = fl_compiled_pointer(c, o[1].value);
        status = fl_gpu_copy_on(g, g->copies, &r);
    }
    t->sends[c->slot] = true; /* perhaps a part of it, if that has failed */
    FL_TRY(g->m->event_record(g->d, t->sent[c->slot], g->copies));
    fl_trace_step(c->trace, "gpu.rows", 0, began, began ? fl_now_ns() : 0);
    return status;
}

/* --- steps --------------------------------------------------------------- */

/* The rates if i of the updates that were counted did not happen. */
static void fill_rates(const fl_store *s, const fleet_optimizer *o,
                       fl_device_rates *after)
{
    for (int i = 0; i <= FL_MOST_UNKNOWN; i++) {
        fl_update u;

        fl_optimizer_update(o, s->updates > i ? s->updates - i : 0, 1, &u);
        after[i] = (fl_device_rates){u.lr, u.correct_a, u.correct_b};
    }
}

static void fill_own(const fl_store *s, const fleet_optimizer *o,
                     fl_device_own *to)
{
    to->decay = o->l2_decay;
    to->most = o->value_clip;
    to->l1 = o->l1_decay;
    memcpy(to->number, o->number, sizeof to->number);
    to->n_correct = fl_optimizer_has_row_steps(o) ? o->n_correct : 0;
    fill_rates(s, o, to->after);
}

void fl_fill_device_update(const fl_store *s, const fl_update_now *now,
                           fl_device_update *to)
{
    *to = (fl_device_update){.u = now->u,
                             .clip_norm = now->optimizer->clip_norm,
                             .norm_clip = now->optimizer->norm_clip,
                             .skip = now->skip,
                             .known_skips = s->known_skips,
                             .micro = now->micro,
                             .batch = now->batch,
                             .dgc = now->density > 0};
    to->u.correct_a_at = to->u.correct_b_at = NULL; /* rows' */
    fill_rates(s, now->optimizer, to->after);
    for (int i = 0; i < FL_MOST_OWN; i++) {
        const fleet_optimizer *own = fl_optimizer_own_of(now->optimizer, i);

        if (own)
            fill_own(s, own, &to->own[i]);
    }
}

/* Each step of an iteration sends the update from a place of its own. */
static fleet_status send_update(fl_compiled *c, const fl_step *s)
{
    fl_gpu_plan *t = c->gpu;
    const fl_update_now *now = fl_compiled_pointer(c, s->operand[1].value);
    fl_device_update *u =
        (fl_device_update *)(void *)(t->pinned + FL_PINNED_STATUS) +
        t->n_updates_sent++ % t->n_update_steps;

    fl_fill_device_update(c->plan->store, now, u);
    u->stop = &t->status->stop;
    u->u.correct_a_at = t->correct[0][0];
    u->u.correct_b_at = t->correct[0][1];
    for (int i = 0; i < FL_MOST_OWN; i++) {
        u->own[i].correct_a_at = t->correct[1 + i][0];
        u->own[i].correct_b_at = t->correct[1 + i][1];
    }
    return put_copy(t, fl_gpu_plan_pointer(c, s->operand[0].value, t->slot), u,
                    sizeof *u, FL_TO_DEVICE);
}

static fleet_status run_step(fl_compiled *c, int i, int64_t batch)
{
    const fl_step *s = c->plan->step[i];
    fl_gpu_plan *t = c->gpu;

    if (fl_gpu_plan_is_copy(s->kernel))
        return run_copy(c, i, batch);
    if (s->kernel == &fl_kernel_tell_update)
        return send_update(c, s);
    return fl_gpu_plan_put(
        t, &(fl_gpu_command){.kernel = t->kernel[i], .step = &t->now->step[i]});
}

fleet_status fl_gpu_plan_run(fl_compiled *c, const fl_region *region,
                             int64_t batch)
{
    if (region->phase == FL_PREFETCH)
        return send_all_rows(c, region, batch);
    for (int i = region->first; i < region->first + region->n; i++)
        FL_TRY(run_step(c, i, batch));
    return FLEET_OK;
}

fleet_status fl_gpu_plan_read(const fl_compiled *c, int value, int64_t rows,
                              void *to)
{
    const fl_value *v = &c->plan->value[value];
    size_t size = fleet_dtype_size(v->dtype);
    size_t bytes = (size_t)fl_shape_cols(&v->shape) * size;
    fl_gpu_plan *t = c->gpu;

    FL_TRY(fl_gpu_wait(t->gpu));
    FL_TRY(fl_gpu_copy(
        t->gpu,
        &(fl_gpu_rows){to, fl_gpu_plan_pointer(c, value, t->slot), bytes,
                       (size_t)v->ld * size, bytes, (size_t)rows, FL_TO_HOST}));
    return fl_gpu_wait(t->gpu);
}
