/* run.c - an iteration: regions one after the other, each shared by the
 * threads. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/exec/gpu_plan.h"
#include "runtime/device/trace.h"

/* What the tasks of a region share. */
typedef struct region_run {
    fl_compiled *c;
    const fl_region *region;
    int first_task;
    int64_t batch;
    _Atomic int failed; /* 0: no; 1: being written; 2: error is there */
    fl_error error;
} region_run;

static void keep_failure(region_run *run, fleet_status status)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&run->failed, &none, 1)) {
        fl_error_take(&run->error, status);
        atomic_store(&run->failed, 2);
    }
}

static fleet_status run_step(const fl_compiled *c, int step,
                             const fl_range *range)
{
    const fl_instance *in = &c->instance[step];
    const fl_kernel *k = in->step->kernel;
    int64_t began = c->trace ? fl_now_ns() : 0;
    fleet_status status = k->run(in, range);

    if (c->trace)
        fl_trace_step(c->trace, k->name, range->thread, began, fl_now_ns());
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

    if (atomic_load_explicit(&run->failed, memory_order_relaxed))
        return;
    status = run->region->split == FL_SPLIT_ROWS ? run_slice(run, task, thread)
                                                 : run_part(run, task, thread);
    if (status != FLEET_OK)
        keep_failure(run, status);
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

static fleet_status run_region(fl_compiled *c, fl_pool *pool, size_t r,
                               int64_t batch)
{
    region_run run = {.c = c,
                      .region = &c->plan->region[r],
                      .first_task = c->first_task[r],
                      .batch = batch};
    int n = c->first_task[r + 1] - c->first_task[r];

    if (run.region->engine == FL_ENGINE_GPU)
        return fl_gpu_plan_run(c, run.region, batch);
    if (c->gpu && run.region->phase >= FL_FORWARD) {
        FL_TRY(
            fl_gpu_plan_queue(c)); /* which is done while this one computes */
        FL_TRY(fl_gpu_plan_arrived(c));
    }
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
    fl_pool *pool = fl_pool_acquire(context->pool) ? context->pool : NULL;
    fleet_status status = FLEET_OK;

    for (size_t r = 0; r < c->plan->n_region && status == FLEET_OK; r++)
        if (is_due(&c->plan->region[r], phase)) {
            c->engine = c->plan->region[r].engine;
            status = run_region(c, pool, r, batch);
        }
    if (pool)
        fl_pool_release(pool);
    return status;
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

    if (!fl_store_on_gpu(plan->store))
        return FLEET_OK;
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];
        const void *here = fl_store_memory(plan, v);

        if (v->root == (int)i && here && !v->shadow)
            FL_TRY(fl_mirror_use(plan->store, here, v->on_gpu, v->changed));
    }
    return FLEET_OK;
}

/* --- who made the NaN ---------------------------------------------------- */

static bool is_finite(const fl_compiled *c, const fl_arg *a, int64_t batch)
{
    int64_t rows = a->factor ? batch * a->factor : a->rows;
    const float *x = (const float *)(const void *)(*a->base + a->offset);

    (void)c;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < a->cols; i++)
            if (!isfinite(x[r * a->ld + i]))
                return false;
    return true;
}

/* A non-finite operand of the step in that mode; -1: none. */
static int find_bad(const fl_compiled *c, const fl_instance *in, int64_t batch,
                    bool written)
{
    for (int i = 0; i < in->step->n_operand; i++) {
        const fl_operand *o = &in->step->operand[i];

        if (o->value < 0 || (o->mode != FL_READ) != written ||
            in->arg[i].dtype != FLEET_FLOAT32 ||
            c->plan->value[fl_plan_root(c->plan, o->value)].kind ==
                FL_VALUE_TABLE)
            continue;
        if (!is_finite(c, &in->arg[i], batch))
            return o->value;
    }
    return -1;
}

static fleet_status say(const fl_compiled *c, const fl_step *s, int value,
                        bool written, int64_t n_run)
{
    const fl_value *v = &c->plan->value[value];

    if (!written)
        return fl_fail(FLEET_ENUMERIC,
                       "batch %" PRId64 ": the loss is not finite, because "
                       "%s \"%s\", which %s reads, is not",
                       n_run, v->kind == FL_VALUE_FEED ? "input" : "parameter",
                       v->name, s->node ? s->node->op->name : s->kernel->name);
    return fl_fail(FLEET_ENUMERIC,
                   "batch %" PRId64 ": the loss is not finite: op %s is the "
                   "first whose result is not (\"%s\")",
                   n_run, s->node ? s->node->op->name : s->kernel->name,
                   v->name);
}

/* Run one step on all of the batch, on this thread. */
static fleet_status run_alone(const fl_compiled *c, int step, int64_t batch)
{
    const fl_instance *in = &c->instance[step];
    int64_t slice = c->plan->slice;
    fl_range range = {.batch = batch, .scratch = c->scratch[0]};
    int64_t n = in->n_part;

    if (in->step->kernel->split == FL_SPLIT_ROWS)
        n = (batch + slice - 1) / slice;
    for (int64_t i = 0; i < n; i++) {
        range.begin = range.slice = i;
        range.end = i + 1;
        if (in->step->kernel->split == FL_SPLIT_ROWS) {
            range.begin = i * slice;
            range.end = (i + 1) * slice < batch ? (i + 1) * slice : batch;
        }
        FL_TRY(in->step->kernel->run(in, &range));
    }
    return FLEET_OK;
}

fleet_status fl_compiled_find_nonfinite(fl_compiled *c, int64_t batch,
                                        int64_t n_run)
{
    for (size_t i = 0; i < c->plan->n_step; i++) {
        const fl_instance *in = &c->instance[i];
        int bad;

        if (in->step->phase != FL_FORWARD || in->step->engine == FL_ENGINE_GPU)
            continue;
        bad = find_bad(c, in, batch, false);
        if (bad >= 0)
            return say(c, in->step, bad, false, n_run);
        if (fl_step_changes_store(c->plan, in->step) ||
            in->step->engine == FL_ENGINE_COMM)
            continue; /* a metric has counted the batch already; rows came */
        FL_TRY(run_alone(c, (int)i, batch));
        bad = find_bad(c, in, batch, true);
        if (bad >= 0)
            return say(c, in->step, bad, true, n_run);
    }
    return fl_fail(FLEET_ENUMERIC, "batch %" PRId64 ": the loss is not finite",
                   n_run);
}
