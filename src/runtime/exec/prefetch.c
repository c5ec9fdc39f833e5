/* prefetch.c - pulls of an executor: this iteration's, and the one that is made
 * for the next iteration while this one is computed, or in sync while its
 * update is made.
 *
 * The remote store has two slots, and so has every plan for what its pulls
 * write. Between iterations at most one slot is taken, by an iteration to come:
 * so one is always free for the next pull, and a prefetch is made if the other
 * one is free, too.
 *
 * The backend may copy prefetched rows before their iteration begins
 * (gpu_prefetch.c).
 */
#include "runtime/exec/prefetch.h"

#include <string.h>

#include "base/thread.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/expected_rows.h"
#include "runtime/exec/run.h"
#include "runtime/exec/uneven_ranks.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/remote.h"

static size_t size_of_input(const fleet_executor *e)
{
    return e->program->n_var * sizeof *e->input;
}

void fl_executor_prefetch(fleet_executor *e, const fl_input *input,
                          int64_t batch)
{
    if (!e->store->remote) {
        pthread_rwlock_rdlock(&e->store->lock);
        fl_expect_rows(e->program, e->store, input, batch);
        pthread_rwlock_unlock(&e->store->lock);
        return;
    }
    memcpy(e->next.input, input, size_of_input(e));
    e->next.batch = batch;
}

static void free_slot(fl_remote *x, fl_pulled *p)
{
    if (p->c && p->slot >= 0)
        x->taken[p->slot] = false;
    p->c = NULL;
    p->batch = 0;
}

/* A remote store that was left has dropped everything. */
void fl_executor_drop_pull(const fleet_executor *e, fl_pulled *p)
{
    fl_remote *x = e->remote;

    if (x && x == e->store->remote) {
        if (p->c && p->slot >= 0)
            x->methods->drop(x, p->slot);
        free_slot(x, p);
    }
    p->c = NULL;
    p->batch = 0;
}

void fl_executor_drop(fleet_executor *e)
{
    fl_executor_drop_pull(e, &e->current);
    fl_executor_drop_pull(e, &e->next);
}

/* In a child process neither the lock nor the remote store is its own. */
void fl_executor_forget(fleet_executor *e)
{
    if (!e->remote || e->context->fork_generation != fl_fork_generation())
        return;
    pthread_rwlock_wrlock(&e->store->lock);
    fl_executor_drop(e);
    pthread_rwlock_unlock(&e->store->lock);
}

static bool take_slot(fl_remote *x, int *slot)
{
    for (*slot = 0; *slot < FL_N_SLOT; ++*slot)
        if (!x->taken[*slot])
            return x->taken[*slot] = true;
    return false;
}

/* Into a slot that is taken already, if the plan asks for anything. */
static fleet_status run_pull(fleet_executor *e, fl_pulled *p, bool prefetches)
{
    fl_compiled *c = p->c;
    fl_pull_now *now;

    fl_compiled_slot(c, p->slot);
    now = fl_compiled_pointer(c, c->plan->pull);
    *now = (fl_pull_now){.slot = p->slot, .prefetches = prefetches};
    fl_compiled_bind(c, p->input, p->batch, true);
    FL_TRY(fl_compiled_begin(c, p->batch, true));
    return fl_compiled_run(c, e->context, p->batch, FL_PULL);
}

static fleet_status pull_batch(fleet_executor *e, fl_pulled *p, fl_compiled *c,
                               bool prefetches)
{
    p->slot = p->copied_to = -1;
    if (c->plan->pull >= 0 && !take_slot(e->remote, &p->slot))
        return fl_fail(FLEET_ESTATE, "%d pulls are under way already",
                       (int)FL_N_SLOT);
    p->c = c;
    p->version = e->remote->updates + prefetches;
    return p->slot >= 0 ? run_pull(e, p, prefetches) : FLEET_OK;
}

/* Is it the pull for this batch, and of what there is now? */
static bool is_pull_for(const fleet_executor *e, const fl_pulled *p,
                        const fl_compiled *c, int64_t batch)
{
    const fl_remote *x = e->remote;

    return p->c == c && p->batch == batch &&
           memcmp(p->input, e->input, size_of_input(e)) == 0 &&
           (!e->training || !x->sync || p->version == x->updates);
}

static fleet_status pull_current(fleet_executor *e, fl_compiled *c,
                                 int64_t batch)
{
    if (is_pull_for(e, &e->current, c, batch))
        return FLEET_OK;
    fl_executor_drop_pull(e, &e->current);
    memcpy(e->current.input, e->input, size_of_input(e));
    e->current.batch = batch;
    return pull_batch(e, &e->current, c, false);
}

/* A pull that fails is made again by its own iteration. */
static void pull_next(fleet_executor *e, fl_compiled *next, bool prefetches)
{
    if (next && pull_batch(e, &e->next, next, prefetches) != FLEET_OK)
        fl_executor_drop_pull(e, &e->next);
}

fleet_status fl_executor_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                              fl_compiled *next)
{
    bool push = e->training && e->micro + 1 >= e->program->training.merge.steps;

    FL_TRY(pull_current(e, c, batch));
    if (!push || !e->remote->sync)
        pull_next(e, next, push);
    if (e->current.slot >= 0)
        fl_compiled_slot(c, e->current.slot);
    return FLEET_OK;
}

/* Remote dense parameters are counted remotely, too. */
static void follow_updates(fleet_executor *e, const fl_remote *x)
{
    if (!e->store->dense_local)
        e->store->updates = x->updates;
}

fleet_status fl_executor_finish_update(fleet_executor *e, fl_compiled *next,
                                       bool pushed)
{
    fl_remote *x = e->remote;
    fleet_status status;

    if (x->sync)
        pull_next(e, next, pushed);
    if (x->sync && next && next == e->last) /* fetches are of this batch */
        fl_compiled_bind(e->last, e->input, e->last_batch, true);
    status = pushed ? x->methods->wait_update(x) : FLEET_OK;
    follow_updates(e, x);
    return status;
}

void fl_executor_pulled(fleet_executor *e)
{
    fl_pulled done = e->current;

    free_slot(e->remote, &done);
    e->current = e->next;
    e->next = done;
}

/* --- members of a crew ---------------------------------------------------- */

static bool pulls(const fleet_executor *e, const fl_compiled *c)
{
    return e->remote && c->plan->pull >= 0;
}

fleet_status fl_member_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                            int i)
{
    fl_pull_now *now;

    if (!pulls(e, c))
        return FLEET_OK;
    now = fl_compiled_pointer(c, c->plan->pull);
    *now = (fl_pull_now){.slot = FL_N_SLOT + i, .rows_alone = i > 0};
    fl_compiled_bind(c, e->input, batch, true);
    FL_TRY(fl_compiled_begin(c, batch, true));
    return fl_executor_run_part(e, c, batch, FL_PULL);
}

fleet_status fl_member_wait_pull(fleet_executor *e, fl_compiled *c,
                                 int64_t batch)
{
    return pulls(e, c) ? fl_executor_run_part(e, c, batch, FL_PULL_WAIT)
                       : FLEET_OK;
}

void fl_member_drop_pull(const fleet_executor *e, const fl_compiled *c, int i)
{
    if (pulls(e, c) && e->remote == e->store->remote)
        e->remote->methods->drop(e->remote, FL_N_SLOT + i);
}

/* --- passes -------------------------------------------------------------- */

typedef struct pass_sums {
    fleet_executor *e;
    double *sum;
    int n;
} pass_sums;

/* Under the store's lock. */
static fleet_status add_sums(void *arg)
{
    const pass_sums *p = arg;
    fleet_executor *e = p->e;
    fl_remote *x = e->store->remote;
    fl_comm *ranks = e->store->agree ? e->store->agree->comm : NULL;
    fleet_status status;

    if (!x)
        return ranks->methods->all_reduce(ranks, FL_ALL_SUM, FL_WIRE_F64,
                                          p->sum, p->sum, p->n, NULL);
    fl_executor_drop(e);
    status = x->methods->end_pass(x, p->sum, p->n);
    follow_updates(e, x);
    return status;
}

fleet_status fl_executor_end_pass(fleet_executor *e, double *sum, int n)
{
    pass_sums p = {e, sum, n};
    fleet_status status;

    if (e->store->agree) /* afterwards no rank trains any more */
        return fl_executor_join(e, add_sums, &p);
    if (!e->store->remote)
        return FLEET_OK;
    pthread_rwlock_wrlock(&e->store->lock);
    status = add_sums(&p);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}

fleet_status fl_executor_catch_up(fleet_executor *e)
{
    const fl_remote *x = e->store->remote;
    fleet_status status = FLEET_OK;
    bool behind;

    if (e->training || !x)
        return FLEET_OK;
    pthread_rwlock_rdlock(&e->store->lock);
    behind = x->behind;
    pthread_rwlock_unlock(&e->store->lock);
    if (!behind)
        return FLEET_OK;
    pthread_rwlock_wrlock(&e->store->lock);
    status = fl_remote_catch_up(e->store);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}

fleet_status fl_executor_refresh(fleet_executor *e)
{
    fl_remote *x = e->store->remote;
    fleet_status status;

    if (!x)
        return FLEET_OK;
    pthread_rwlock_wrlock(&e->store->lock);
    status = fl_store_to_host(e->store);
    if (status == FLEET_OK) {
        status = x->methods->refresh(x);
        fl_store_written(e->store);
    }
    follow_updates(e, x);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}
