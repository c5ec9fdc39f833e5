/* train_config.c - fleet_train_from_config(): what a configuration says,
 * done. */
#include "fleet/config/train_config.h"

#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/format/formats.h"
#include "fleet/config/config_internal.h"
#include "fleet/job/dataset.h"
#include "fleet/job/stop.h"
#include "fleet/save/save.h"
#include "fleet/table/table_modes.h"
#include "fleet/train/save_every.h"
#include "fleet/checkpoint.h"
#include "fleet/servers.h"
#include "runtime/exec/executor.h"

typedef struct training {
    const fl_config *c;
    const fleet_config_options *o;
    fleet *f;
    fleet_program *program;
    fleet_model model;
    fleet_dataset *train, *test;
    fleet_executor *trainer, *tester;
    const char *load; /* what is loaded, and how; NULL: nothing */
    fleet_load_options load_options;
    char *newest; /* checkpoint, where that is what is loaded */
    fleet_save_every every;
    int64_t started_ns; /* the process, as good as we know */

    /* progress */
    int64_t epoch, epoch_samples, last_ns;
    int64_t before;       /* this process's samples of finished epochs */
    int64_t skipped;      /* samples of before a resume, which `before` has */
    double done_before;   /* of all epochs, when this process first said so */
    int64_t trained;      /* all workers' samples of them */
    double trained_s;     /* and their seconds */
    bool trains;          /* there is an epoch left to train */
    fleet_train_result r; /* of the last epoch */
} training;

/* --- data ---------------------------------------------------------------- */

/* files NULL: without files. */
static fleet_status make_dataset(training *t, const char *const *files, int n,
                                 fleet_dataset **out)
{
    fleet_dataset_options o = t->c->dataset;

    if (!fl_format_has_slots(o.format)) {
        o.slots = t->c->data_slot;
        o.n_slot = t->c->n_slot;
    }
    *out = fleet_queue_dataset(t->f, &o);
    if (!*out)
        return fl_last_code();
    return files ? fleet_dataset_set_filelist(*out, files, n) : FLEET_OK;
}

/* A server has no data but what makes the model, which may depend on what is in
 * the files; the test data is the first worker's. */
static fleet_status make_datasets(training *t)
{
    bool by_files = t->c->model == FL_MLP &&
                    (t->c->classes == 0 || t->c->dataset.format == FLEET_IDX);
    bool reads = fleet_is_worker(t->f) || by_files;

    FL_TRY(
        make_dataset(t, reads ? t->c->train : NULL, t->c->n_train, &t->train));
    if (t->c->n_test == 0 || !fleet_is_first_worker(t->f))
        return FLEET_OK;
    FL_TRY(make_dataset(t, t->c->test, t->c->n_test, &t->test));
    t->test->options.shuffle = 0;
    return FLEET_OK;
}

/* --- model --------------------------------------------------------------- */

/* The largest label of all the training data, read once through: the model is
 * the same for all. */
static fleet_status largest_label(training *t, int slot, int64_t *largest)
{
    fl_stream *stream;
    fleet_status status;
    fl_batch *b;

    *largest = 0;
    FL_TRY(fl_dataset_open(t->train, false, NULL, &stream));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        const int64_t *label = b->slot[slot].values;

        for (int64_t i = 0; i < b->rows; i++)
            if (label[i] > *largest)
                *largest = label[i];
        fl_stream_release(stream, b);
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

static fleet_status make_mlp(training *t)
{
    const fl_config *c = t->c;
    fleet_mlp_options o = {.classes = c->classes};
    const int label = c->slot[0].label ? 0 : 1; /* of two */
    const fleet_slot *input = &t->train->slots[1 - label];

    if (o.classes == 0) {
        FL_TRY(largest_label(t, label, &o.classes));
        if (o.classes >= FL_CONFIG_MOST_CLASSES)
            return fl_fail(FLEET_ECONFIG,
                           "dataset.train: the largest label is %lld: expected "
                           "less than %d classes",
                           (long long)o.classes, (int)FL_CONFIG_MOST_CLASSES);
        o.classes = o.classes < 1 ? 2 : o.classes + 1;
    }
    o.input = input->name;
    o.dim = input->dim;
    o.label = t->train->slots[label].name;
    if (c->has_hidden) {
        o.hidden = c->hidden;
        o.n_hidden = c->n_hidden;
    }
    fleet_mlp(t->program, &o, &t->model);
    return fleet_program_status(t->program);
}

/* Slots by what they are: the label, numbers, ids. */
static void sort_slots(const fl_config *c, fleet_ctr_options *o,
                       fleet_dense_slot *dense, fleet_id_slot *ids)
{
    for (int i = 0; i < c->n_slot; i++) {
        const fl_config_slot *s = &c->slot[i];

        if (s->label) {
            o->label = s->slot.name;
            o->label_dtype = s->slot.dtype;
        } else if (s->slot.dtype == FLEET_FLOAT32) {
            dense[o->n_dense++] =
                (fleet_dense_slot){s->slot.name, s->slot.dim, s->combiner};
        } else {
            ids[o->n_ids++] =
                (fleet_id_slot){s->slot.name, s->slot.dim, s->combiner,
                                s->table, s->slot.weighted};
        }
    }
    o->dense = dense;
    o->ids = ids;
    o->no_dense = o->n_dense == 0;
}

static fleet_status make_ctr(training *t)
{
    static fleet_var *(*const build[])(
        fleet_program *, const fleet_ctr_options *,
        fleet_model *) = {fleet_wide_deep, fleet_ctr_dnn, fleet_deepfm};
    const fl_config *c = t->c;
    fleet_ctr_options o = {.embedding_dim = c->embedding_dim,
                           .wide_ids = c->wide_ids,
                           .rows = c->rows,
                           .check_ids = c->check_ids,
                           .fresh = c->fresh,
                           .default_id = c->default_id,
                           .life = c->life,
                           .memory_cap_bytes = c->memory_cap_bytes,
                           .cold_folder = c->cold_folder,
                           .storage = c->storage};
    fleet_dense_slot *dense =
        fl_alloc_array((size_t)c->n_slot + 1, sizeof *dense);
    fleet_id_slot *ids = fl_alloc_array((size_t)c->n_slot + 1, sizeof *ids);
    fleet_status status = FLEET_ENOMEM;

    if (c->has_hidden) {
        o.hidden = c->hidden;
        o.n_hidden = c->n_hidden;
    }
    if (dense && ids) {
        sort_slots(c, &o, dense, ids);
        build[c->model](t->program, &o, &t->model);
        status = fleet_program_status(t->program);
    }
    fl_free(dense);
    fl_free(ids);
    return status;
}

static fleet_status make_model(training *t)
{
    fleet_optimizer *o = fl_config_make_optimizer(t->f, &t->c->optimizer);
    fleet_place own = FLEET_GPU(fleet_worker_gpu(t->f));

    if (!o)
        return fl_last_code();
    t->program = fleet_program_create(t->f);
    if (!t->program)
        return fl_last_code();
    if (fleet_is_worker(t->f)) /* servers need none */
        FL_TRY(fleet_program_place(t->program,
                                   t->c->own_gpu ? own : t->c->device, NULL));
    FL_TRY(t->c->model == FL_MLP ? make_mlp(t) : make_ctr(t));
    FL_TRY(fl_config_set_param_home(t->c, t->program));
    FL_TRY(fl_config_set_tables(t->c, t->f, t->program, o));
    o = fleet_distributed_optimizer(t->f, o, &t->c->strategy);
    if (!o)
        return fl_last_code();
    return fleet_minimize(o, t->model.loss);
}

/* --- training ------------------------------------------------------------ */

/* share: of this epoch that is done. */
static void say_progress(training *t, double share)
{
    const fleet_executor *e = t->trainer;
    int64_t now = fl_now_ns();
    double seconds = (double)(now - t->started_ns) * 1e-9;
    fleet_progress p = {.epoch = t->epoch, .epochs = t->c->epochs};

    t->last_ns = now;
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
    training *t = user;

    (void)batch;
    t->epoch_samples += samples;
    if (t->o->on_progress && fl_now_ns() - t->last_ns >= 500000000)
        say_progress(t, t->train->share);
    return 0;
}

static fleet_status save_checkpoint(void *user, fleet *f, const char *path)
{
    const training *t = user;

    return fl_checkpoint_save(f, path, &t->model, FLEET_SAVE_ALL);
}

/* The pass is over: its loss is that of all workers. A checkpoint at the very
 * end of a pass was written before its report. */
static fleet_status report_loss(const training *t, int64_t passes)
{
    fleet_optimizer *o = t->program->training.optimizer;
    int reduced = 0;
    float rate;

    if (!o->plateau.on || o->plateau.seen.reports >= passes)
        return FLEET_OK;
    FL_TRY(fleet_optimizer_report_metric(o, t->r.loss, &reduced));
    FL_TRY(fleet_optimizer_get_learning_rate(o, &rate));
    if (reduced)
        FL_INFO(&t->f->context.log,
                "the loss of %lld passes has not improved: the learning rate "
                "is %g",
                (long long)o->plateau.is.patience + 1, (double)rate);
    return FLEET_OK;
}

static fleet_status note_stop(const training *t)
{
    FL_WARN(&t->f->context.log, "stopped in epoch %lld after batch %lld; %s%s",
            (long long)t->epoch, (long long)t->r.batch,
            t->every.folder ? "--resume goes on from "
                            : "there is no `save`: nothing is saved",
            t->every.folder ? t->every.folder : "");
    return FLEET_OK;
}

static fleet_status train(training *t)
{
    fleet_train_options o = {.on_batch = on_batch,
                             .user = t,
                             .save_every = t->every.folder ? &t->every : NULL,
                             .thread = (int)t->c->trainer_threads,
                             .hogwild = t->c->hogwild};
    int64_t pass, batch, before;

    FL_TRY(fleet_dataset_position(t->train, &pass, &batch));
    FL_TRY(fl_position_take(t->train));
    t->r.loss = t->train->at.last_loss; /* if all epochs are trained */
    t->trains = pass < t->c->epochs;
    FL_TRY(report_loss(t, pass));
    t->started_ns = fl_now_ns();
    t->done_before = (double)NAN;
    for (t->epoch = pass + 1; t->epoch <= t->c->epochs; t->epoch++) {
        const bool goes_on = t->train->at.batch > 0;

        t->epoch_samples = t->train->at.samples;
        t->skipped += t->epoch_samples;
        before = fl_store_is_shared(t->trainer->store) ? 0 : t->epoch_samples;
        FL_TRY(fleet_train_from_dataset(t->trainer, t->train, &o, &t->r));
        if (t->r.stopped)
            return note_stop(t);
        if (t->r.samples == 0 && !goes_on)
            return fl_fail(FLEET_EEND,
                           "dataset.train: the files have no sample for worker "
                           "%d of %d",
                           fleet_worker_index(t->f), fleet_worker_num(t->f));
        FL_TRY(report_loss(t, t->epoch));
        FL_TRY(fleet_shrink(t->f, NULL));
        if (t->o->on_progress)
            say_progress(t, 1);
        t->before += t->epoch_samples;
        t->trained += t->r.samples - before;
        t->trained_s += t->r.seconds;
    }
    return FLEET_OK;
}

/* A training that is over is not trained again by --resume, even where that
 * would not be to the bit. */
static fleet_status save_last(const training *t)
{
    const fleet_save_every *every = &t->every;

    return every->folder && (every->steps > 0 || every->seconds > 0) &&
                   t->trains
               ? fl_save_every_try(every, t->f)
               : FLEET_OK;
}

/* What the first worker alone does, once all have trained. */
static fleet_status report_result(training *t, char **line, int64_t begun_ns)
{
    fleet_evaluation e = {0};
    fleet_report r = {.model = t->c->model_name,
                      .loss = t->r.loss,
                      .samples_per_s = t->trained_s > 0
                                           ? (double)t->trained / t->trained_s
                                           : 0};

    FL_TRY(save_last(t));
    FL_TRY(fleet_params_hash(t->f, &r.params_hash));
    if (t->test) {
        FL_TRY(fleet_evaluate(t->tester, t->test, &t->model, &e));
        r.evaluation = &e;
    }
    if (t->c->save)
        FL_TRY(fl_save_in_mode(t->f, t->c->save, &t->model, t->c->save_mode));
    r.seconds = (double)(fl_now_ns() - begun_ns) * 1e-9;
    *line = fleet_report_line(t->f, &r);
    return *line ? FLEET_OK : fl_last_code();
}

/* Another process of this worker had done all, and has died as it ended. */
static fleet_status note_end(const training *t)
{
    FL_INFO(&t->f->context.log, "%s", fleet_last_error());
    fl_error_clear();
    return FLEET_OK;
}

static fleet_status run_worker(training *t, char **line, int64_t begun_ns)
{
    fleet_executor_options for_test = {.for_test = 1};
    fleet_status status;

    if (t->load)
        FL_TRY(fleet_load_model_with(t->f, t->load, &t->load_options));
    if (t->test)
        FL_TRY(fleet_dataset_use_statistics_of(t->test, t->train));
    t->trainer = fleet_executor_create(t->program, NULL);
    if (t->trainer && t->test)
        t->tester = fleet_executor_create(t->program, &for_test);
    if (!t->trainer || (t->test && !t->tester))
        return fl_last_code();
    status = fleet_init_worker(t->f);
    if (status == FLEET_EEND)
        return note_end(t);
    FL_TRY(status);
    FL_TRY(train(t));
    if (fleet_is_first_worker(t->f) && !t->r.stopped)
        FL_TRY(report_result(t, line, begun_ns));
    return fleet_stop_worker(t->f);
}

/* From the newest checkpoint, if there is one. */
static fleet_status choose_load(training *t)
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
    if (status == FLEET_ENOENT) {
        FL_INFO(&t->f->context.log,
                "resume: %s has no checkpoint: the training begins",
                t->every.folder);
        return FLEET_OK;
    }
    t->load = t->newest;
    t->load_options = (fleet_load_options){.restart = 0};
    return status;
}

static fleet_status run_training(training *t, char **line, int64_t begun_ns)
{
    FL_TRY(choose_load(t));
    if (t->c->save && fleet_is_first_worker(t->f))
        FL_TRY(fl_save_check(t->c->save)); /* better now than when trained */
    if (t->every.folder)
        FL_TRY(fl_save_every_check(&t->every, t->f));
    FL_TRY(make_datasets(t));
    FL_TRY(make_model(t));
    if (fleet_is_worker(t->f))
        return run_worker(t, line, begun_ns);
    FL_TRY(fl_init_server(t->f, t->load, &(fl_load_how){.o = t->load_options}));
    return fleet_run_server(t->f);
}

static fleet_status train_config(const fl_config *c,
                                 const fleet_config_options *o, char **line,
                                 int64_t begun_ns, unsigned stops)
{
    const int64_t *ms = c->deadline_ms;
    fleet_options options = {.seed = (uint64_t)c->seed,
                             .log = o->log,
                             .log_user = o->log_user,
                             .log_level = o->log_level,
                             .connect_deadline_ms = ms[FL_CONNECT_DEADLINE],
                             .request_deadline_ms = ms[FL_REQUEST_DEADLINE],
                             .peer_deadline_ms = ms[FL_PEER_DEADLINE],
                             .step_deadline_ms = ms[FL_STEP_DEADLINE]};
    training t = {.c = c, .o = o};
    fleet_status status;

    FL_TRY(fleet_init(&t.f, &options));
    t.f->stops_met = stops; /* one of meanwhile counts */
    if (c->has_deadlines && fleet_server_num(t.f) == 0 && !t.f->role.collective)
        FL_WARN(&t.f->context.log,
                "deadlines: no effect: there are no servers");
    status = run_training(&t, line, begun_ns);
    if (o->stopped)
        *o->stopped = status == FLEET_OK && t.r.stopped;
    if (status != FLEET_OK) {
        fleet_free(*line);
        *line = NULL;
    }
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.f);
    fl_free(t.newest);
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
    training t = {.c = c, .o = &none};
    fleet_status status;

    FL_TRY(fleet_init(&t.f, &options));
    status = make_datasets(&t);
    if (status == FLEET_OK)
        status = make_model(&t);
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

fleet_status fleet_train_from_config(const char *path,
                                     const fleet_config_options *options,
                                     char **line)
{
    static const fleet_config_options defaults;
    int64_t begun_ns = fl_now_ns();
    unsigned stops = fl_stop_count();
    fleet_status status;
    fl_config c = {0};
    size_t size;
    char *text;

    if (!path || !line)
        return fl_fail(FLEET_EINVAL, "fleet_train_from_config: NULL argument");
    *line = NULL;
    FL_TRY(fl_file_read(path, &text, &size));
    status = fl_config_read(&c, text, size, path);
    if (status == FLEET_OK)
        status = train_config(&c, options ? options : &defaults, line, begun_ns,
                              stops);
    fl_config_done(&c);
    fl_free(text);
    return status;
}
