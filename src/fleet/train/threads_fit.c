/* threads_fit.c - what of a strategy excludes trainer threads. */
#include "fleet/train/threads_fit.h"

/* A cache keeps no rows of members' pulls. With hogwild all pulls of a round
 * are for its first push. */
fleet_status fl_threads_fit(const fleet *f, const fleet_train_options *o)
{
    const fleet_a_sync_configs *c = &f->strategy.a_sync_configs;

    if (o->thread < 2 || f->role.server_num == 0)
        return FLEET_OK;
    if (f->role.stages.n_heter > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_train_from_dataset: %d trainer threads, in a job "
                       "of stages, whose trainers have one batch under way "
                       "(expected one thread)",
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
