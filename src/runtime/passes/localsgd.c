/* localsgd.c - pass localsgd: ranks update on their own and average their
 * weights now and then, by steps of phase FL_AVERAGE. So Lin et al. 2018,
 * "Don't use large mini-batches, use local SGD" (arXiv:1808.07217). The
 * executor knows when (exec/localsgd_schedule.c).
 */
#include <string.h>

#include "runtime/plan/pass.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/reduce/bucket_layout.h"

enum { THE_UPDATE, TO, FROM };

static fleet_status copy_run(const fl_instance *in, const fl_range *r)
{
    size_t n = (size_t)(in->arg[TO].rows * in->arg[TO].cols);

    (void)r;
    memcpy(fl_ptr(in, TO), fl_ptr(in, FROM), n * sizeof(float));
    return FLEET_OK;
}

/* Ranks sum up a copy: a sum that fails leaves the weights. */
static const fl_kernel kernel_copy = {
    .name = "mean.copy",
    .split = FL_SPLIT_PARTS,
    .run = copy_run,
    .on_host = true,
};

static fleet_status divide_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    int64_t n = in->arg[TO].rows * in->arg[TO].cols;
    const float *sum = fl_ptr(in, FROM);
    float *weight = fl_ptr(in, TO);

    (void)r;
    for (int64_t i = 0; i < n; i++)
        weight[i] = sum[i] / (float)now->ranks;
    return FLEET_OK;
}

static const fl_kernel kernel_divide = {
    .name = "mean.divide",
    .split = FL_SPLIT_PARTS,
    .run = divide_run,
    .on_host = true,
};

static void emit_mean(fl_lowering *l, const fl_dense *d, int64_t offset,
                      int64_t n)
{
    const fl_shape shape = fl_shape_1(n);
    int sum = fl_temp(l, "weights' sum", FLEET_FLOAT32, &shape);
    int weight = fl_stretch(l, d->weight, "bucket", offset, n);

    FL_EMIT(l, &kernel_copy, NULL, NULL, FL_R(l->plan->update), FL_W(sum),
            FL_R(weight));
    fl_emit_all_reduce(l, sum, FL_WIRE_F32, false);
    FL_EMIT(l, &kernel_divide, NULL, NULL, FL_R(l->plan->update), FL_W(weight),
            FL_R(sum));
}

fleet_status fl_pass_localsgd(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || !plan->store->agree ||
        l->program->training.localsgd.steps == 0)
        return FLEET_OK;
    if (plan->n_sparse > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.%slocalsgd: table \"%s\" is trained by all "
                       "ranks together, in every update",
                       l->program->training.localsgd.adaptive ? "adaptive_"
                                                              : "",
                       plan->sparse[0].table->name);
    l->phase = FL_AVERAGE;
    fl_update_value(l);
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            fl_each_bucket(l, &plan->dense[i], emit_mean);
            *applied = true;
        }
    return l->status;
}
