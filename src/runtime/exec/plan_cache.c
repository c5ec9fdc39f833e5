/* plan_cache.c - the plans of an executor, one for each size of batch. */
#include "runtime/exec/plan_cache.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/exec/backend.h"
#include "runtime/exec/prefetch.h"
#include "runtime/plan/remote.h"

void fl_executor_forget_plans(fleet_executor *e)
{
    fl_executor_forget(e);
    e->backend->abandon(e);
    while (e->compiled) {
        fl_compiled *next = e->compiled->next;

        fl_compiled_destroy(e, e->compiled);
        e->compiled = next;
    }
    e->last = e->merged = NULL;
}

/* One arena serves this plan and all other ones. */
static fleet_status widen_arena(fleet_executor *e, fl_compiled *c)
{
    char *arena;

    if (c->plan->arena_bytes > e->arena_bytes) {
        FL_TRY(e->backend->alloc(e, c->plan->arena_bytes, &arena));
#ifdef __SANITIZE_ADDRESS__
        /* NaN for steps that read what no step has written */
        memset(arena, 0xff, c->plan->arena_bytes);
#endif
        e->backend->free(e, e->arena);
        e->arena = arena;
        e->arena_bytes = c->plan->arena_bytes;
        for (fl_compiled *one = e->compiled; one; one = one->next)
            one->base[FL_BASE_ARENA] = arena;
    }
    c->base[FL_BASE_ARENA] = e->arena;
    return FLEET_OK;
}

/* A plan of its own for a batch of that many rows. */
static fleet_status make_plan(fleet_executor *e, int64_t batch,
                              fl_compiled **compiled)
{
    fleet_status status;

    pthread_rwlock_rdlock(&e->store->lock); /* a program may be added to it */
    status = fl_compile(e, batch, compiled);
    pthread_rwlock_unlock(&e->store->lock);
    FL_TRY(status);
    status = widen_arena(e, *compiled);
    if (status != FLEET_OK)
        fl_compiled_destroy(e, *compiled);
    return status;
}

/* The batch size of the plan. */
static int64_t capacity_for(const fleet_executor *e, int64_t batch)
{
    int64_t size = 4; /* with AVX2 fewer rows have other bits */

    if (!e->any_batch)
        return batch <= e->max_batch ? e->max_batch : batch;
    while (size < batch && size < 1 << 20)
        size *= 2;
    return size < batch ? batch : size;
}

/* The plan that was wanted least lately; but the last iteration's is fetched
 * from. */
static fl_compiled **oldest_plan(fleet_executor *e)
{
    fl_compiled **oldest = NULL;

    for (fl_compiled **at = &e->compiled; *at; at = &(*at)->next)
        if (*at != e->last)
            oldest = at;
    return oldest;
}

/* Iterations under way name their plans. */
static fleet_status evict(fleet_executor *e, fl_compiled **at)
{
    fl_compiled *c = *at;
    fleet_status status;

    pthread_rwlock_wrlock(&e->store->lock); /* updates are counted */
    status = e->backend->drain(e);
    pthread_rwlock_unlock(&e->store->lock);
    FL_TRY(status);
    if (e->current.c == c)
        fl_executor_forget(e);
    *at = c->next;
    fl_compiled_destroy(e, c);
    return FLEET_OK;
}

/* The plan for a batch of that many rows: the last ones are kept. */
static fleet_status find_plan(fleet_executor *e, int64_t batch,
                              fl_compiled **compiled)
{
    enum { MOST_PLANS = 8 };
    int64_t key = capacity_for(e, batch);
    fl_compiled **at = &e->compiled;
    int n = 0;

    for (; *at && (*at)->plan->batch != key; at = &(*at)->next)
        n++;
    if (*at) {
        *compiled = *at;
        *at = (*compiled)->next;
    } else {
        if (n >= MOST_PLANS)
            FL_TRY(evict(e, oldest_plan(e)));
        FL_TRY(make_plan(e, key, compiled));
    }
    (*compiled)->next = e->compiled;
    e->compiled = *compiled;
    return FLEET_OK;
}

/* Plans are made for a store with its remote and its ranks, or without; and
 * with tables on a GPU as a whole, or a pass's rows, which plans for test are
 * without. */
static bool has_moved(const fleet_executor *e)
{
    return e->remote != e->store->remote || e->n_joined != e->store->n_joined;
}

fleet_status fl_executor_check_store(const fleet_executor *e)
{
    if (!has_moved(e))
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE, "%s were reached or left inside %s",
                   e->n_joined != e->store->n_joined ? "ranks" : "servers",
                   e->micro > 0 ? "a merge group" : "an iteration");
}

fleet_status fl_executor_follow_store(fleet_executor *e)
{
    if (e->micro > 0)
        return fl_executor_check_store(e);
    if (!has_moved(e) && e->gpu_passes == e->store->gpu_passes)
        return FLEET_OK;
    fl_executor_forget_plans(e);
    e->gpu_passes = e->store->gpu_passes;
    e->remote = e->store->remote;
    e->n_joined = e->store->n_joined;
    return FLEET_OK;
}

/* Inside a merge group all batches use its first one's plan, which has the
 * sums. */
fleet_status fl_executor_plan(fleet_executor *e, int64_t batch, fl_compiled **c)
{
    if (batch > FL_MOST_BATCH)
        return fl_fail(FLEET_EINVAL,
                       "a batch of %" PRId64 ": expected at most %" PRId64,
                       batch, FL_MOST_BATCH);
    FL_TRY(fl_executor_follow_store(e));
    if (e->micro == 0)
        return find_plan(e, batch, c);
    if (e->merged->plan->crew.n > 1)
        return fl_fail(FLEET_ESTATE,
                       "a batch inside a merge group of trainer threads, whose "
                       "pass has not ended");
    *c = e->merged;
    if (batch <= e->merged->plan->batch)
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE,
                   "a batch of %" PRId64 " in a merge group that began with "
                   "%" PRId64 ": set max_batch of the executor's options",
                   batch, e->merged->plan->batch);
}

fl_compiled *fl_executor_prefetch_plan(fleet_executor *e, fl_compiled *c)
{
    bool inside =
        e->training && e->micro + 1 < e->program->training.merge.steps;
    fl_compiled *next;

    if (!e->remote || e->next.batch == 0 || e->next.batch > FL_MOST_BATCH)
        return NULL;
    if (inside)
        return e->next.batch <= c->plan->batch ? c : NULL;
    return find_plan(e, e->next.batch, &next) == FLEET_OK ? next : NULL;
}
