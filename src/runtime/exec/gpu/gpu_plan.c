/* gpu_plan.c - a compiled plan's part on a GPU: its memory and its steps. */
#include "runtime/exec/gpu/gpu_plan.h"

#include "base/memory.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/gpu/gpu_ids.h"
#include "runtime/exec/host_backend.h"
#include "runtime/plan/copy_steps.h"

enum { MOST_PREPARED = 16 };

static bool is_root(const fl_plan *plan, size_t i)
{
    return plan->value[i].root == (int)i && plan->value[i].on_gpu;
}

/* --- memory -------------------------------------------------------------- */

static fleet_status alloc_zeroed(fl_gpu *g, size_t bytes, char **p)
{
    void *made;

    FL_TRY(g->m->alloc(g->d, g->queue, bytes, &made));
    *p = made;
    return g->m->fill(g->d, g->queue, made, 0, bytes);
}

static fleet_status find_mirrors(fl_compiled *c)
{
    fl_plan *plan = c->plan;
    fl_gpu_plan *t = c->gpu;

    FL_TRY(FL_NEW(&t->stored, plan->n_value * sizeof *t->stored));
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];
        void *stored = fl_store_memory(plan, v);
        fl_mirror *m;

        if (!is_root(plan, i) || !stored || v->kind == FL_VALUE_TABLE)
            continue;
        FL_TRY(fl_mirror_make(plan->store, t->gpu, stored,
                              fl_value_bytes(plan, v), &m));
        t->stored[i] = m->on_gpu;
    }
    return fl_gpu_plan_find_tables(c);
}

/* Persistent values begin with their first value. */
static fleet_status fill_first(const fl_compiled *c, const fl_value *v)
{
    const fl_gpu_plan *t = c->gpu;
    int64_t n = fl_shape_count(&v->shape, 1);
    fleet_status status;
    float *first;

    first = fl_alloc_array((size_t)n, sizeof *first);
    if (!first)
        return FLEET_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        first[i] = v->first;
    status =
        fl_gpu_copy(t->gpu, &(fl_gpu_rows){.to = t->persistent + v->offset,
                                           .from = first,
                                           .bytes = (size_t)n * sizeof *first,
                                           .n = 1,
                                           .kind = FL_TO_DEVICE});
    fl_free(first);
    return status;
}

static fleet_status make_memory(fl_compiled *c)
{
    const fl_plan *plan = c->plan;
    fl_gpu_plan *t = c->gpu;

    FL_TRY(alloc_zeroed(t->gpu, plan->gpu_arena_bytes, &t->arena));
    FL_TRY(alloc_zeroed(t->gpu, plan->gpu_persistent_bytes, &t->persistent));
    FL_TRY(alloc_zeroed(t->gpu, plan->n_step * sizeof(uint64_t), &t->faults));
    for (int i = 0; plan->prefetches_rows && i < 2; i++) {
        FL_TRY(alloc_zeroed(t->gpu, plan->gpu_slot_bytes, &t->per_slot[i]));
        FL_TRY(t->gpu->m->event_create(t->gpu->d, false, &t->sent[i]));
    }
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (is_root(plan, i) && v->kind == FL_VALUE_PERSISTENT &&
            v->first != 0.0f)
            FL_TRY(fill_first(c, v));
    }
    FL_TRY(fl_gpu_plan_make_positions(c));
    return fl_gpu_plan_place_feeds(c);
}

void *fl_gpu_plan_pointer(const fl_compiled *c, int value, int slot)
{
    const fl_plan *plan = c->plan;
    const fl_value *v = &plan->value[value], *root = &plan->value[v->root];
    const fl_gpu_plan *t = c->gpu;
    size_t column = (size_t)v->column * fleet_dtype_size(v->dtype);

    switch (root->positions ? FL_VALUE_PARAM : root->kind) {
    case FL_VALUE_TEMP:
        return t->arena + root->offset + column;
    case FL_VALUE_PERSISTENT:
        return (root->per_slot ? t->per_slot[slot] : t->persistent) +
               root->offset + column;
    case FL_VALUE_FEED:
        return t->feed[slot] + root->staged_at + column;
    default:
        return (char *)t->stored[v->root] + column;
    }
}

/* For steps of the communicator on values of the GPU. */
static void set_bases(fl_compiled *c)
{
    const fl_plan *plan = c->plan;

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (is_root(plan, i) && v->kind != FL_VALUE_FEED)
            c->base[v->base] =
                (char *)fl_gpu_plan_pointer(c, (int)i, 0) - v->offset;
    }
}

/* --- steps --------------------------------------------------------------- */

bool fl_gpu_plan_is_copy(const fl_kernel *k)
{
    return k == &fl_kernel_to_gpu || k == &fl_kernel_to_host;
}

static void find_kernels(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    for (size_t i = 0; i < c->plan->n_step; i++) {
        const fl_step *s = c->plan->step[i];

        if (s->engine != FL_ENGINE_GPU) {
            t->host_updates = t->host_updates || s->phase >= FL_MERGE;
        } else if (s->kernel == &fl_kernel_tell_update) {
            t->n_update_steps++;
        } else if (!fl_gpu_plan_is_copy(s->kernel)) {
            t->kernel[i] = fl_step_on_gpu(c->plan, s, t->gpu);
        }
    }
}

static bool has_gpu_steps(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (plan->step[i]->engine == FL_ENGINE_GPU)
            return true;
    return false;
}

/* --- a slot's pinned memory ---------------------------------------------- */

bool fl_gpu_plan_is_pinned(const fl_value *root)
{
    return root->kind == FL_VALUE_TEMP ||
           (root->kind == FL_VALUE_PERSISTENT && !root->pointer);
}

/* Memory of the store is read at once, into a place of its own for each step;
 * from that it is copied in its turn. */
static size_t sent_bytes(const fl_plan *plan, const fl_step *s)
{
    const fl_value *from;

    if (s->kernel != &fl_kernel_to_gpu)
        return 0;
    from = &plan->value[s->operand[1].value];
    return fl_gpu_plan_is_pinned(&plan->value[from->root])
               ? 0
               : (size_t)fl_shape_count(&from->shape, 1) *
                     fleet_dtype_size(from->dtype);
}

fleet_status fl_gpu_plan_place_pinned(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;
    size_t updates = (size_t)t->n_update_steps * sizeof(fl_device_update);

    t->counts_at = FL_PINNED_STATUS + (updates + 255) / 256 * 256;
    t->feeds_at = t->counts_at + fl_gpu_plan_count_bytes(c);
    t->pinned_bytes = t->feeds_at + t->feed_bytes;
    if (!t->sends_at)
        FL_TRY(FL_NEW(&t->sends_at, c->plan->n_step * sizeof *t->sends_at));
    for (size_t i = 0; i < c->plan->n_step; i++) {
        size_t bytes = sent_bytes(c->plan, c->plan->step[i]);

        t->sends_at[i] = bytes > 0 ? t->pinned_bytes : 0;
        t->pinned_bytes += (bytes + 255) / 256 * 256;
    }
    return FLEET_OK;
}

fleet_status fl_gpu_plan_make(fleet_executor *e, fl_compiled *c)
{
    const fleet_var *loss = c->plan->program->training.loss;
    fl_gpu_plan *t;
    fleet_status status;

    if (!has_gpu_steps(c->plan)) {
        c->backend = &fl_host_backend;
        return FLEET_OK;
    }
    FL_TRY(FL_NEW(&c->gpu, sizeof *c->gpu));
    t = c->gpu;
    t->gpu = e->place.gpu;
    t->graphs = !e->place.no_graphs;
    FL_TRY(FL_NEW(&t->kernel, c->plan->n_step * sizeof *t->kernel));
    find_kernels(c);
    t->loss = loss ? c->plan->value_of[loss->id] : -1;
    if (t->loss >= 0 && !c->plan->value[t->loss].on_gpu)
        t->loss = -1;
    FL_TRY(find_mirrors(c));
    fl_gpu_lock(t->gpu);
    status = make_memory(c);
    if (status == FLEET_OK)
        status = fl_gpu_plan_place_pinned(c);
    if (status == FLEET_OK) /* feeds are copied on another queue */
        status = fl_gpu_wait(t->gpu);
    fl_gpu_unlock(t->gpu);
    if (status == FLEET_OK)
        set_bases(c);
    return status;
}

/* --- prepared steps ------------------------------------------------------ */

static fl_device_arg resolve_gpu_operands(const fl_compiled *c, int value,
                                          int slot)
{
    const fl_plan *plan = c->plan;
    const fl_value *v;
    char *data;

    if (value < 0)
        return (fl_device_arg){0};
    v = &plan->value[value];
    data = fl_gpu_plan_pointer(c, value, slot);
    return (fl_device_arg){
        .data = data,
        .cols = fl_shape_cols(&v->shape),
        .ld = v->ld,
        .factor = fl_shape_batched(&v->shape) ? -v->shape.dim[0] : 0,
        .rows = fl_value_rows(plan, v),
        .dtype = v->dtype,
        .offsets =
            v->most_ids
                ? (const int64_t *)(const void *)(data +
                                                  fl_gpu_plan_offsets_at(v))
                : NULL,
    };
}

static size_t state_size(const fl_device_kernel *k)
{
    return k ? (k->state_size + 63) / 64 * 64 : 0;
}

static fleet_status make_steps(const fl_compiled *c, fl_prepared *p)
{
    const fl_plan *plan = c->plan;
    const fl_gpu_plan *t = c->gpu;
    size_t n_arg = 0, state = 0;

    for (size_t i = 0; i < plan->n_step; i++) {
        n_arg += (size_t)plan->step[i]->n_operand;
        state += state_size(t->kernel[i]);
    }
    FL_TRY(FL_NEW(&p->step, plan->n_step * sizeof *p->step));
    FL_TRY(FL_NEW(&p->arg, n_arg * sizeof *p->arg));
    FL_TRY(FL_NEW(&p->state, state));
    n_arg = state = 0;
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        p->step[i] = (fl_device_step){
            .arg = p->arg + n_arg,
            .n_arg = s->n_operand,
            .config = s->config,
            .batch = p->batch,
            .state = p->state + state,
            .fault = (uint64_t *)(void *)t->faults + i,
        };
        for (int j = 0; t->kernel[i] && j < s->n_operand; j++)
            p->arg[n_arg + (size_t)j] =
                resolve_gpu_operands(c, s->operand[j].value, p->slot);
        n_arg += (size_t)s->n_operand;
        state += state_size(t->kernel[i]);
    }
    return FLEET_OK;
}

static void make_end(const fl_compiled *c, fl_prepared *p)
{
    const fl_gpu_plan *t = c->gpu;

    p->end_config = (fl_device_end){(int)c->plan->n_step, c->plan->training};
    p->end_arg[0].data = t->status;
    if (t->loss >= 0)
        p->end_arg[1].data = fl_gpu_plan_pointer(c, t->loss, p->slot);
    p->end_arg[2].data = t->faults;
    p->end = (fl_device_step){.arg = p->end_arg,
                              .n_arg = 3,
                              .config = &p->end_config,
                              .batch = p->batch};
}

/* Steps come one after the other: they share their scratch. */
static fleet_status prepare_steps(const fl_compiled *c, fl_prepared *p)
{
    const fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;
    size_t most = 0;

    for (size_t i = 0; i < c->plan->n_step; i++) {
        p->n_prepared = i + 1;
        if (t->kernel[i] && t->kernel[i]->prepare)
            FL_TRY(t->kernel[i]->prepare(g->d, g->queue, &p->step[i]));
        if (p->step[i].scratch_size > most)
            most = p->step[i].scratch_size;
    }
    FL_TRY(g->m->alloc(g->d, g->queue, most, &p->scratch));
    for (size_t i = 0; i < c->plan->n_step; i++)
        p->step[i].scratch = p->scratch;
    return FLEET_OK;
}

static void drop_prepared(const fl_compiled *c, fl_prepared *p)
{
    const fl_gpu_plan *t = c->gpu;

    fl_command_graphs_drop(t->gpu, &p->known);
    for (size_t i = 0; i < p->n_prepared; i++)
        if (t->kernel[i] && t->kernel[i]->finish)
            t->kernel[i]->finish(t->gpu->d, &p->step[i]);
    t->gpu->m->free(t->gpu->d, t->gpu->queue, p->scratch);
    fl_free(p->step);
    fl_free(p->arg);
    fl_free(p->state);
    fl_free(p);
}

/* The steps used last are the first; there are at most MOST_PREPARED. */
static fleet_status drop_oldest(fl_compiled *c)
{
    fl_prepared **at = &c->gpu->prepared, *last;
    int n = 0;

    while (*at && ++n < MOST_PREPARED)
        at = &(*at)->next;
    last = *at;
    if (!last)
        return FLEET_OK;
    FL_TRY(fl_gpu_wait(c->gpu->gpu));
    *at = NULL;
    drop_prepared(c, last);
    return FLEET_OK;
}

static fleet_status make_prepared(fl_compiled *c, int64_t batch, int slot,
                                  fl_prepared **out)
{
    fleet_status status;
    fl_error why;

    FL_TRY(drop_oldest(c));
    FL_TRY(FL_NEW(out, sizeof **out));
    (*out)->batch = batch;
    (*out)->slot = slot;
    make_end(c, *out);
    status = make_steps(c, *out);
    if (status == FLEET_OK)
        status = prepare_steps(c, *out);
    if (status == FLEET_OK)
        return FLEET_OK;
    fl_error_take(&why, status);
    fl_gpu_wait(c->gpu->gpu); /* for what earlier steps have queued */
    drop_prepared(c, *out);
    return fl_error_raise(&why);
}

fleet_status fl_gpu_plan_prepare(fl_compiled *c, int64_t batch, int slot)
{
    fl_gpu_plan *t = c->gpu;
    fl_prepared **at = &t->prepared, *p;

    while (*at && ((*at)->batch != batch || (*at)->slot != slot))
        at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    else
        FL_TRY(make_prepared(c, batch, slot, &p));
    p->next = t->prepared;
    t->prepared = t->now = p;
    t->slot = slot;
    return FLEET_OK;
}

/* When nothing that was queued is under way. */
static void drop_all_prepared(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    while (t->prepared) {
        fl_prepared *next = t->prepared->next;

        drop_prepared(c, t->prepared);
        t->prepared = next;
    }
    t->now = NULL;
}

fleet_status fl_gpu_plan_unprepare(fl_compiled *c)
{
    FL_TRY(fl_gpu_wait(c->gpu->gpu));
    drop_all_prepared(c);
    return FLEET_OK;
}

/* --- the end ------------------------------------------------------------- */

static void free_memory(const fl_compiled *c)
{
    const fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;
    char *all[] = {t->arena,   t->persistent,  t->faults,     t->feed[0],
                   t->feed[1], t->per_slot[0], t->per_slot[1]};

    for (int i = 0; i < 7; i++)
        g->m->free(g->d, g->queue, all[i]);
    for (int i = 0; i < 2; i++)
        g->m->event_destroy(g->d, t->sent[i]);
    for (size_t i = 0; t->stored && i < c->plan->n_value; i++)
        if (c->plan->value[i].positions)
            g->m->free(g->d, g->queue, t->stored[i]);
}

/* What is freed on a GPU that does not answer stays (device.h). */
static void warn_given_up(const fl_compiled *c)
{
    fl_gpu *g = c->gpu->gpu;

    if (!g->warned_given_up)
        FL_WARN(&c->plan->store->context->log,
                "gpu:%d: its memory is not freed, because it does not answer: "
                "%s",
                g->d->ordinal, fleet_last_error());
    g->warned_given_up = true;
}

void fl_gpu_plan_destroy(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;

    if (!t)
        return;
    if (fl_gpu_is_ours(t->gpu)) {
        fl_gpu_lock(t->gpu);
        if (fl_gpu_wait(t->gpu) != FLEET_OK)
            warn_given_up(c);
        drop_all_prepared(c);
        free_memory(c);
        fl_gpu_unlock(t->gpu);
    }
    fl_gpu_commands_done(&t->work);
    fl_free(t->sends_at);
    fl_free(t->stored);
    fl_free(t->kernel);
    fl_free(t);
    c->gpu = NULL;
}
