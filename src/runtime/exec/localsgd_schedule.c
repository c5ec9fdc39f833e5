/* localsgd_schedule.c - when ranks that update on their own average their
 * weights: after a number of updates, which may follow the loss as in Wang and
 * Joshi 2018 (arXiv:1810.08313). Pass localsgd makes the steps of an
 * average.
 *
 * The average is of all ranks that have updated since the last one. A rank
 * whose pass is over counts once more if it has updated since, and then gets
 * the average of the other ranks. A pass ends with an average, so that all
 * weights are equal when it is over. Optimizer states stay each rank's own.
 */
#include "runtime/exec/localsgd_schedule.h"

#include <math.h>

#include "runtime/exec/backend.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/run.h"
#include "runtime/plan/agree.h"

bool fl_localsgd_is_next(const fleet_executor *e)
{
    const fl_training *t = &e->program->training;

    return e->training && e->store->agree && t->localsgd.steps > 0 &&
           e->store->updates >= t->localsgd.begin;
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

/* After an update of all ranks: the mean loss of ranks that train says when
 * they average next. All ranks have the same numbers. */
static fleet_status follow_loss(fleet_executor *e, const fl_compiled *c)
{
    const fl_training *t = &e->program->training;
    fl_comm *p = e->store->agree->comm;
    fl_localsgd *now = &e->store->local;
    double sum[2] = {0, e->joins ? 0 : 1};
    fl_update u;
    float loss = 0;

    if (!t->localsgd.adaptive || c->plan->loss < 0)
        return FLEET_OK;
    if (!e->joins) /* else it has no batch */
        FL_TRY(c->backend->read(c, c->plan->loss, 1, &loss));
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

static fleet_status run_average(fleet_executor *e, fl_compiled *c)
{
    fleet_status status = FLEET_OK;

    e->backend->lock(e);
    if (e->joins)
        status = c->backend->begin_join(e, c);
    if (status == FLEET_OK)
        status = fl_compiled_run(c, e->context, c->plan->batch, FL_AVERAGE);
    if (status == FLEET_OK)
        status = c->backend->wait(e, c);
    e->backend->unlock(e);
    return status;
}

fleet_status fl_localsgd_average(fleet_executor *e, fl_compiled *c, bool *over)
{
    fl_update_now *now = fl_compiled_pointer(c, c->plan->update);
    fl_store *s = e->store;
    fl_agreed agreed;

    FL_TRY(fl_agree_on(s->agree, e->joins ? FL_INTENT_NONE : FL_INTENT_UPDATE,
                       (int)s->local.since, &agreed));
    *over = agreed.batches == 0;
    if (*over)
        return FLEET_OK;
    now->alone = false;
    now->joins = s->local.since == 0;
    now->ranks = agreed.ranks;
    FL_TRY(fl_compiled_map_store(c)); /* a command may have read weights */
    FL_TRY(run_average(e, c));
    s->updates += agreed.most - s->local.since;
    s->local.since = 0;
    return follow_loss(e, c);
}

fleet_status fl_localsgd_updated(fleet_executor *e, fl_compiled *c, bool alone)
{
    fl_localsgd *now = &e->store->local;
    bool over;

    if (!e->store->agree)
        return FLEET_OK;
    if (!alone)
        return follow_loss(e, c);
    return ++now->since < (now->steps > 0 ? now->steps
                                          : e->program->training.localsgd.steps)
               ? FLEET_OK
               : fl_localsgd_average(e, c, &over);
}
