/* run.c - the phases of an iteration: regions one after the other, each shared
 * by the threads. */
#include "runtime/exec/run.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/device/trace.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/compile.h"
#include "base/pool.h"
#include "runtime/reduce/whole_weights.h"

/* What the tasks of a region share. */
typedef struct region_run {
    fl_compiled *c;
    const fl_region *region;
    int first_task;
    int64_t batch;
    _Atomic int failed; /* 0: no; 1: error is being written; 2: it is written */
    fl_error error;
} region_run;

static fleet_status run_step(const fl_compiled *c, int step,
                             const fl_range *range)
{
    const fl_instance *in = &c->instance[step];
    const fl_kernel *k = in->step->kernel;
    int64_t began = c->trace ? fl_now_ns() : 0;
    fleet_status status = k->run(in, range);

    if (c->trace)
        fl_trace_step(c->trace, k->name, c->first_thread + range->thread, began,
                      fl_now_ns());
    return status;
}

static fleet_status run_slice(const region_run *run, int slice, int thread)
{
    const fl_compiled *c = run->c;
    fl_range range = {.begin = slice * c->plan->slice,
                      .batch = run->batch,
                      .slice = slice,
                      .thread = thread,
                      .scratch = c->scratch[thread]};

    range.end = range.begin + c->plan->slice;
    if (range.end > run->batch)
        range.end = run->batch;
    for (int i = 0; i < run->region->n; i++)
        FL_TRY(run_step(c, run->region->first + i, &range));
    return FLEET_OK;
}

static fleet_status run_part(const region_run *run, int task, int thread)
{
    const fl_compiled *c = run->c;
    const fl_task_entry *t = &c->task[run->first_task + task];
    fl_range range = {.begin = t->part,
                      .end = t->part + 1,
                      .batch = run->batch,
                      .thread = thread,
                      .scratch = c->scratch[thread]};

    return run_step(c, t->step, &range);
}

static void region_task(void *arg, int task, int thread)
{
    region_run *run = arg;
    fleet_status status;
    int none = 0;

    if (atomic_load_explicit(&run->failed, memory_order_relaxed))
        return;
    status = run->region->split == FL_SPLIT_ROWS ? run_slice(run, task, thread)
                                                 : run_part(run, task, thread);
    if (status != FLEET_OK &&
        atomic_compare_exchange_strong(&run->failed, &none, 1)) {
        fl_error_take(&run->error, status);
        atomic_store(&run->failed, 2);
    }
}

/* A kernel of this region reads whole buffers: rows past the batch are zero. */
static void zero_tails(const fl_compiled *c, const fl_region *region,
                       int64_t batch)
{
    if (batch == c->plan->batch && batch % c->plan->slice == 0)
        return;
    for (int i = region->first; i < region->first + region->n; i++) {
        const fl_instance *in = &c->instance[i];

        for (int j = 0;
             in->step->kernel->whole_batch && j < in->step->n_operand; j++) {
            const fl_arg *a = &in->arg[j];
            int64_t used = batch * a->factor;
            size_t element = fleet_dtype_size(a->dtype);

            if (!a->base || !a->factor)
                continue;
            for (int64_t row = used; row < a->rows; row++)
                memset((char *)fl_ptr(in, j) + (size_t)(row * a->ld) * element,
                       0, (size_t)a->cols * element);
        }
    }
}

fleet_status fl_host_run_region(fl_compiled *c, fl_pool *pool, size_t r,
                                int64_t batch)
{
    region_run run = {.c = c,
                      .region = &c->plan->region[r],
                      .first_task = c->first_task[r],
                      .batch = batch};
    int n = c->first_task[r + 1] - c->first_task[r];

    if (run.region->split == FL_SPLIT_ROWS)
        n = (int)((batch + c->plan->slice - 1) / c->plan->slice);
    else
        zero_tails(c, run.region, batch);
    if (pool && n > 1 && run.region->engine == FL_ENGINE_COMPUTE)
        fl_pool_run(pool, n, region_task, &run);
    else
        for (int i = 0; i < n; i++)
            region_task(&run, i, 0);
    if (atomic_load(&run.failed))
        return fl_error_raise(&run.error);
    return FLEET_OK;
}

static bool is_due(const fl_region *region, fl_phase phase)
{
    return region->phase == phase ||
           (phase == FL_BACKWARD && region->phase == FL_REDUCE_BEGIN);
}

fleet_status fl_compiled_run(fl_compiled *c, fl_context *context, int64_t batch,
                             fl_phase phase)
{
    fl_pool *threads = c->alone ? c->team : context->pool;
    fl_pool *pool = fl_pool_acquire(threads) ? threads : NULL;
    fleet_status status = FLEET_OK;

    for (size_t r = 0; r < c->plan->n_region && status == FLEET_OK; r++)
        if (is_due(&c->plan->region[r], phase)) {
            c->engine = c->plan->region[r].engine;
            status = c->backend->run_region(c, pool, r, batch);
        }
    if (pool)
        fl_pool_release(pool);
    return status;
}

/* In the order of the ranks that have a batch. */
fleet_status fl_compiled_join(fl_compiled *c)
{
    const fl_range range = {.end = 1, .batch = c->plan->batch};

    for (size_t r = 0; r < c->plan->n_region; r++) {
        const fl_region *region = &c->plan->region[r];

        if (region->phase == FL_REDUCE_BEGIN)
            FL_TRY(c->backend->run_region(c, NULL, r, c->plan->batch));
        for (int i = region->first; i < region->first + region->n; i++)
            if (c->plan->step[i]->kernel->meets)
                FL_TRY(run_step(c, i, &range));
    }
    return FLEET_OK;
}

fleet_status fl_compiled_begin(fl_compiled *c, int64_t batch, bool pull)
{
    for (size_t i = 0; i < c->plan->n_step; i++) {
        const fl_instance *in = &c->instance[i];

        if (in->step->engine != FL_ENGINE_GPU && in->step->kernel->begin &&
            (in->step->phase == FL_PULL) == pull)
            FL_TRY(in->step->kernel->begin(in, batch));
    }
    return FLEET_OK;
}

/* A batch that fills the plan is read where it is; any other one is copied to
 * where whole slices may be read and rows past the batch be zeroed. */
static const void *stage(fl_compiled *c, const fl_value *v, const void *data,
                         int64_t batch)
{
    const fl_plan *plan = c->plan;
    void *copy = c->staging + v->staged_at;

    if (v->var->ragged || !fl_shape_batched(&v->shape) ||
        (batch == plan->batch && batch % plan->slice == 0))
        return data;
    memcpy(copy, data,
           (size_t)fl_shape_count(&v->shape, batch) *
               fleet_dtype_size(v->dtype));
    return copy;
}

void fl_compiled_bind(fl_compiled *c, const fl_input *input, int64_t batch,
                      bool pull)
{
    const fl_plan *plan = c->plan;

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];
        const fl_input *from;
        const void *data;

        if (v->kind != FL_VALUE_FEED || v->root != (int)i || v->on_gpu)
            continue;
        from = &input[v->var->id];
        data = pull ? from->data : stage(c, v, from->data, batch);
        /* feeds are only read; the table of bases is of one type for all */
        memcpy(&c->base[v->base], &data, sizeof data);
        memcpy(&c->base[v->base + 1], &from->offsets, sizeof from->offsets);
    }
}

fleet_status fl_compiled_map_store(const fl_compiled *c)
{
    const fl_plan *plan = c->plan;

    if (plan->training)
        FL_TRY(fl_part_weights(plan->store));
    if (!fl_store_on_gpu(plan->store))
        return FLEET_OK;
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];
        const void *stored = fl_store_memory(plan, v);

        if (v->root == (int)i && stored && !v->shadow)
            FL_TRY(fl_mirror_use(plan->store, stored, v->on_gpu, v->changed));
    }
    return FLEET_OK;
}
