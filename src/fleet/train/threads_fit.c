/* threads_fit.c - what of a strategy excludes trainer threads. */
#include "fleet/train/threads_fit.h"

#include "fleet/strategy/strategy_fields.h"

/* A cache keeps no rows of members' pulls. With hogwild all pulls of a round
 * are for its first push. */
static fleet_status check_threads(const fleet *f, const fleet_train_options *o)
{
    const fleet_a_sync_configs *c = &f->strategy.a_sync_configs;

    if (o->thread < 2 || f->role.server_num == 0)
        return FLEET_OK;
    if (f->role.stages.n_heter > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_train_from_dataset: %d trainer threads, in a job "
                       "of stages (expected one thread; several batches are "
                       "in flight by strategy.pipeline)",
                       o->thread);
    if (c->vocab_cache_size > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_train_from_dataset: %d trainer threads pull rows "
                       "past a worker's cache, and "
                       "strategy.a_sync_configs.vocab_cache_size is %lld "
                       "(expected 0, or one thread)",
                       o->thread, (long long)c->vocab_cache_size);
    if (o->hogwild && c->max_staleness >= 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_train_from_dataset: %d trainer threads with "
                       "hogwild push %d updates of one pull, and "
                       "strategy.a_sync_configs.max_staleness is %d: the last "
                       "would be staler (expected -1, or no hogwild)",
                       o->thread, o->thread, c->max_staleness);
    return FLEET_OK;
}

/* In async each batch in flight is an update by itself. */
static fl_crew_kind kind_of(const fleet *f, const fleet_train_options *o)
{
    const int n = fl_strategy_in_flight(&f->strategy);

    return f->role.stages.n_heter > 0
               ? (fl_crew_kind){.n = n,
                                .hogwild = fl_handle_mode(f) != FL_PS_SYNC,
                                .in_flight = true}
               : (fl_crew_kind){.n = o->thread, .hogwild = o->hogwild != 0};
}

fleet_status fl_threads_open(fleet_dataset *d, fleet_executor *e,
                             const fleet_train_options *o, fl_crew **crew)
{
    const fl_crew_kind kind = kind_of(d->fleet, o);

    *crew = NULL;
    FL_TRY(check_threads(d->fleet, o));
    if (e->training && kind.n > 1)
        FL_TRY(fl_crew_of(e, &kind, "fleet_train_from_dataset", crew));
    d->most_held = *crew ? kind.n : 0;
    d->updates_alone = *crew && kind.hogwild;
    return FLEET_OK;
}
