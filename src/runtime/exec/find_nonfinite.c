/* find_nonfinite.c - the first step of an iteration whose result is not finite:
 * the forward steps are run once more, one by one. */
#include "runtime/exec/find_nonfinite.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/exec/compile.h"

static bool is_finite(const fl_arg *a, int64_t rows)
{
    const float *x = (const float *)(const void *)(*a->base + a->offset);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < a->cols; i++)
            if (!isfinite(x[r * a->ld + i]))
                return false;
    return true;
}

/* Of ragged data there are as many values as the last offset says. */
static int64_t rows_of(const fl_compiled *c, int value, const fl_arg *a,
                       int64_t batch)
{
    const fl_value *root = &c->plan->value[fl_plan_root(c->plan, value)];

    if (root->kind == FL_VALUE_FEED && root->var->ragged)
        return ((const int64_t *)(const void *)a->base[1])[batch];
    return a->factor ? batch * a->factor : a->rows;
}

/* The first operand that is not finite among the operands that the step reads,
 * or among the operands that it has written; -1: none. */
static int find_nonfinite(const fl_compiled *c, const fl_instance *in,
                          int64_t batch, bool written)
{
    for (int i = 0; i < in->step->n_operand; i++) {
        const fl_operand *o = &in->step->operand[i];

        if (o->value < 0 || (o->mode != FL_READ) != written ||
            in->arg[i].dtype != FLEET_FLOAT32 ||
            c->plan->value[fl_plan_root(c->plan, o->value)].kind ==
                FL_VALUE_TABLE)
            continue;
        if (!is_finite(&in->arg[i], rows_of(c, o->value, &in->arg[i], batch)))
            return o->value;
    }
    return -1;
}

static const char *kind_of(const fl_compiled *c, int value)
{
    switch (c->plan->value[fl_plan_root(c->plan, value)].kind) {
    case FL_VALUE_FEED:
        return "input";
    case FL_VALUE_PARAM:
        return "parameter";
    default:
        return "value";
    }
}

static fleet_status report_first(const fl_compiled *c, const fl_step *s,
                                 int value, bool written, int64_t n_run)
{
    const fl_value *v = &c->plan->value[value];

    if (!written)
        return fl_fail(FLEET_ENUMERIC,
                       "batch %" PRId64 ": the loss is not finite, because "
                       "%s \"%s\", which %s reads, is not",
                       n_run, kind_of(c, value), v->name,
                       s->node ? s->node->op->name : s->kernel->name);
    return fl_fail(FLEET_ENUMERIC,
                   "batch %" PRId64 ": the loss is not finite: op %s is the "
                   "first whose result is not (\"%s\")",
                   n_run, s->node ? s->node->op->name : s->kernel->name,
                   v->name);
}

/* Run one step on all of the batch, on this thread. */
static fleet_status run_whole_step(const fl_compiled *c, int step,
                                   int64_t batch)
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
    /* weights that were gathered are gone, and other ranks are further */
    for (size_t i = 0; i < c->plan->n_step && !c->plan->gathers; i++) {
        const fl_instance *in = &c->instance[i];
        int value;

        if (in->step->phase != FL_FORWARD || in->step->engine == FL_ENGINE_GPU)
            continue;
        value = find_nonfinite(c, in, batch, false);
        if (value >= 0)
            return report_first(c, in->step, value, false, n_run);
        if (fl_step_changes_store(c->plan, in->step) ||
            in->step->engine == FL_ENGINE_COMM)
            continue; /* a metric has counted the batch; rows have come */
        FL_TRY(run_whole_step(c, (int)i, batch));
        value = find_nonfinite(c, in, batch, true);
        if (value >= 0)
            return report_first(c, in->step, value, true, n_run);
    }
    return FLEET_OK;
}

fleet_status fl_compiled_report_nonfinite(fl_compiled *c, int64_t batch,
                                          int64_t n_run)
{
    FL_TRY(fl_compiled_find_nonfinite(c, batch, n_run));
    return fl_fail(
        FLEET_ENUMERIC, "batch %" PRId64 ": the loss is not finite%s", n_run,
        c->plan->gathers ? "; by which op is not known, as weights are shared "
                           "out (strategy.sharding_configs.stage)"
        : c->plan->syncs ? ", by the batch of another rank, whose statistics "
                           "this one has, too (strategy.sync_batch_norm)"
                         : "");
}
