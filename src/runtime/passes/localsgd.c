/* localsgd.c - ranks that update on their own and make their weights equal now and
 * then: by the mean of all that have updated since the last time. So Lin et
 * al. 2018, "Don't use large mini-batches, use local SGD" (arXiv:1808.07217);
 * how often may follow the loss, as in Wang and Joshi 2018 (arXiv:1810.08313).
 *
 * A rank whose pass is over counts once more if it has updated since, and then
 * gets the others' mean. A pass ends with a mean, so that all weights are equal
 * when it is over. Optimizer states stay each rank's own.
 */
#include <math.h>
#include <string.h>

#include "runtime/plan/pass.h"
#include "runtime/device/comm.h"
#include "runtime/exec/gpu_plan.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/reduce/buckets.h"

/* --- steps of a mean ----------------------------------------------------- */

enum { THE_UPDATE, TO, FROM };

static fleet_status keep_run(const fl_instance *in, const fl_range *r)
{
    size_t n = (size_t)(in->arg[TO].rows * in->arg[TO].cols);

    (void)r;
    memcpy(fl_ptr(in, TO), fl_ptr(in, FROM), n * sizeof(float));
    return FLEET_OK;
}

/* What is reduced is a copy: a sum that fails leaves the weights. */
static const fl_kernel kernel_keep = {
    .name = "mean.copy",
    .split = FL_SPLIT_PARTS,
    .run = keep_run,
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

    FL_EMIT(l, &kernel_keep, NULL, NULL, FL_R(l->plan->update), FL_W(sum),
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

/* --- when ---------------------------------------------------------------- */

bool fl_localsgd_is_next(const fleet_executor *e)
{
    const fl_training *t = &e->program->training;

    return e->training && e->store->agree && t->localsgd.steps > 0 &&
           e->store->updates >= t->localsgd.begin;
}

static int64_t steps_of(const fleet_executor *e)
{
    return e->store->local.steps > 0 ? e->store->local.steps
                                     : e->program->training.localsgd.steps;
}

/* PaddlePaddle's rule: AdaComm's tau by the loss and the learning rate, from 1
 * to 16 (meta_optimizers/localsgd_optimizer.py). */
static int64_t steps_for(const fl_localsgd *now, double first, double loss,
                         double learning_rate)
{
    double x = now->learning_rate * loss / (learning_rate * now->loss) * first;

    if (!(x > 1)) /* NaN, too */
        return 1;
    return x < 256 ? (int64_t)ceil(sqrt(x)) : 16;
}

/* Of the last iteration; 0 of a rank that had none. */
static fleet_status read_loss(const fleet_executor *e, const fl_compiled *c,
                              float *loss)
{
    int at = c->plan->loss;

    *loss = 0;
    if (e->joins)
        return FLEET_OK;
    if (c->plan->value[at].on_gpu)
        return fl_gpu_plan_read(c, at, 1, loss);
    memcpy(loss, fl_compiled_pointer(c, at), sizeof *loss);
    return FLEET_OK;
}

/* After ranks have met: the mean loss of those that train says when they do so
 * again. All know the same numbers. */
static fleet_status follow_loss(fleet_executor *e, const fl_compiled *c)
{
    const fl_training *t = &e->program->training;
    fl_comm *p = e->store->agree->comm;
    fl_localsgd *now = &e->store->local;
    double sum[2] = {0, e->joins ? 0 : 1};
    fl_update u;
    float loss;

    if (!t->localsgd.adaptive || c->plan->loss < 0)
        return FLEET_OK;
    FL_TRY(read_loss(e, c, &loss));
    sum[0] = (double)loss;
    FL_TRY(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F64, sum, sum, 2, NULL));
    if (sum[1] == 0)
        return FLEET_OK;
    fl_optimizer_update(e->store->optimizer, e->store->updates - 1, 1, &u);
    if (now->learning_rate == 0) {
        now->loss = sum[0] / sum[1];
        now->learning_rate = (double)u.lr;
    }
    now->steps = steps_for(now, (double)t->localsgd.steps, sum[0] / sum[1],
                           (double)u.lr);
    return FLEET_OK;
}

static fleet_status average(fleet_executor *e, fl_compiled *c)
{
    fl_gpu *gpu = e->place.gpu;
    fleet_status status = FLEET_OK;

    fl_gpu_lock(gpu);
    if (e->joins)
        status = fl_in_flight_update_others(e, c);
    if (status == FLEET_OK)
        status = fl_compiled_run(c, e->context, c->plan->batch, FL_AVERAGE);
    if (status == FLEET_OK && c->gpu)
        status = fl_gpu_wait(gpu);
    fl_gpu_unlock(gpu);
    return status;
}

static fleet_status meet(fleet_executor *e, fl_compiled *c, bool *over)
{
    fl_update_now *now = fl_compiled_pointer(c, c->plan->update);
    fl_store *s = e->store;
    fl_agreed round;

    FL_TRY(fl_agree_on(s->agree, e->joins ? FL_INTENT_NONE : FL_INTENT_UPDATE,
                       (int)s->local.since, &round));
    *over = round.batches == 0;
    if (*over)
        return FLEET_OK;
    now->alone = false;
    now->joins = s->local.since == 0;
    now->ranks = round.ranks;
    FL_TRY(fl_compiled_map_store(c)); /* weights may have been read meanwhile */
    FL_TRY(average(e, c));
    s->updates += round.most - s->local.since;
    s->local.since = 0;
    return follow_loss(e, c);
}

fleet_status fl_localsgd_updated(fleet_executor *e, fl_compiled *c, bool alone)
{
    bool over;

    if (!e->store->agree)
        return FLEET_OK;
    if (!alone)
        return follow_loss(e, c);
    e->store->local.since++;
    return e->store->local.since < steps_of(e) ? FLEET_OK : meet(e, c, &over);
}

fleet_status fl_localsgd_join(fleet_executor *e, fl_compiled *c, bool *over)
{
    return meet(e, c, over);
}
