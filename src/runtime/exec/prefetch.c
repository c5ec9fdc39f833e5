/* prefetch.c - pulls of an executor: this iteration's, and the one that is made
 * for the next iteration while this one is computed, or in sync while its
 * update is made.
 *
 * The exchange has two slots, and so has every plan whatever its pulls write.
 * Between iterations at most one slot is taken, by an iteration to come: so
 * there is always one for whoever comes first, and a pull ahead is made where
 * the other one is free, too.
 *
 * Rows of a pull ahead that come while a GPU computes are copied there
 * meanwhile. Nobody waits for them longer than for the GPU: those that are late
 * are copied when their own iteration begins.
 */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/plan/remote.h"
#include "runtime/plan/agree.h"
#include "runtime/exec/gpu_plan.h"

static size_t size_of_input(const fleet_executor *e)
{
    return e->program->n_var * sizeof *e->input;
}

void fl_executor_prefetch(fleet_executor *e, const fl_input *input,
                          int64_t batch)
{
    if (!e->store->remote)
        return;
    memcpy(e->next.input, input, size_of_input(e));
    e->next.batch = batch;
}

static void give_back(fl_remote *x, fl_pulled *p)
{
    if (p->c && p->slot >= 0)
        x->taken[p->slot] = false;
    p->c = NULL;
    p->batch = 0;
}

/* An exchange that has gone has forgotten everything. */
static void drop(const fleet_executor *e, fl_pulled *p)
{
    fl_remote *x = e->remote;

    if (x && x == e->store->remote) {
        if (p->c && p->slot >= 0)
            x->methods->drop(x, p->slot);
        give_back(x, p);
    }
    p->c = NULL;
    p->batch = 0;
}

void fl_executor_drop(fleet_executor *e)
{
    drop(e, &e->current);
    drop(e, &e->next);
}

/* In a child process neither the lock nor the exchange is ours. */
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
static fleet_status run_pull(fleet_executor *e, fl_pulled *p, bool ahead)
{
    fl_compiled *c = p->c;
    fl_pull_now *now;

    fl_compiled_slot(c, p->slot);
    now = fl_compiled_pointer(c, c->plan->pull);
    *now = (fl_pull_now){p->slot, ahead};
    fl_compiled_bind(c, p->input, p->batch, true);
    FL_TRY(fl_compiled_begin(c, p->batch, true));
    return fl_compiled_run(c, e->context, p->batch, FL_PULL);
}

static fleet_status pull(fleet_executor *e, fl_pulled *p, fl_compiled *c,
                         bool ahead)
{
    p->slot = p->gpu_slot = -1;
    if (c->plan->pull >= 0 && !take_slot(e->remote, &p->slot))
        return fl_fail(FLEET_ESTATE, "%d pulls are under way already",
                       (int)FL_N_SLOT);
    p->c = c;
    p->version = e->remote->updates + ahead;
    return p->slot >= 0 ? run_pull(e, p, ahead) : FLEET_OK;
}

/* Is it the pull for this batch, and of what there is now? */
static bool serves(const fleet_executor *e, const fl_pulled *p,
                   const fl_compiled *c, int64_t batch)
{
    const fl_remote *x = e->remote;

    return p->c == c && p->batch == batch &&
           memcmp(p->input, e->input, size_of_input(e)) == 0 &&
           (!e->training || !x->sync || p->version == x->updates);
}

static fleet_status pull_here(fleet_executor *e, fl_compiled *c, int64_t batch)
{
    if (serves(e, &e->current, c, batch))
        return FLEET_OK;
    drop(e, &e->current);
    memcpy(e->current.input, e->input, size_of_input(e));
    e->current.batch = batch;
    return pull(e, &e->current, c, false);
}

static bool ends_group(const fleet_executor *e)
{
    return e->training && e->micro + 1 >= e->program->training.merge.steps;
}

/* Its own iteration asks again where this fails. */
static void pull_next(fleet_executor *e, fl_compiled *next, bool ahead)
{
    if (next && pull(e, &e->next, next, ahead) != FLEET_OK)
        drop(e, &e->next);
}

fleet_status fl_executor_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                              fl_compiled *next)
{
    bool push = ends_group(e);

    FL_TRY(pull_here(e, c, batch));
    if (!push || !e->remote->sync)
        pull_next(e, next, push);
    if (e->current.slot >= 0)
        fl_compiled_slot(c, e->current.slot);
    return FLEET_OK;
}

/* --- rows for a GPU ------------------------------------------------------ */

static fleet_status send_rows(fleet_executor *e, fl_pulled *p, int there)
{
    fl_compiled_slot(p->c, p->slot);
    FL_TRY(fl_gpu_plan_begin_rows(p->c, there));
    FL_TRY(fl_compiled_run(p->c, e->context, p->batch, FL_PREFETCH));
    p->gpu_slot = there;
    return FLEET_OK;
}

fleet_status fl_executor_wait_rows(fleet_executor *e, fl_compiled *c)
{
    if (e->current.gpu_slot == c->gpu->slot)
        return FLEET_OK;
    FL_TRY(send_rows(e, &e->current, c->gpu->slot));
    return fl_in_flight_fed(e, c);
}

/* For as long as the GPU computes, and no longer: its gradients are waited for
 * by others. */
static fleet_status wait_for_rows(const fleet_executor *e, bool *came)
{
    const struct timespec pause = {0, 20000};
    fl_gpu *g = e->place.gpu;
    fl_remote *x = e->remote;
    int64_t end = fl_now_ms() + g->deadline_ms;
    bool done = !g->copying;

    for (;;) {
        *came = x->methods->came(x, e->next.slot);
        if (*came || done || fl_now_ms() > end)
            return FLEET_OK;
        nanosleep(&pause, NULL);
        FL_TRY(g->m->event_done(g->d, g->copied, &done));
    }
}

/* Its own iteration does it where this fails. */
static void send_next(fleet_executor *e)
{
    int there;

    if (fl_in_flight_next(e, &there) != FLEET_OK ||
        send_rows(e, &e->next, there) != FLEET_OK)
        drop(e, &e->next);
}

fleet_status fl_executor_prefetch_rows(fleet_executor *e, fl_compiled *c)
{
    const fl_pulled *next = &e->next;
    bool came;

    if (!next->c || !next->c->plan->prefetches_rows ||
        !e->remote->methods->came)
        return FLEET_OK;
    FL_TRY(fl_gpu_plan_queue(c));
    FL_TRY(wait_for_rows(e, &came));
    if (came)
        send_next(e);
    fl_compiled_slot(c, e->current.slot);
    return FLEET_OK;
}

/* Where dense parameters are the exchange's, so is their count. */
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
    status = pushed ? x->methods->wait_update(x) : FLEET_OK;
    follow_updates(e, x);
    return status;
}

void fl_executor_pulled(fleet_executor *e)
{
    fl_pulled done = e->current;

    give_back(e->remote, &done);
    e->current = e->next;
    e->next = done;
}

/* --- passes -------------------------------------------------------------- */

/* Nobody trains any more: what is left is to add up. */
static fleet_status add_over_ranks(const fl_agree *r, double *sum, int n)
{
    return r->comm->methods->all_reduce(r->comm, FL_ALL_SUM, FL_WIRE_F64, sum,
                                        sum, n, NULL);
}

fleet_status fl_executor_end_pass(fleet_executor *e, double *sum, int n)
{
    fl_remote *x = e->store->remote;
    fleet_status status;

    if (e->store->agree)
        FL_TRY(fl_executor_join(e));
    if (!x)
        return e->store->agree ? add_over_ranks(e->store->agree, sum, n)
                               : FLEET_OK;
    pthread_rwlock_wrlock(&e->store->lock);
    fl_executor_drop(e);
    status = x->methods->end_pass(x, sum, n);
    follow_updates(e, x);
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
    status = fl_store_here(e->store);
    if (status == FLEET_OK) {
        status = x->methods->refresh(x);
        fl_store_written(e->store);
    }
    follow_updates(e, x);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}
