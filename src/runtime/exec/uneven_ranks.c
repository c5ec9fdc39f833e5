/* uneven_ranks.c - a rank whose pass is over takes part in the updates of ranks
 * that still train, as PyTorch's Join does. */
#include "runtime/exec/uneven_ranks.h"

#include "runtime/exec/backend.h"
#include "runtime/exec/localsgd_schedule.h"
#include "runtime/exec/plan_cache.h"
#include "runtime/exec/run.h"
#include "runtime/plan/agree.h"

/* A rank that has trained nothing yet cannot update. */
static fleet_status wait_without_update(const fl_store *s)
{
    const fl_agree *r = s->agree;
    fl_agreed agreed;

    if (s->local.since > 0)
        return fl_fail(FLEET_ESTATE,
                       "rank %d: the executor that trained is gone before its "
                       "pass ended, with weights that no mean has",
                       r->comm->rank);
    FL_TRY(fl_agree_on(r, FL_INTENT_NONE, 0, &agreed));
    if (agreed.done == FL_INTENT_NONE && agreed.batches == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE,
                   "rank %d waits for the others, which train, and has trained "
                   "nothing itself: fleet_train_from_dataset() or an "
                   "iteration must come before",
                   r->comm->rank);
}

/* The GPU may still read the sums of this rank's own last batch. */
static fleet_status join_reductions(fleet_executor *e, fl_compiled *c)
{
    if (!c->plan->syncs)
        return fl_compiled_run(c, e->context, c->plan->batch, FL_REDUCE_BEGIN);
    FL_TRY(c->backend->wait(e, c));
    return fl_compiled_join(c);
}

static fleet_status run_others_update(fleet_executor *e, fl_compiled *c,
                                      fl_update_count batches)
{
    FL_TRY(c->backend->begin_join(e, c));
    FL_TRY(fl_executor_set_update(e, c, batches, true));
    FL_TRY(join_reductions(e, c));
    FL_TRY(fl_compiled_run(c, e->context, c->plan->batch, FL_UPDATE));
    FL_TRY(fl_executor_end_update(e, c, NULL));
    return fl_localsgd_updated(e, c, false);
}

/* One update of other ranks; *over: there is none, as all passes are over. */
static fleet_status join_update(fleet_executor *e, fl_compiled *c, bool *over)
{
    fleet_status status;
    fl_update_count batches;

    if (fl_localsgd_is_next(e))
        return fl_localsgd_average(e, c, over);
    FL_TRY(fl_executor_count(e, &batches));
    *over = batches.all == 0;
    if (*over)
        return FLEET_OK;
    FL_TRY(fl_compiled_map_store(c));
    e->backend->lock(e);
    status = run_others_update(e, c, batches);
    if (status == FLEET_OK)
        status = c->backend->finish_update(e, c);
    if (status != FLEET_OK)
        fl_executor_end_works(e, c);
    e->backend->unlock(e);
    return status;
}

fleet_status fl_executor_join(fleet_executor *e, fl_rank_call *then, void *arg)
{
    fleet_status status = FLEET_OK;
    bool over = false;
    fl_compiled *c;

    if (e->micro > 0)
        return fl_fail(FLEET_ESTATE, "a merge group is under way: call "
                                     "fleet_executor_flush() before");
    FL_TRY(fl_executor_plan(e, e->max_batch ? e->max_batch : 1, &c));
    pthread_rwlock_wrlock(&e->store->lock);
    e->joins = true;
    while (!over && status == FLEET_OK)
        status = join_update(e, c, &over);
    e->joins = false;
    if (status == FLEET_OK && then)
        status = then(arg);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}

static fleet_status join_untrained(fl_store *s, fl_rank_call *then, void *arg)
{
    fleet_status status;

    pthread_rwlock_wrlock(&s->lock);
    status = wait_without_update(s);
    if (status == FLEET_OK && then)
        status = then(arg);
    pthread_rwlock_unlock(&s->lock);
    return status;
}

fleet_status fl_store_join(fl_store *s, fl_rank_call *then, void *arg)
{
    fleet_executor *trainer;
    fleet_status status;

    pthread_rwlock_rdlock(&s->lock);
    trainer = s->trainer;
    pthread_rwlock_unlock(&s->lock);
    status = trainer ? fl_executor_join(trainer, then, arg)
                     : join_untrained(s, then, arg);
    if (status != FLEET_OK)
        fl_agree_abort(s->agree, fleet_last_error());
    return status;
}
