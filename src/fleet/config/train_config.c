/* train_config.c - fleet_train_from_config(): what a configuration says,
 * done. */
#include "fleet/config/train_config.h"

#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/config/models.h"
#include "fleet/config/run_histograms.h"
#include "fleet/config/run_lines.h"
#include "fleet/config/run_state.h"
#include "fleet/config/validation.h"
#include "fleet/job/dataset.h"
#include "fleet/job/stop.h"
#include "fleet/role/scheduler_env.h"
#include "fleet/save/save.h"
#include "fleet/table/table_modes.h"
#include "fleet/train/save_every.h"
#include "fleet/train/train.h"
#include "fleet/checkpoint.h"
#include "fleet/servers.h"
#include "runtime/exec/executor.h"

/* --- training ------------------------------------------------------------ */

/* share: of this epoch that is done. */
static void say_progress(fl_config_run *t, double share)
{
    const fleet_executor *e = t->trainer;
    int64_t now = fl_now_ns();
    double seconds = (double)(now - t->started_ns) * 1e-9;
    fleet_progress p = {.epoch = t->epoch, .epochs = t->c->epochs};

    t->last_ns = now;
    p.validation = t->seen.newest.samples > 0 ? &t->seen.newest : NULL;
    p.samples = t->epoch_samples;
    p.loss = e->loss_samples > 0 ? e->loss_sum / (double)e->loss_samples
                                 : (double)NAN;
    p.samples_per_s = (double)(t->before + p.samples - t->skipped) / seconds;
    p.done = ((double)(t->epoch - 1) + share) / (double)p.epochs;
    if (isnan(t->done_before))
        t->done_before = p.done;
    p.seconds_left = p.done > t->done_before
                         ? seconds * (1 - p.done) / (p.done - t->done_before)
                         : (double)NAN;
    t->o->on_progress(t->o->user, &p);
}

static int on_batch(void *user, int64_t batch, int64_t samples)
{
    fl_config_run *t = user;

    (void)batch;
    t->epoch_samples += samples;
    t->seen.step++;
    fl_run_histograms_note(t);
    t->seen.samples += samples;
    t->seen.since++;
    if (t->o->on_progress && fl_now_ns() - t->last_ns >= 500000000)
        say_progress(t, t->train->share);
    return 0;
}

static fleet_status validate(fl_config_run *t, double share)
{
    int64_t began_ns = fl_now_ns();
    double seconds;

    FL_TRY(fl_validation_run(t));
    seconds = (double)(fl_now_ns() - began_ns) * 1e-9;
    t->validated_s += seconds;
    t->line_validated_s += seconds;
    if (t->o->on_progress)
        say_progress(t, share);
    return FLEET_OK;
}

static fleet_status between_batches(void *user)
{
    fl_config_run *t = user;
    const bool validates = fl_validation_due(t);

    if (validates)
        FL_TRY(validate(t, t->train->share));
    if (validates || fl_run_lines_due(t))
        FL_TRY(fl_run_lines_add(t, validates));
    return fl_run_histograms_add(t);
}

static fleet_status note_seen(fl_config_run *t)
{
    FL_TRY(fl_run_state_put(t));
    fl_metric_log_flush(&t->lines); /* which the checkpoint counts */
    fl_event_log_flush(&t->events);
    return FLEET_OK;
}

static fleet_status save_checkpoint(void *user, fleet *f, const char *path)
{
    fl_config_run *t = user;

    FL_TRY(note_seen(t));
    return fl_checkpoint_save(f, path, &(fl_scored){&t->model, t->train},
                              FLEET_SAVE_ALL);
}

static fleet_status save_model(fl_config_run *t)
{
    FL_TRY(note_seen(t));
    return fl_save_in_mode(t->f, t->c->save, &(fl_scored){&t->model, t->train},
                           t->c->save_mode);
}

/* A save that the training begins with, from its first pass on, has reports of
 * another one. */
static int64_t reports_before(const fl_config_run *t, int64_t passes)
{
    const fleet_optimizer *o = t->program->training.optimizer;
    int64_t reports = o->plateau.seen.reports;

    return reports > passes ? reports - passes : 0;
}

/* A job that goes on behind the last batch of a pass does not know what the
 * processes before it have added up. */
static void report_nothing(const fl_config_run *t, int64_t passes)
{
    FL_WARN(&t->f->context.log,
            "the loss of pass %lld is not known, as the job goes on behind its "
            "last batch: the plateau does without it",
            (long long)passes);
    fl_plateau_pass_by(&t->program->training.optimizer->plateau);
}

/* The pass is over: its loss is that of all workers. One that a training has
 * gone on behind, from its last batch, may have been reported. */
static fleet_status report_loss(const fl_config_run *t, int64_t passes)
{
    fleet_optimizer *o = t->program->training.optimizer;
    int reduced = 0;
    float rate;

    if (!o->plateau.on || o->plateau.seen.reports - t->reported >= passes)
        return FLEET_OK;
    if (isnan(t->r.loss)) {
        report_nothing(t, passes);
        return FLEET_OK;
    }
    FL_TRY(fleet_optimizer_report_metric(o, t->r.loss, &reduced));
    FL_TRY(fleet_optimizer_get_learning_rate(o, &rate));
    if (reduced)
        FL_INFO(&t->f->context.log,
                "the loss of %lld passes has not improved: the learning rate "
                "is %g",
                (long long)o->plateau.is.patience + 1, (double)rate);
    return FLEET_OK;
}

static fleet_status note_stop(const fl_config_run *t)
{
    FL_WARN(&t->f->context.log, "stopped in epoch %lld after batch %lld; %s%s",
            (long long)t->epoch, (long long)t->r.batch,
            t->every.folder ? "--resume goes on from "
                            : "there is no `save`: nothing is saved",
            t->every.folder ? t->every.folder : "");
    return FLEET_OK;
}

/* A pass is over, for all workers. */
static fleet_status after_pass(fl_config_run *t)
{
    const bool validates = t->validated && t->c->validate_steps == 0;

    FL_TRY(report_loss(t, t->epoch));
    FL_TRY(fleet_shrink(t->f, NULL));
    if (t->o->on_progress)
        say_progress(t, 1);
    if (validates)
        FL_TRY(validate(t, 1));
    return validates || t->seen.step > t->seen.line.step
               ? fl_run_lines_add(t, validates)
               : FLEET_OK;
}

/* What a checkpoint has of the training that goes on from it. */
static fleet_status begin_watching(fl_config_run *t)
{
    bool known;

    FL_TRY(fl_run_state_take(t, &known));
    FL_TRY(fl_validation_go_on(t, known));
    t->trains = t->train->at.pass < t->c->epochs && !fl_validation_is_over(t);
    return fl_run_lines_open(t);
}

/* What is left of a pass, which ends early. */
static fleet_status end_early(fl_config_run *t)
{
    t->r.stopped = 0;
    return t->seen.step > t->seen.line.step ? fl_run_lines_add(t, false)
                                            : FLEET_OK;
}

/* *ends: it is the last one, as it was stopped, by a signal or early. */
static fleet_status train_epoch(fl_config_run *t, const fleet_train_options *o,
                                bool *ends)
{
    const bool goes_on = t->train->at.batch > 0;
    int64_t before;

    t->epoch_samples = t->train->at.samples;
    t->skipped += t->epoch_samples;
    t->validated_s = 0;
    FL_TRY(fl_run_memory_shuffle(t));
    fl_run_lines_begin_pass(t);
    before = fl_store_is_shared(t->trainer->store) ? 0 : t->epoch_samples;
    FL_TRY(fl_run_begin_pass(t));
    FL_TRY(fl_train_pass(t->trainer, t->train, o, between_batches, t, &t->r));
    FL_TRY(fl_run_end_pass(t));
    if (t->r.samples == 0 && !goes_on && !t->r.stopped)
        return fl_fail(FLEET_EEND,
                       "dataset.train: the files have no sample for worker "
                       "%d of %d",
                       fleet_worker_index(t->f), fleet_worker_num(t->f));
    t->trained_s += t->r.seconds - t->validated_s;
    if (!t->r.stopped)
        FL_TRY(after_pass(t));
    FL_TRY(fl_validation_agree(t, ends));
    if (t->r.stopped && !*ends) {
        *ends = true;
        return note_stop(t);
    }
    if (t->r.stopped)
        FL_TRY(end_early(t));
    t->before += t->epoch_samples;
    t->trained += t->r.samples - before;
    return FLEET_OK;
}

/* If nothing is left to train. In the middle of a job's pass the other workers'
 * is not known. */
static double loss_of_before(const fl_config_run *t)
{
    const fl_position *at = &t->train->at;

    if (at->batch > 0 && at->samples > 0 &&
        !fl_store_is_shared(t->trainer->store))
        return at->loss_sum / (double)at->samples;
    return at->batch == 0 && at->pass > 0 ? at->last_loss : (double)NAN;
}

static fleet_status train(fl_config_run *t)
{
    fleet_train_options o = {.on_batch = on_batch,
                             .user = t,
                             .save_every = t->every.folder ? &t->every : NULL,
                             .thread = (int)t->c->trainer_threads,
                             .hogwild = t->c->hogwild};
    int64_t pass, batch;
    bool ends;

    FL_TRY(fleet_dataset_position(t->train, &pass, &batch));
    FL_TRY(fl_position_take(t->train));
    FL_TRY(begin_watching(t));
    t->r.loss = loss_of_before(t);
    t->reported = reports_before(t, pass);
    t->started_ns = fl_now_ns();
    t->done_before = (double)NAN;
    if (t->trains)
        FL_TRY(fl_run_memory_load(t));
    ends = !t->trains || t->r.stopped;
    for (t->epoch = pass + 1; t->epoch <= t->c->epochs && !ends; t->epoch++)
        FL_TRY(train_epoch(t, &o, &ends));
    return FLEET_OK;
}

/* A training that is over is not trained again by --resume, even where that
 * would not be to the bit. */
static fleet_status save_last(const fl_config_run *t)
{
    const fleet_save_every *every = &t->every;

    return every->folder && (every->steps > 0 || every->seconds > 0) &&
                   t->trains
               ? fl_save_every_try(every, t->f)
               : FLEET_OK;
}

/* What the first worker alone does, once all have trained. */
static fleet_status report_result(fl_config_run *t, char **line,
                                  int64_t begun_ns)
{
    const bool trained = t->o->action == FLEET_CONFIG_TRAIN;
    fleet_evaluation e = {0};
    fleet_report r = {.model = t->c->model->name,
                      .loss = t->r.loss,
                      .bad_lines = t->r.bad_lines,
                      .samples_per_s = t->trained_s > 0
                                           ? (double)t->trained / t->trained_s
                                           : 0};

    if (!trained)
        r.loss = r.samples_per_s = (double)NAN;
    if (trained)
        FL_TRY(save_last(t));
    FL_TRY(fleet_params_hash(t->f, &r.params_hash));
    if (t->test) {
        FL_TRY(fl_run_evaluate(t, t->test, &e));
        r.evaluation = &e;
    }
    if (trained && t->c->save)
        FL_TRY(save_model(t));
    r.seconds = (double)(fl_now_ns() - begun_ns) * 1e-9;
    *line = fleet_report_line(t->f, &r);
    return *line ? FLEET_OK : fl_last_code();
}

/* Another process of this worker had done all, and has died as it ended. */
static fleet_status note_end(const fl_config_run *t)
{
    FL_INFO(&t->f->context.log, "%s", fleet_last_error());
    fl_error_clear();
    return FLEET_OK;
}

static fleet_status run_worker(fl_config_run *t, char **line, int64_t begun_ns)
{
    fleet_status status;

    FL_TRY(fl_run_make_executors(t));
    status = fleet_init_worker(t->f);
    if (status == FLEET_EEND)
        return note_end(t);
    FL_TRY(status);
    if (t->o->action == FLEET_CONFIG_TRAIN)
        FL_TRY(train(t));
    if (fleet_is_first_worker(t->f) && !t->r.stopped)
        FL_TRY(report_result(t, line, begun_ns));
    return fleet_stop_worker(t->f);
}

/* --- what there is to do -------------------------------------------------- */

/* From the newest checkpoint, if there is one. */
static fleet_status choose_load(fl_config_run *t)
{
    const fl_config *c = t->c;
    fleet_status status;

    t->load = c->load;
    t->load_options = c->load_options;
    t->every = c->save_every;
    t->every.save = save_checkpoint;
    t->every.user = t;
    if (!t->o->resume)
        return FLEET_OK;
    if (!t->every.folder)
        return fl_fail(FLEET_ECONFIG,
                       "resume: expected a `save` or a folder of `save_every`, "
                       "in which checkpoints are");
    status =
        fl_newest_checkpoint(t->every.folder, &t->f->context.log, &t->newest);
    if (status == FLEET_ENOENT && t->o->action != FLEET_CONFIG_EVALUATE) {
        FL_INFO(&t->f->context.log,
                "resume: %s has no checkpoint: the training begins",
                t->every.folder);
        return FLEET_OK;
    }
    t->load = t->newest;
    t->load_options = (fleet_load_options){.restart = 0};
    return status;
}

/* Better now than when all is trained. */
static fleet_status check_saves(const fl_config_run *t)
{
    if (t->c->save && fleet_is_first_worker(t->f))
        FL_TRY(fl_save_check(t->c->save));
    if (t->c->save_best && fleet_is_first_worker(t->f))
        FL_TRY(fl_save_check(t->c->save_best));
    if (t->c->metrics_log && fleet_is_first_worker(t->f))
        FL_TRY(fl_metric_log_check(t->c->metrics_log, t->c->metrics_columns));
    if (t->c->tensorboard && fleet_is_first_worker(t->f))
        FL_TRY(fl_folder_check(t->c->tensorboard, "event files"));
    return t->every.folder ? fl_save_every_check(&t->every, t->f) : FLEET_OK;
}

static fleet_status check_evaluation(const fl_config_run *t)
{
    if (t->c->n_test == 0)
        return fl_fail(FLEET_ECONFIG,
                       "dataset.test: missing: there is nothing to evaluate");
    if (!t->load)
        return fl_fail(FLEET_ECONFIG,
                       "load: missing: there is nothing that was trained, to "
                       "evaluate it");
    return FLEET_OK;
}

static fleet_status dump_program(const fl_config_run *t, char **line)
{
    if (!fleet_is_first_worker(t->f))
        return FLEET_OK;
    *line =
        fleet_program_dump(t->program, t->o->dump, t->c->dataset.batch_size);
    return *line ? FLEET_OK : fl_last_code();
}

static fleet_status run_action(fl_config_run *t, char **line, int64_t begun_ns)
{
    const fleet_config_action action = t->o->action;

    if (action != FLEET_CONFIG_DUMP)
        FL_TRY(choose_load(t));
    if (action == FLEET_CONFIG_EVALUATE)
        FL_TRY(check_evaluation(t));
    else if (action != FLEET_CONFIG_DUMP)
        FL_TRY(check_saves(t));
    FL_TRY(fl_run_make_datasets(t));
    FL_TRY(fl_run_make_model(t));
    if (action == FLEET_CONFIG_DUMP)
        return dump_program(t, line);
    FL_TRY(fl_validation_check(t));
    if (action == FLEET_CONFIG_CHECK)
        return fl_run_check(t, line);
    if (fleet_is_worker(t->f))
        return run_worker(t, line, begun_ns);
    FL_TRY(fl_init_server(t->f, t->load, &(fl_load_how){.o = t->load_options}));
    return fleet_run_server(t->f);
}

/* role: NULL: as the environment says. */
static fleet_status run_config(const fl_config *c,
                               const fleet_config_options *o,
                               const fleet_role *role, char **line,
                               int64_t begun_ns, unsigned stops)
{
    const int64_t *ms = c->deadline_ms;
    fleet_options options = {.role = role,
                             .seed = (uint64_t)c->seed,
                             .log = o->log,
                             .log_user = o->log_user,
                             .log_level = o->log_level,
                             .connect_deadline_ms = ms[FL_CONNECT_DEADLINE],
                             .request_deadline_ms = ms[FL_REQUEST_DEADLINE],
                             .peer_deadline_ms = ms[FL_PEER_DEADLINE],
                             .step_deadline_ms = ms[FL_STEP_DEADLINE]};
    fl_config_run t = {
        .c = c, .o = o, .lines = {.fd = -1}, .events = {.fd = -1}};

    fleet_status status;

    FL_TRY(fleet_init(&t.f, &options));
    t.f->stops_met = stops; /* one of meanwhile counts */
    if (c->has_deadlines && fleet_server_num(t.f) == 0 && !t.f->role.collective)
        FL_WARN(&t.f->context.log,
                "deadlines: no effect: there are no servers");
    status = run_action(&t, line, begun_ns);
    if (o->stopped && status == FLEET_OK && t.r.stopped)
        *o->stopped = 1;
    if (status != FLEET_OK) {
        fleet_free(*line);
        *line = NULL;
    }
    fl_metric_log_close(&t.lines);
    fl_event_log_close(&t.events);
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.f);
    fl_free(t.newest);
    return status;
}

/* What only looks asks no scheduler, which would count it among its job's. */
static fleet_status train_config(const fl_config *c,
                                 const fleet_config_options *o, char **line,
                                 int64_t begun_ns, unsigned stops)
{
    const bool looks =
        o->action == FLEET_CONFIG_CHECK || o->action == FLEET_CONFIG_DUMP;
    fleet_status status = FLEET_OK;
    bool scheduled = false;
    fl_text servers = {0};
    fleet_role role;

    if (looks)
        status = fl_scheduler_env_alone(&role, &servers, &scheduled);
    if (status == FLEET_OK)
        status =
            run_config(c, o, scheduled ? &role : NULL, line, begun_ns, stops);
    fl_text_done(&servers);
    return status;
}

/* What is made of a configuration, for a call that trains nothing. */
static fleet_status with_model(const fl_config *c, const fleet_role *role,
                               fl_config_use *use, void *arg)
{
    const fleet_options options = {.seed = (uint64_t)c->seed,
                                   .log_level = FLEET_LOG_WARNING,
                                   .role = role};
    const fleet_config_options none = {0};
    fl_config_run t = {.c = c, .o = &none};
    fleet_status status;

    FL_TRY(fleet_init(&t.f, &options));
    status = fl_run_make_datasets(&t);
    if (status == FLEET_OK)
        status = fl_run_make_model(&t);
    if (status == FLEET_OK)
        status = use(arg, t.f);
    fleet_destroy(t.f);
    return status;
}

fleet_status fl_config_with_model(const char *path, const fleet_role *role,
                                  fl_config_use *use, void *arg)
{
    fleet_status status;
    fl_config c = {0};
    size_t size;
    char *text;

    FL_TRY(fl_file_read(path, &text, &size));
    status = fl_config_read(&c, text, size, path);
    if (status == FLEET_OK)
        status = with_model(&c, role, use, arg);
    fl_config_done(&c);
    fl_free(text);
    return status;
}

static fleet_status check_options(const fleet_config_options *o)
{
    static const char call[] = "fleet_train_from_config";

    if (o->action < FLEET_CONFIG_TRAIN || o->action > FLEET_CONFIG_DUMP)
        return fl_fail(FLEET_EINVAL, "%s: action: expected 0 to %d, got %d",
                       call, FLEET_CONFIG_DUMP, (int)o->action);
    if (!o->set && o->n_set != 0)
        return fl_fail(FLEET_EINVAL, "%s: set is NULL, but n_set is %d", call,
                       o->n_set);
    for (int i = 0; i < o->n_set; i++)
        if (!o->set[i])
            return fl_fail(FLEET_EINVAL, "%s: set[%d] is NULL", call, i);
    return FLEET_OK;
}

fleet_status fleet_train_from_config(const char *path,
                                     const fleet_config_options *options,
                                     char **line)
{
    static const fleet_config_options defaults;
    int64_t begun_ns = fl_now_ns();
    unsigned stops = fl_stop_count();
    const fleet_config_options *o;
    fleet_status status;
    fl_config c = {0};
    size_t size;
    char *text;

    if (!path || !line)
        return fl_fail(FLEET_EINVAL, "fleet_train_from_config: NULL argument");
    *line = NULL;
    o = options ? options : &defaults;
    if (o->stopped)
        *o->stopped = 0;
    FL_TRY(check_options(o));
    FL_TRY(fl_file_read(path, &text, &size));
    status = fl_config_read_with(&c, text, size, path, o->set, o->n_set);
    if (status == FLEET_OK && o->action == FLEET_CONFIG_PRINT) {
        *line = fl_json_print(c.json, true);
        status = *line ? FLEET_OK : FLEET_ENOMEM;
    } else if (status == FLEET_OK) {
        status = train_config(&c, o, line, begun_ns, stops);
    }
    fl_config_done(&c);
    fl_free(text);
    return status;
}
