/* compile.c - from a plan to what can be run: memory, resolved operands,
 * kernels' state, task lists. */
#include "runtime/exec/compile.h"
#include "runtime/simd/simd.h"

#include "base/memory.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/remote.h"
#include "base/pool.h"
#include "runtime/plan/lower.h"

static int base_of(const fl_value *v, int i)
{
    if (v->kind == FL_VALUE_TEMP)
        return FL_BASE_ARENA;
    if (v->kind == FL_VALUE_PERSISTENT && !v->pointer)
        return v->per_slot ? FL_BASE_SLOT : FL_BASE_PERSISTENT;
    return FL_FIRST_BASE + 2 * i; /* a ragged feed has its offsets in the
                                     second */
}

void *fl_store_memory(const fl_plan *plan, const fl_value *v)
{
    if (v->kind == FL_VALUE_STATE)
        return fl_store_state(plan->store, v->var->name)->data;
    if (v->kind == FL_VALUE_TABLE)
        return fl_store_rows(plan->store, v->var->name);
    return v->kind == FL_VALUE_PARAM ? v->pointer : NULL;
}

static fleet_status place_bases(const fleet_executor *e, fl_compiled *c)
{
    fl_plan *plan = c->plan;

    FL_TRY(FL_NEW(&c->base,
                  (FL_FIRST_BASE + 2 * plan->n_value) * sizeof *c->base));
    FL_TRY(e->backend->alloc(e, plan->persistent_bytes, &c->persistent));
    c->base[FL_BASE_PERSISTENT] = c->persistent;
    if (plan->slot_bytes > 0)
        FL_TRY(
            e->backend->alloc(e, FL_N_SLOT * plan->slot_bytes, &c->per_slot));
    fl_compiled_slot(c, 0);
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (v->root == (int)i && v->on_gpu) /* the backend knows where */
            v->base = FL_FIRST_BASE + 2 * (int)i;
        if (v->root != (int)i || v->on_gpu)
            continue;
        v->base = base_of(v, (int)i);
        if (v->base >= FL_FIRST_BASE)
            c->base[v->base] = v->kind == FL_VALUE_PERSISTENT
                                   ? v->pointer
                                   : fl_store_memory(plan, v);
        if (v->kind == FL_VALUE_PERSISTENT && v->first != 0.0f)
            for (int64_t j = 0; j < fl_shape_count(&v->shape, 1); j++)
                ((float *)(void *)(c->persistent + v->offset))[j] = v->first;
    }
    return FLEET_OK;
}

/* Rows past the batch may be written: not in the caller's memory. */
static bool is_staged(const fl_value *v)
{
    return v->kind == FL_VALUE_FEED && !v->var->ragged &&
           fl_shape_batched(&v->shape);
}

static fleet_status place_staging(fl_compiled *c)
{
    fl_plan *plan = c->plan;
    size_t size = 0;

    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (v->root != (int)i || v->on_gpu || !is_staged(v))
            continue;
        v->staged_at = size;
        size += (fl_value_bytes(plan, v) + 63) / 64 * 64;
    }
    return FL_NEW(&c->staging, size);
}

void *fl_compiled_pointer(const fl_compiled *c, int value)
{
    const fl_value *v = &c->plan->value[value];
    const fl_value *root = &c->plan->value[v->root];

    return c->base[root->base] + root->offset +
           (size_t)v->column * fleet_dtype_size(v->dtype);
}

void fl_compiled_slot(fl_compiled *c, int slot)
{
    c->slot = slot;
    if (c->per_slot)
        c->base[FL_BASE_SLOT] =
            c->per_slot + (size_t)slot * c->plan->slot_bytes;
}

static fl_arg resolve_operands(const fl_compiled *c, int value)
{
    const fl_plan *plan = c->plan;
    const fl_value *v, *root;

    if (value < 0)
        return (fl_arg){0};
    v = &plan->value[value];
    root = &plan->value[v->root];
    return (fl_arg){
        .base = &c->base[root->base],
        .offset = root->offset + (size_t)v->column * fleet_dtype_size(v->dtype),
        .cols = fl_shape_cols(&v->shape),
        .ld = v->ld,
        .factor = fl_shape_batched(&v->shape) ? -v->shape.dim[0] : 0,
        .rows = fl_value_rows(plan, v),
        .dtype = v->dtype,
    };
}

static fleet_status resolve_all(fl_compiled *c)
{
    const fl_plan *plan = c->plan;
    size_t n_arg = 0, state = 0;

    for (size_t i = 0; i < plan->n_step; i++) {
        n_arg += (size_t)plan->step[i]->n_operand;
        state += (plan->step[i]->kernel->state_size + 63) / 64 * 64;
    }
    FL_TRY(FL_NEW(&c->arg, n_arg * sizeof *c->arg));
    FL_TRY(FL_NEW(&c->state, state));
    FL_TRY(FL_NEW(&c->instance, plan->n_step * sizeof *c->instance));
    n_arg = state = 0;
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];
        fl_instance *in = &c->instance[i];

        *in = (fl_instance){.step = s,
                            .arg = c->arg + n_arg,
                            .state = c->state + state,
                            .n_part = s->kernel->n_part ? s->kernel->n_part : 1,
                            .batch = plan->batch,
                            .slice = plan->slice,
                            .n_thread = c->n_scratch,
                            .seed = plan->store->context->seed};
        for (int j = 0; j < s->n_operand; j++)
            in->arg[j] = resolve_operands(c, s->operand[j].value);
        n_arg += (size_t)s->n_operand;
        state += (s->kernel->state_size + 63) / 64 * 64;
    }
    return FLEET_OK;
}

/* There is one of what pulls write per slot: each is prepared and finished. */
static int slots_of(const fl_instance *in)
{
    return in->step->phase == FL_PULL ? FL_N_SLOT : 1;
}

static fleet_status prepare_one(fl_compiled *c, fl_instance *in)
{
    fleet_status status = FLEET_OK;

    for (int s = 0; s < slots_of(in) && status == FLEET_OK; s++) {
        fl_compiled_slot(c, s);
        status = in->step->kernel->prepare(in);
    }
    fl_compiled_slot(c, 0);
    return status;
}

static fleet_status prepare_all(fl_compiled *c)
{
    for (size_t i = 0; i < c->plan->n_step; i++) {
        c->n_prepared = i + 1;
        if (c->plan->step[i]->engine != FL_ENGINE_GPU &&
            c->plan->step[i]->kernel->prepare)
            FL_TRY(prepare_one(c, &c->instance[i]));
    }
    return FLEET_OK;
}

static void finish_one(fl_compiled *c, fl_instance *in)
{
    for (int s = 0; s < slots_of(in); s++) {
        fl_compiled_slot(c, s);
        in->step->kernel->finish(in);
    }
    fl_compiled_slot(c, 0);
}

/* One scratch for each thread, as large as the greediest step wants. */
static fleet_status make_scratch(fl_compiled *c)
{
    size_t most = 0;

    for (size_t i = 0; i < c->plan->n_step; i++)
        if (c->instance[i].scratch_size > most)
            most = c->instance[i].scratch_size;
    FL_TRY(FL_NEW(&c->scratch, (size_t)c->n_scratch * sizeof *c->scratch));
    for (int i = 0; i < c->n_scratch; i++)
        FL_TRY(FL_NEW(&c->scratch[i], most));
    return FLEET_OK;
}

/* Parts of all steps of a region, in one list that threads take from. */
static fleet_status make_tasks(fl_compiled *c)
{
    const fl_plan *plan = c->plan;
    int n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        n += c->instance[i].n_part;
    FL_TRY(FL_NEW(&c->task, (size_t)n * sizeof *c->task));
    FL_TRY(
        FL_NEW(&c->first_task, (plan->n_region + 1) * sizeof *c->first_task));
    n = 0;
    for (size_t r = 0; r < plan->n_region; r++) {
        const fl_region *region = &plan->region[r];

        c->first_task[r] = n;
        if (region->split == FL_SPLIT_ROWS)
            continue;
        for (int i = region->first; i < region->first + region->n; i++)
            for (int p = 0; p < c->instance[i].n_part; p++)
                c->task[n++] = (fl_task_entry){i, p};
    }
    c->first_task[plan->n_region] = n;
    return FLEET_OK;
}

static void find_changes(fl_compiled *c)
{
    fl_plan *plan = c->plan;

    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand; j++)
            if (s->operand[j].value >= 0 && s->operand[j].mode != FL_READ)
                plan->value[fl_plan_root(plan, s->operand[j].value)].changed =
                    true;
        if (fl_step_changes_store(plan, s))
            c->changes_store = true;
    }
}

static fleet_status make_ready(fleet_executor *e, fl_compiled *c)
{
    FL_TRY(place_bases(e, c));
    FL_TRY(place_staging(c));
    FL_TRY(resolve_all(c));
    FL_TRY(prepare_all(c));
    FL_TRY(make_scratch(c));
    FL_TRY(make_tasks(c));
    find_changes(c);
    return c->backend->prepare(e, c);
}

/* Can this processor run what pass amp has made of the plan? */
static fleet_status check_processor(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_step && !fl_simd_has_bf16(); i++) {
        const fl_step *s = plan->step[i];

        if (s->engine == FL_ENGINE_COMPUTE && s->kernel->wants_half &&
            fl_step_dtype(plan, s) == FLEET_BFLOAT16)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "strategy.amp_configs.use_bf16: it needs a "
                           "processor with avx512_bf16; this one has, or "
                           "FLEET_ISA asks for, %s",
                           fl_simd_best()->isa);
    }
    return FLEET_OK;
}

fleet_status fl_compile(fleet_executor *e, int64_t batch,
                        fl_compiled **compiled)
{
    fl_compiled *c;
    fleet_status status;

    FL_TRY(FL_NEW(compiled, sizeof *c));
    c = *compiled;
    c->backend = e->backend;
    c->trace = e->context->trace;
    c->n_scratch = fl_pool_size(e->context->pool);
    status = fl_plan_build_for(&e->kind, e->program, e->store, batch,
                               e->training, e->fetched, &e->place, &c->plan);
    if (status == FLEET_OK)
        status = check_processor(c->plan);
    if (status == FLEET_OK)
        status = make_ready(e, c);
    if (status != FLEET_OK) {
        fl_compiled_destroy(e, c);
        *compiled = NULL;
    }
    return status;
}

void fl_compiled_destroy(const fleet_executor *e, fl_compiled *c)
{
    if (!c)
        return;
    c->backend->release(c);
    for (size_t i = 0; i < c->n_prepared; i++)
        if (c->plan->step[i]->engine != FL_ENGINE_GPU &&
            c->plan->step[i]->kernel->finish)
            finish_one(c, &c->instance[i]);
    for (int i = 0; c->scratch && i < c->n_scratch; i++)
        fl_free(c->scratch[i]);
    fl_free(c->scratch);
    fl_free(c->task);
    fl_free(c->first_task);
    fl_free(c->instance);
    fl_free(c->state);
    fl_free(c->arg);
    e->backend->free(e, c->persistent);
    e->backend->free(e, c->per_slot);
    fl_free(c->staging);
    fl_free(c->base);
    fl_plan_destroy(c->plan);
    fl_free(c);
}
