/* executor.c - an executor's life, and one iteration from pull to update. */
#include "runtime/exec/executor.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/device/trace.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/check_shown.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/crew.h"
#include "runtime/exec/find_nonfinite.h"
#include "runtime/exec/localsgd_schedule.h"
#include "runtime/exec/plan_cache.h"
#include "runtime/exec/prefetch.h"
#include "runtime/exec/run.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/remote.h"
#include "runtime/reduce/dgc.h"
#include "runtime/reduce/whole_weights.h"

/* What runs in training without being asked for, as metrics do, and came after
 * the cut, is in no stage. */
static fleet_status check_stage(const fleet_program *p)
{
    const fl_node *late = NULL;
    bool *run;

    if (!p->stage)
        return fl_fail(FLEET_ESTATE,
                       "fleet_executor_create: the program is trained in "
                       "stages, and this process is no trainer of it: a heter "
                       "worker has fleet_run_heter_worker()");
    FL_TRY(FL_NEW(&run, p->n_node + 1));
    fl_program_mark_run(p, p->training.loss, NULL, run);
    for (size_t i = (size_t)p->n_cut; i < p->n_node; i++)
        late = run[i] ? p->node[i] : late;
    fl_free(run);
    return !late ? FLEET_OK
                 : fl_fail(FLEET_ESTATE,
                           "fleet_executor_create: \"%s\" (%s) was added after "
                           "fleet_minimize(), which has cut the program into "
                           "stages, and would not run in training: add it "
                           "before, or to a clone for tests",
                           late->out[0]->name, late->op->name);
}

fleet_executor *fleet_executor_create(fleet_program *p,
                                      const fleet_executor_options *options)
{
    static const fleet_executor_options defaults;
    const fleet_executor_options *o = options ? options : &defaults;
    fleet_status placed;
    fleet_executor *e;

    if (fleet_program_status(p) != FLEET_OK ||
        fl_context_check(p->context) != FLEET_OK)
        return NULL;
    if (o->max_batch < 0 || o->max_batch > FL_MOST_BATCH) {
        fl_fail(FLEET_EINVAL,
                "max_batch: expected 0 to %" PRId64 ", got %" PRId64,
                FL_MOST_BATCH, o->max_batch);
        return NULL;
    }
    p->sealed = true;
    if (p->staged && !o->for_test) {
        if (check_stage(p) != FLEET_OK)
            return NULL;
        p->stage->sealed = true;
        p = p->stage;
    }
    if (fl_store_add(p->store, p) != FLEET_OK ||
        (p->training.loss && !o->for_test &&
         fl_store_train(p->store, p->training.optimizer) != FLEET_OK))
        return NULL;
    e = fl_alloc(sizeof *e);
    if (!e)
        return NULL;
    e->program = p;
    e->context = p->context;
    e->store = p->store;
    e->remote = p->store->remote;
    e->n_joined = p->store->n_joined;
    e->gpu_passes = p->store->gpu_passes;
    e->training = p->training.loss && !o->for_test;
    e->max_batch = o->max_batch;
    e->fetched = fl_alloc(p->n_var);
    e->input = fl_alloc(p->n_var * sizeof *e->input);
    e->current.input = fl_alloc(p->n_var * sizeof *e->input);
    e->next.input = fl_alloc(p->n_var * sizeof *e->input);
    placed = fl_place_of(&p->place, o->place, &e->place);
    e->backend = fl_backend_of(&e->place);
    if (e->training && placed == FLEET_OK)
        placed = fl_executor_find_shown(e);
    if (placed != FLEET_OK || !e->fetched || !e->input || !e->current.input ||
        !e->next.input) {
        fleet_executor_destroy(e);
        return NULL;
    }
    return e;
}

/* In a child process the lock is not its own. */
static void leave_store(fleet_executor *e)
{
    fl_store *s = e->store;

    if (e->context->fork_generation != fl_fork_generation())
        return;
    pthread_rwlock_wrlock(&s->lock);
    if (e->micro > 0) /* its group is given up */
        s->n_flat--;
    if (s->trainer == e)
        s->trainer = NULL;
    pthread_rwlock_unlock(&s->lock);
}

/* A failure that no later call can report. */
static void log_failure(fleet_executor *e)
{
    fl_error before;

    if (e->context->fork_generation != fl_fork_generation())
        return;
    fl_error_take(&before, fleet_last_status());
    fl_error_clear();
    if (e->backend->synchronize(e) != FLEET_OK)
        FL_WARN(&e->context->log, "fleet_executor_destroy: %s",
                fleet_last_error());
    fl_error_clear();
    fl_error_raise(&before);
}

void fleet_executor_destroy(fleet_executor *e)
{
    if (!e)
        return;
    log_failure(e);
    fl_crew_destroy(e->crew);
    leave_store(e);
    fl_executor_forget_plans(e);
    e->backend->destroy(e);
    e->backend->free(e, e->arena);
    fl_place_done(&e->place);
    fl_free(e->fetched);
    fl_free(e->input);
    fl_free(e->shown);
    fl_free(e->current.input);
    fl_free(e->next.input);
    fl_free(e);
}

const fleet_var *fl_executor_own_var(const fleet_executor *e,
                                     const fleet_var *v)
{
    if (!v || v->program == e->program || v->program->stage != e->program)
        return v;
    return v == v->program->training.loss
               ? e->program->training.loss
               : fleet_program_var(e->program, v->name);
}

/* --- an iteration -------------------------------------------------------- */

fleet_status fl_executor_set_update(fleet_executor *e, fl_compiled *c,
                                    fl_update_count batches, bool leaves)
{
    fl_update_now *now;

    if (c->plan->update < 0)
        return FLEET_OK;
    if (e->remote && !e->store->dense_local)
        e->store->updates = e->remote->updates;
    now = fl_compiled_pointer(c, c->plan->update);
    now->optimizer = e->store->optimizer;
    now->micro = e->micro;
    now->leaves = leaves;
    now->joins = e->joins;
    now->alone = fl_localsgd_is_next(e);
    now->skip = false;
    now->loss_scale = 0;
    now->batches = batches.divisor;
    now->density = fl_dgc_density(&e->program->training, e->store->updates);
    fl_optimizer_update(now->optimizer, e->store->updates, batches.divisor,
                        &now->u);
    now->u.mean = 1.0f / (float)batches.all;
    return fl_optimizer_check_rates(now->optimizer, e->store->updates);
}

void fl_executor_set_batch(const fleet_executor *e, fl_compiled *c, int before)
{
    const fl_store *s = e->store;
    int64_t workers = s->workers > 1 ? s->workers : 1;
    fl_update_now *now;

    if (c->plan->update < 0)
        return;
    now = fl_compiled_pointer(c, c->plan->update);
    now->batch = (s->updates * c->plan->group + before) * workers + s->worker;
}

/* Under the store's lock. */
void fl_executor_set_micro(fleet_executor *e, int micro)
{
    e->store->n_flat += (micro > 0) - (e->micro > 0);
    e->micro = micro;
}

/* Of the batches of all ranks. */
static int divisor_of(const fl_training *t, const fl_agreed *all)
{
    if (t->merge.steps == 1 || t->merge.average)
        return t->sum_over_ranks ? all->most : all->batches;
    return t->sum_over_ranks ? all->ranks > 0 : all->ranks;
}

fleet_status fl_executor_count(fleet_executor *e, fl_update_count *batches)
{
    const fl_training *t = &e->program->training;
    fl_agreed agreed = {
        .batches = e->micro, .most = e->micro, .ranks = e->micro > 0};

    if (e->store->agree && !fl_localsgd_is_next(e)) {
        FL_TRY(fl_agree_on(e->store->agree,
                           e->joins ? FL_INTENT_NONE : FL_INTENT_UPDATE,
                           e->micro, &agreed));
        if (agreed.done == FL_INTENT_UPDATE)
            e->store->agree->stops = agreed.stops;
    }
    *batches = (fl_update_count){divisor_of(t, &agreed), agreed.batches};
    return FLEET_OK;
}

static bool was_skipped(const fl_compiled *c)
{
    const fl_update_now *now =
        c->plan->update < 0 ? NULL : fl_compiled_pointer(c, c->plan->update);

    return now && now->skip;
}

/* The backend may find later that the update was skipped: it subtracts it. */
fleet_status fl_executor_end_update(fleet_executor *e, const fl_compiled *c,
                                    fl_compiled *next)
{
    bool skipped = was_skipped(c);

    if (e->remote)
        FL_TRY(fl_executor_finish_update(
            e, next, fl_remote_gets_update(e->store, skipped)));
    if (skipped)
        e->store->known_skips++;
    else if (!e->remote || e->store->dense_local)
        e->store->updates++;
    return FLEET_OK;
}

/* After the agreement gradients may go to other ranks. Until then this rank may
 * have served commands of other ranks, which move what the store keeps. */
static fleet_status agree_on_update(fleet_executor *e, fl_compiled *c)
{
    int64_t began = c->trace ? fl_now_ns() : 0;
    fl_update_count batches;

    FL_TRY(fl_executor_count(e, &batches));
    fl_trace_step(c->trace, "round", 0, began, began ? fl_now_ns() : 0);
    FL_TRY(fl_executor_set_update(e, c, batches, true));
    return e->store->agree ? fl_compiled_map_store(c) : FLEET_OK;
}

/* Before the ranks meet in forward: all of them are in an update then, which
 * fails on all if this rank's batch is found to be bad. */
static fleet_status agree_before_forward(fleet_executor *e, fl_compiled *c,
                                         int64_t batch)
{
    if (!c->plan->prefetches_rows)
        FL_TRY(fl_executor_run_part(e, c, batch, FL_PULL_WAIT));
    fl_executor_set_micro(e, e->micro + 1);
    return agree_on_update(e, c);
}

static fleet_status apply_update(fleet_executor *e, fl_compiled *c,
                                 int64_t batch, fl_compiled *next)
{
    bool alone = fl_localsgd_is_next(e);

    e->store->trainer = e;
    FL_TRY(c->backend->begin_update(e, c));
    FL_TRY(fl_compiled_run(c, e->context, batch, FL_UPDATE));
    FL_TRY(fl_executor_end_update(e, c, next));
    fl_executor_set_micro(e, 0);
    return fl_localsgd_updated(e, c, alone);
}

fleet_status fl_executor_update(fleet_executor *e, fl_compiled *c,
                                int64_t batch, fl_compiled *next)
{
    FL_TRY(agree_on_update(e, c));
    return apply_update(e, c, batch, next);
}

void fl_executor_note_loss(fleet_executor *e, int64_t n_run, int64_t batch,
                           float loss)
{
    e->loss[n_run % FL_LOSSES] = (fl_loss){n_run, (double)loss};
    e->loss_sum += (double)loss * (double)batch;
    e->loss_samples += batch;
}

bool fl_executor_loss_of(const fleet_executor *e, int64_t n_run, double *loss)
{
    const fl_loss *known = &e->loss[n_run % FL_LOSSES];

    *loss = known->loss;
    return known->n_run == n_run;
}

fleet_status fl_executor_take_over(fleet_executor *e)
{
    fleet_executor *before = e->store->trainer;

    return before && before != e ? before->backend->drain(before) : FLEET_OK;
}

/* A metric has met what is not finite: the step that made it is named, if one
 * is found, or else what has failed says why. */
static fleet_status name_nonfinite(const fleet_executor *e, fl_compiled *c,
                                   int64_t batch, fleet_status status)
{
    fl_error why;

    fl_error_take(&why, status);
    FL_TRY(fl_compiled_find_nonfinite(c, batch, e->n_run));
    fl_error_raise(&why);
    return FLEET_OK;
}

fleet_status fl_executor_run_part(fleet_executor *e, fl_compiled *c,
                                  int64_t batch, fl_phase phase)
{
    fleet_status status = fl_compiled_run(c, e->context, batch, phase);

    if (status != FLEET_OK && c->engine == FL_ENGINE_COMM)
        return status; /* of other processes, not the batch's */
    if (status == FLEET_ENUMERIC && e->training)
        FL_TRY(name_nonfinite(e, c, batch, status));
    if (status == FLEET_EINVAL || status == FLEET_ENUMERIC)
        return fl_fail_in(status, "batch %" PRId64, e->n_run);
    return status;
}

/* Ranks agree when this rank's batch is found to be good, and before the first
 * gradients leave; or before forward. */
static fleet_status run_iteration(fleet_executor *e, fl_compiled *c,
                                  int64_t batch, fl_compiled *next)
{
    bool is_last;

    if (e->training)
        FL_TRY(fl_executor_take_over(e));
    FL_TRY(fl_executor_check_shown(e, batch));
    fl_compiled_bind(c, e->input, batch, false);
    FL_TRY(fl_executor_set_update(e, c, FL_ONE_BATCH, false));
    fl_executor_set_batch(e, c, e->micro);
    FL_TRY(c->backend->begin(e, c, batch));
    if (c->plan->prefetches_rows) {
        FL_TRY(fl_executor_run_part(e, c, batch, FL_PULL_WAIT));
        FL_TRY(c->backend->copy_rows(e, c));
    }
    if (c->plan->syncs)
        FL_TRY(agree_before_forward(e, c, batch));
    FL_TRY(fl_executor_run_part(e, c, batch, FL_FORWARD));
    if (c->plan->prefetches_rows)
        FL_TRY(c->backend->prefetch_rows(e, c));
    FL_TRY(c->backend->check(e, c, batch));
    if (!e->training)
        return FLEET_OK;
    if (!c->plan->syncs)
        fl_executor_set_micro(e, e->micro + 1);
    is_last = e->micro == e->program->training.merge.steps;
    if (is_last && !c->plan->syncs)
        FL_TRY(agree_on_update(e, c));
    FL_TRY(fl_executor_run_part(e, c, batch, FL_BACKWARD));
    return is_last ? apply_update(e, c, batch, next) : FLEET_OK;
}

void fl_executor_end_works(const fleet_executor *e, fl_compiled *c)
{
    const fl_agree *r = e->store->agree;

    fl_executor_give_up(e);
    if (r && c->plan->works >= 0)
        fl_comm_end_work(r->comm, fl_compiled_pointer(c, c->plan->works),
                         c->plan->n_work);
}

static fleet_status run_locked(fleet_executor *e, fl_compiled *c, int64_t batch,
                               fl_compiled *next)
{
    fleet_status status = fl_store_check(e->store);

    if (status == FLEET_OK)
        status = fl_executor_check_store(e);
    if (status == FLEET_OK && e->remote)
        status = fl_executor_pull(e, c, batch, next);
    if (status == FLEET_OK)
        status = run_iteration(e, c, batch, next);
    if (status == FLEET_OK)
        status = c->backend->end(
            e, c, batch, e->training && e->micro == 0 && !was_skipped(c));
    if (status != FLEET_OK) {
        fl_executor_end_works(e, c);
        e->backend->abandon(e);
    }
    if (status != FLEET_OK && e->micro > 0)
        fl_executor_set_micro(
            e, 0); /* a merge group ends without an update: its sums may
                          * hold a part of the batch that failed */
    if (!e->remote)
        return status;
    if (status == FLEET_OK)
        fl_executor_pulled(e);
    else
        fl_executor_drop(e);
    return status;
}

/* A batch of no pass would find first values where its rows are at home. */
static fleet_status check_in_pass(const fleet_executor *e)
{
    if (!e->training || !e->store->gpu_passes || e->in_pass)
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE,
                   "a_sync_configs.use_ps_gpu: training is by "
                   "fleet_train_from_dataset() alone, on the dataset of "
                   "fleet_psgpu_set_dataset(), between "
                   "fleet_psgpu_begin_pass() and fleet_psgpu_end_pass()");
}

/* Tests have all weights. */
static fleet_status lock_store(const fleet_executor *e, bool writes)
{
    fl_store *s = e->store;

    if (!e->training)
        return fl_whole_weights_lock(s, writes);
    if (writes)
        pthread_rwlock_wrlock(&s->lock);
    else
        pthread_rwlock_rdlock(&s->lock);
    return FLEET_OK;
}

static fleet_status iterate_planned(fleet_executor *e, int64_t batch)
{
    fl_compiled *c, *next;
    fleet_status status;

    FL_TRY(check_in_pass(e));
    FL_TRY(fl_executor_plan(e, batch, &c));
    next = fl_executor_prefetch_plan(e, c);
    FL_TRY(lock_store(e, c->changes_store || e->remote));
    e->n_run++;
    e->last = e->merged = c;
    e->last_batch = batch;
    status = fl_compiled_map_store(c);
    e->backend->lock(e);
    if (status == FLEET_OK)
        status = run_locked(e, c, batch, next);
    e->backend->unlock(e);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}

void fl_executor_give_up(const fleet_executor *e)
{
    const fl_agree *r = e->store->agree;

    if (r && e->training)
        fl_agree_abort(r, fleet_last_error());
}

fleet_status fl_executor_iterate(fleet_executor *e, int64_t batch)
{
    fleet_status status;

    FL_TRY(fl_context_check(e->context));
    status = iterate_planned(e, batch);
    if (status != FLEET_OK) {
        fl_executor_give_up(e);
        fl_executor_forget(e);
    }
    return status;
}

fleet_status fl_store_synchronize(fl_store *s)
{
    fleet_executor *trainer;

    pthread_rwlock_rdlock(&s->lock);
    trainer = s->trainer;
    pthread_rwlock_unlock(&s->lock);
    return trainer ? trainer->backend->synchronize(trainer) : FLEET_OK;
}

/* What is left of a merge group. */
static fleet_status end_group(fleet_executor *e)
{
    fleet_status status = fl_executor_check_store(e);
    fl_compiled *c = e->merged;

    if (status == FLEET_OK)
        status = fl_compiled_map_store(c);
    e->backend->lock(e);
    if (status == FLEET_OK)
        status = fl_executor_take_over(e);
    if (status == FLEET_OK)
        status = agree_on_update(e, c);
    if (status == FLEET_OK)
        status = fl_compiled_run(c, e->context, e->last_batch, FL_REDUCE_BEGIN);
    if (status == FLEET_OK)
        status = apply_update(e, c, e->last_batch, NULL);
    if (status == FLEET_OK) /* it uses memory of the last iteration */
        status = c->backend->finish_update(e, c);
    if (status != FLEET_OK)
        fl_executor_end_works(e, c);
    e->backend->unlock(e);
    return status;
}

fleet_status fleet_executor_flush(fleet_executor *e)
{
    fleet_status status;

    if (!e)
        return fl_fail(FLEET_EINVAL, "fleet_executor_flush: no executor");
    if (e->micro == 0 && !e->remote && !e->in_flight)
        return FLEET_OK;
    FL_TRY(fl_context_check(e->context));
    fl_executor_forget(e); /* of a version before this update, perhaps */
    status = e->backend->synchronize(e);
    if (e->micro == 0)
        return status;
    pthread_rwlock_wrlock(&e->store->lock);
    if (status == FLEET_OK)
        status = end_group(e);
    fl_executor_set_micro(e, 0);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}
