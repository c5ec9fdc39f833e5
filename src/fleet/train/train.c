/* train.c - passes over a dataset: batches in, steps, log lines. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "fleet/job/inexact.h"
#include "fleet/pass/pass_rows.h"
#include "fleet/job/stop.h"
#include "fleet/job/trail_mark.h"
#include "fleet/train/progress.h"
#include "fleet/train/save_every.h"
#include "fleet/train/slot_bounds.h"
#include "fleet/train/slot_fits.h"
#include "fleet/train/threads_fit.h"
#include "fleet/train/train.h"
#include "runtime/exec/crew.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/expected_rows.h"
#include "runtime/exec/feed_fetch.h"
#include "runtime/exec/prefetch.h"
#include "runtime/exec/plan_cache.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/remote.h"

typedef struct pass {
    fleet_executor *e;
    fleet_dataset *d;
    const fleet_train_options *o;
    fl_observer *observer; /* NULL: none */
    void *observer_arg;
    fl_batch_end *between; /* NULL: none */
    void *between_arg;
    fl_stream *stream;
    int *var;               /* of each slot: the variable it feeds, -1: none */
    fl_slot_bounds *bounds; /* of each slot */
    fl_input *next; /* room for the batch that comes next; NULL: no remote */
    fl_crew *crew;  /* of batches that train at once; NULL: one does */
    fl_progress lines;
    fleet_train_result r;
    int64_t started_ns;
    bool begun; /* there was a batch */
} pass;

/* --- slots and variables ------------------------------------------------- */

static bool is_fed(const pass *p, int var)
{
    const fleet_var *v = p->e->program->var[var];

    for (int i = 0; i < p->d->n_slot; i++)
        if (p->var[i] == (v->weighs ? v->weighs->id : var))
            return true;
    return false;
}

static fleet_status match_slots(pass *p)
{
    const fleet_program *program = p->e->program;

    FL_TRY(FL_NEW(&p->var, (size_t)p->d->n_slot * sizeof *p->var));
    FL_TRY(FL_NEW(&p->bounds, (size_t)p->d->n_slot * sizeof *p->bounds));
    for (int i = 0; i < p->d->n_slot; i++) {
        const fleet_slot *s = &p->d->slots[i];
        const fleet_var *v = fleet_program_var(program, s->name);

        p->var[i] = -1;
        if (!v || v->kind != FL_VAR_DATA)
            continue;
        FL_TRY(fl_slot_fits(s, v));
        p->var[i] = v->id;
    }
    return fl_slot_bounds_find(program, p->var, p->d->n_slot, p->bounds);
}

static fleet_status fail_unfed(const pass *p, const char *var)
{
    for (int i = 0; i < p->d->n_slot; i++)
        if (p->var[i] < 0)
            return fl_fail(FLEET_ENOENT,
                           "no slot of the dataset feeds variable \"%s\"; slot "
                           "\"%s\" feeds none",
                           var, p->d->slots[i].name);
    return fl_fail(FLEET_ENOENT, "no slot of the dataset feeds variable \"%s\"",
                   var);
}

/* Once there is a plan: everything that it reads is fed. */
static fleet_status check_fed(const pass *p, const fl_plan *plan)
{
    const fleet_program *program = p->e->program;

    for (size_t i = 0; i < program->n_var; i++)
        if (program->var[i]->kind == FL_VAR_DATA && plan->value_of[i] >= 0 &&
            !is_fed(p, (int)i))
            return fail_unfed(p, program->var[i]->name);
    return FLEET_OK;
}

/* --- stopping ------------------------------------------------------------ */

/* Workers that make each update together stop after the same one: where one of
 * them wants to. */
static bool stops_together(const pass *p)
{
    const fleet *f = p->d->fleet;
    const fl_store *s = p->e->store;

    return f->role.worker_num > 1 && fl_store_is_shared(s) &&
           !fl_inexact_apart(f);
}

/* Before an update; false for the first one of a pass. */
static void pass_on_wish(const pass *p, bool wanted)
{
    fl_store *s = p->e->store;

    if (s->agree)
        s->agree->wants_stop = wanted;
    else if (s->remote)
        s->remote->wants_stop = wanted;
}

static bool *agreed_stop(const pass *p)
{
    fl_store *s = p->e->store;

    return s->agree ? &s->agree->stops : &s->remote->stops;
}

/* Is the pass to stop, and can it? The sums of a merge group are in no save. */
static bool takes_stop(pass *p)
{
    fleet *f = p->d->fleet;

    if (!p->e->training || p->e->micro > 0 ||
        !(stops_together(p) ? *agreed_stop(p) : fl_stop_wanted(f)))
        return false;
    f->stops_met = fl_stop_count();
    p->r.stopped = 1;
    return true;
}

/* The pass has ended for all workers, and some have stopped it: it goes on with
 * one batch, which the workers that had more of them are at. */
static fleet_status stop_for_all(pass *p)
{
    fleet_dataset *d = p->d;
    double most = (double)d->at.batch;

    d->fleet->stops_met = fl_stop_count();
    p->r.stopped = 1;
    if (!stops_together(p))
        return FLEET_OK;
    FL_TRY(fleet_metrics_max(d->fleet, &most, 1));
    d->at.batch = (int64_t)most;
    return FLEET_OK;
}

/* --- steps --------------------------------------------------------------- */

static void bind_batch(const pass *p, const fl_batch *b, fl_input *input)
{
    for (int i = 0; i < p->d->n_slot; i++) {
        const fl_slot_data *s = &b->slot[i];

        if (p->var[i] < 0)
            continue;
        input[p->var[i]] = (fl_input){s->values, s->offsets};
        if (s->weights)
            input[p->e->program->var[p->var[i]]->weights->id] =
                (fl_input){s->weights, s->offsets};
    }
}

/* The batch after the one that is about to run, whose rows are to travel
 * meanwhile. NULL: there is none, or an error, which is said in its turn. */
static fl_batch *look_ahead(pass *p)
{
    fl_batch *b;

    if (!p->next || fl_stream_next(p->stream, &b) != FLEET_OK)
        return NULL;
    bind_batch(p, b, p->next);
    fl_executor_prefetch(p->e, p->next, b->rows);
    return b;
}

/* Of the pass, also of one that goes on. */
static int64_t batch_number(const pass *p)
{
    return p->e->training ? p->d->at.batch : p->r.batches;
}

static void count_batch(pass *p, int64_t rows)
{
    p->r.batches++;
    p->r.samples += rows;
    if (!p->e->training)
        return;
    p->d->at.batch++;
    p->d->at.samples += rows;
    p->d->last_run = p->e->n_run;
}

/* Before the first batch: there is a plan. */
static fleet_status begin_training(pass *p, const fl_plan *plan)
{
    FL_TRY(check_fed(p, plan));
    if (!p->e->has_passed)
        p->started_ns = fl_now_ns();
    p->e->has_passed = p->begun = true;
    return FLEET_OK;
}

static fleet_status step(pass *p, const fl_batch *b)
{
    fl_compiled *c;

    if (!p->begun) {
        FL_TRY(fl_executor_plan(p->e, b->rows, &c));
        FL_TRY(begin_training(p, c->plan));
    }
    bind_batch(p, b, p->e->input);
    if (p->e->training && stops_together(p))
        pass_on_wish(p, fl_stop_wanted(p->d->fleet));
    FL_TRY(fl_psgpu_batch(p->d->psgpu, p->e, batch_number(p)));
    FL_TRY(fl_executor_iterate(p->e, b->rows));
    count_batch(p, b->rows);
    if (p->observer)
        FL_TRY(p->observer(p->observer_arg, p->e, b));
    return fl_progress_batch(&p->lines, batch_number(p));
}

/* Not where a stop is about to, or in a merge group. */
static fleet_status save_if_due(const pass *p)
{
    fleet *f = p->d->fleet;
    bool due = p->e->training && fl_save_every_due(p->o->save_every, f);

    return due && p->e->micro == 0 && !fl_stop_wanted(f)
               ? fl_save_every_try(p->o->save_every, f)
               : FLEET_OK;
}

/* Run a batch and give it back; *stop: the callback has seen enough. */
static fleet_status finish_batch(pass *p, fl_batch *b, bool *stop)
{
    fleet_status status = step(p, b);
    int64_t samples = b->rows;

    p->d->share = b->share;
    fl_stream_release(p->stream, b);
    FL_TRY(status);
    *stop = p->o->on_batch &&
            p->o->on_batch(p->o->user, batch_number(p), samples) != 0;
    FL_TRY(p->between ? p->between(p->between_arg) : FLEET_OK);
    return *stop ? FLEET_OK : save_if_due(p);
}

static fleet_status run_batches(pass *p)
{
    fl_batch *b = NULL, *next;
    fleet_status status;
    bool stop = takes_stop(p);

    while (!stop) {
        if (!b) {
            status = fl_stream_next(p->stream, &b);
            if (status == FLEET_EEND) /* of the data, or of a wait for them */
                return takes_stop(p), FLEET_OK;
            FL_TRY(status);
        }
        next = look_ahead(p);
        status = finish_batch(p, b, &stop);
        if (status != FLEET_OK) {
            fl_stream_release(p->stream, next);
            return status;
        }
        b = next;
        stop = stop || takes_stop(p);
    }
    fl_stream_release(p->stream, b);
    return FLEET_OK;
}

/* --- rounds of a crew ----------------------------------------------------- */

static fleet_status train_round(pass *p, fl_batch *const *b, int n)
{
    int64_t rows[FL_MOST_MEMBERS], samples = 0;
    const fl_plan *plan;
    fleet_status status;

    for (int i = 0; i < n; i++) {
        rows[i] = b[i]->rows;
        samples += rows[i];
        bind_batch(p, b[i], fl_crew_input(p->crew, i));
    }
    if (!p->begun) {
        FL_TRY(fl_crew_plan(p->crew, rows[0], &plan));
        FL_TRY(begin_training(p, plan));
    }
    if (stops_together(p))
        pass_on_wish(p, fl_stop_wanted(p->d->fleet));
    p->d->round = (fl_round){n, samples};
    status = fl_crew_round(p->crew, rows, n);
    p->d->round = (fl_round){0, 0};
    for (int i = 0; i < n && status == FLEET_OK; i++)
        count_batch(p, rows[i]);
    return status;
}

/* What follows batch i of a round, which is over: all its batches count as
 * trained, whatever the callback does. */
static fleet_status report_batch(pass *p, fl_batch *const *b, int i, int n,
                                 bool *stop)
{
    int64_t number = batch_number(p) - n + i + 1;

    fl_crew_show(p->crew, i);
    p->d->share = b[i]->share;
    FL_TRY(fl_progress_batch(&p->lines, number));
    if (p->o->on_batch && p->o->on_batch(p->o->user, number, b[i]->rows) != 0)
        *stop = true;
    if (i < n - 1 && p->o->save_every) /* counted; it is made behind the last */
        (void)fl_save_every_due(p->o->save_every, p->d->fleet);
    return FLEET_OK;
}

static fleet_status finish_round(pass *p, fl_batch *const *b, int n, bool *stop)
{
    fleet_status status = train_round(p, b, n);

    for (int i = 0; i < n && status == FLEET_OK; i++)
        status = report_batch(p, b, i, n, stop);
    for (int i = 0; i < n; i++)
        fl_stream_release(p->stream, b[i]);
    FL_TRY(status);
    FL_TRY(p->between ? p->between(p->between_arg) : FLEET_OK);
    return *stop ? FLEET_OK : save_if_due(p);
}

/* The batches of a round; *n of them. An error of the stream is said again when
 * it is asked once more: after the batches before it. */
static fleet_status gather_round(pass *p, fl_batch **b, int *n)
{
    fleet_status status = FLEET_OK;

    for (*n = 0; *n < p->d->most_held && status == FLEET_OK; *n += !status) {
        p->d->in_round = *n;
        status = fl_stream_next(p->stream, &b[*n]);
    }
    p->d->in_round = 0;
    return *n > 0 ? FLEET_OK : status;
}

static fleet_status run_rounds(pass *p)
{
    fl_batch *b[FL_MOST_MEMBERS];
    bool stop = takes_stop(p);
    fleet_status status;
    int n;

    while (!stop) {
        status = gather_round(p, b, &n);
        if (status == FLEET_EEND) /* of the data, or of a wait for them */
            return takes_stop(p), FLEET_OK;
        FL_TRY(status);
        FL_TRY(finish_round(p, b, n, &stop));
        stop = stop || takes_stop(p);
    }
    return FLEET_OK;
}

/* A pass ends for all workers together. */
static fleet_status end_pass(pass *p)
{
    double sum[] = {(double)p->r.batches, (double)p->r.samples, 0,
                    (double)p->r.stopped, 0};

    FL_TRY(fleet_executor_flush(p->e));
    FL_TRY(fl_progress_late(&p->lines)); /* all iterations are over now */
    p->r.loss = sum[2] = p->e->loss_sum;
    p->r.bad_lines = p->stream ? fl_stream_bad_lines(p->stream) : 0;
    sum[4] = (double)p->r.bad_lines;
    if (!p->e->training || !fl_store_is_shared(p->e->store))
        return FLEET_OK;
    FL_TRY(fl_executor_end_pass(p->e, sum, 5));
    p->r.batches = (int64_t)sum[0];
    p->r.samples = (int64_t)sum[1];
    p->r.loss = sum[2];
    p->r.bad_lines = (int64_t)sum[4];
    return sum[3] > 0 ? stop_for_all(p) : FLEET_OK;
}

static fleet_status open_pass(pass *p)
{
    if (p->e->max_batch < p->d->options.batch_size)
        p->e->max_batch = p->d->options.batch_size;
    for (int i = 0; i < p->o->n_fetch; i++)
        FL_TRY(fl_executor_want(p->e, p->o->fetch_list[i]));
    if (!p->e->training && p->e->program->training.loss)
        FL_TRY(fl_executor_want(p->e, p->e->program->training.loss));
    FL_TRY(fl_threads_open(p->d, p->e, p->o, &p->crew));
    FL_TRY(match_slots(p)); /* which says what the stream is to check */
    p->d->stops = p->e->training;
    FL_TRY(fl_dataset_open(p->d, p->e->training, p->bounds, &p->stream));
    memset(p->e->input, 0, p->e->program->n_var * sizeof *p->e->input);
    if (p->e->store->remote ||
        (!p->e->store->gpu_passes && fl_program_expects(p->e->program)))
        FL_TRY(FL_NEW(&p->next, p->e->program->n_var * sizeof *p->next));
    return p->e->training ? FLEET_OK : fl_executor_refresh(p->e);
}

/* Where a pass that was stopped is. In a job the sums are of all workers, and
 * what they were of before is not known. */
static void begin_position(pass *p)
{
    fleet_dataset *d = p->d;

    if (!p->e->training)
        return;
    d->trainer = p->e;
    p->r.pass = d->at.pass;
    if (stops_together(p)) { /* until its first update none has agreed */
        pass_on_wish(p, false);
        *agreed_stop(p) = false;
    }
    if (d->at.batch == 0 || fl_store_is_shared(p->e->store))
        return;
    p->r.batches = d->at.batch;
    p->r.samples = p->e->loss_samples = d->at.samples;
    p->e->loss_sum = d->at.loss_sum;
}

/* What a process before this one has added up in a job's pass counts, too. */
static fleet_status run_rest(pass *p)
{
    FL_TRY(p->e->training ? fl_trail_mark_begin(p->d, p->e) : FLEET_OK);
    if (p->e->training && fl_store_is_shared(p->e->store)) {
        p->r.batches = p->d->at.batch - p->d->from_batch;
        p->r.samples = p->d->at.samples - p->d->from_samples;
    }
    if (!p->stream) /* it was stopped before there was one */
        return FLEET_OK;
    if (p->e->training)
        FL_TRY(fl_psgpu_enter(p->d->psgpu, p->e));
    return p->crew ? run_rounds(p) : run_batches(p);
}

/* A pass that fails is over, too. */
static void end_position(pass *p)
{
    fleet_dataset *d = p->d;

    d->stops = false;
    if (!p->e->training || !d->trainer)
        return;
    d->trainer = NULL;
    p->r.batch = d->at.batch;
    d->at.loss_sum = p->e->loss_sum;
    if (!p->r.stopped)
        d->at = (fl_position){.pass = d->at.pass + 1, .last_loss = p->r.loss};
}

static fleet_status run_pass(pass *p, fleet_train_result *result)
{
    static const fleet_train_options defaults;
    fleet_optimizer *trains =
        p->e->training ? p->e->program->training.optimizer : NULL;
    fleet_status status;

    if (!p->o)
        p->o = &defaults;
    if (trains)
        trains->passes++;
    p->lines = (fl_progress){.e = p->e, .o = p->o};
    p->started_ns = fl_now_ns();
    p->e->loss_sum = 0;
    p->e->loss_samples = 0;
    status = open_pass(p);
    if (status == FLEET_EEND && takes_stop(p)) /* caches are made, for one */
        status = FLEET_OK;
    if (status == FLEET_OK) {
        begin_position(p);
        status = run_rest(p);
        p->r.loss = p->e->loss_sum; /* so far */
        if (status == FLEET_OK)
            status = end_pass(p);
        fl_executor_forget(p->e); /* the batches go */
    }
    p->e->in_pass = false;
    fl_psgpu_leave(p->d->psgpu);
    if (p->crew)
        fl_crew_rest(p->crew);
    if (p->r.batches > 0)
        p->r.seconds = (double)(fl_now_ns() - p->started_ns) * 1e-9;
    if (p->r.samples > 0)
        p->r.loss /= (double)p->r.samples;
    else if (p->e->training && p->d->at.batch > 0 && !p->r.stopped)
        p->r.loss = (double)NAN; /* that of other workers is in no save */
    else if (status == FLEET_OK && !p->r.stopped)
        FL_WARN(&p->e->context->log, "no sample in the files of this pass");
    if (status != FLEET_OK) {
        p->r.stopped = 0;
        fl_executor_give_up(p->e);
    }
    end_position(p);
    fl_stream_close(p->stream);
    fl_free(p->var);
    fl_free(p->bounds);
    fl_free(p->next);
    fl_progress_close(&p->lines);
    if (trains)
        trains->passes--;
    if (p->r.stopped)
        status = fl_save_every_write(p->o->save_every, p->d->fleet);
    if (result)
        *result = p->r;
    return status;
}

static fleet_status check_pass(const fleet_executor *e, const fleet_dataset *d,
                               const fleet_train_options *o, const char *call)
{
    if (!e || !d)
        return fl_fail(FLEET_EINVAL, "%s: no executor or no dataset", call);
    if (o && (o->n_fetch < 0 || (o->n_fetch > 0 && !o->fetch_list) ||
              o->print_period < 0))
        return fl_fail(FLEET_EINVAL,
                       "%s: n_fetch %d or print_period %lld is not possible",
                       call, o->n_fetch, (long long)o->print_period);
    if (o && o->save_every)
        FL_TRY(fl_save_every_check(o->save_every, d->fleet));
    if (o)
        FL_TRY(fl_crew_check_size(o->thread, call));
    return fl_context_check(e->context);
}

fleet_status fl_train_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_batch_end *between, void *arg,
                           fleet_train_result *result)
{
    pass p = {
        .e = e, .d = d, .o = options, .between = between, .between_arg = arg};

    FL_TRY(check_pass(e, d, options, "fleet_train_from_dataset"));
    if (!e->training)
        return fl_fail(FLEET_ESTATE,
                       "fleet_train_from_dataset: the executor "
                       "does not train: %s",
                       e->program->training.loss ? "it is for test"
                                                 : "call fleet_minimize()");
    return run_pass(&p, result);
}

fleet_status fleet_train_from_dataset(fleet_executor *e, fleet_dataset *d,
                                      const fleet_train_options *options,
                                      fleet_train_result *result)
{
    return fl_train_pass(e, d, options, NULL, NULL, result);
}

static fleet_status infer(pass *p, fleet_train_result *result)
{
    FL_TRY(check_pass(p->e, p->d, p->o, "fleet_infer_from_dataset"));
    if (p->e->training)
        return fl_fail(FLEET_ESTATE, "fleet_infer_from_dataset: the executor "
                                     "trains: make one with for_test");
    if (p->o && p->o->thread > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_infer_from_dataset: thread %d: trainer threads "
                       "are for training",
                       p->o->thread);
    return run_pass(p, result);
}

fleet_status fleet_infer_from_dataset(fleet_executor *e, fleet_dataset *d,
                                      const fleet_train_options *options,
                                      fleet_train_result *result)
{
    return infer(&(pass){.e = e, .d = d, .o = options}, result);
}

fleet_status fl_infer_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_observer *observer, void *arg,
                           fleet_train_result *result)
{
    return infer(&(pass){.e = e,
                         .d = d,
                         .o = options,
                         .observer = observer,
                         .observer_arg = arg},
                 result);
}
