/* dataset.c - datasets: options checked and copied, files shared out. */
#include "fleet/job/dataset.h"
#include "fleet/job/dataset_memory.h"
#include "fleet/job/dataset_sampling.h"
#include "fleet/job/inexact.h"
#include "fleet/job/read_once.h"
#include "fleet/job/stop.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/format/formats.h"
#include "data/io/pipe_command.h"
#include "data/layout/check_spec.h"
#include "data/layout/layout.h"
#include "ps/worker/worker_io.h"
#include "runtime/exec/executor.h"

/* --- copying what the user said ------------------------------------------ */

static const char *const *copy_texts(fl_arena *a, const char *const *text,
                                     int n)
{
    const char **copy;

    if (!text || n < 1)
        return NULL;
    copy = fl_arena_alloc(a, (size_t)n * sizeof *copy);
    for (int i = 0; copy && i < n; i++)
        if (!text[i] || !(copy[i] = fl_arena_strdup(a, text[i])))
            return NULL;
    return copy;
}

static fleet_status copy_slot(fl_arena *a, const fleet_slot *from,
                              fleet_slot *to)
{
    *to = *from;
    if (!from->name)
        return fl_fail(FLEET_EINVAL, "dataset: a slot without a name");
    if (from->n_column < 0 || from->n_transform < 0 || from->n_equals < 0 ||
        from->n_from < 0 || from->n_bucket < 0)
        return fl_fail(FLEET_ECONFIG,
                       "dataset: slot \"%s\": a list of another length than "
                       "it says",
                       from->name);
    if (to->dtype == 0)
        to->dtype = FLEET_FLOAT32;
    if (to->dim == 0)
        to->dim = 1;
    to->name = fl_arena_strdup(a, from->name);
    to->columns = copy_texts(a, from->columns, from->n_column);
    to->equals = copy_texts(a, from->equals, from->n_equals);
    to->from = copy_texts(a, from->from, from->n_from);
    if (from->buckets)
        to->buckets = fl_arena_copy(
            a, from->buckets, (size_t)from->n_bucket * sizeof *to->buckets);
    if (from->transforms)
        to->transforms =
            fl_arena_copy(a, from->transforms,
                          (size_t)from->n_transform * sizeof *to->transforms);
    if (!to->name || (from->n_column > 0 && !to->columns) ||
        (from->n_equals > 0 && !to->equals) ||
        (from->n_from > 0 && !to->from) || (from->buckets && !to->buckets) ||
        (from->transforms && !to->transforms))
        return fl_fail(FLEET_ENOMEM, "out of memory: slot \"%s\"", from->name);
    return FLEET_OK;
}

/* A column of Parquet may have the slot's name. */
static fleet_status name_column(fl_arena *a, fleet_slot *s)
{
    if (s->n_column > 0 || s->n_from > 0)
        return FLEET_OK;
    s->columns = copy_texts(a, &s->name, 1);
    s->n_column = 1;
    return s->columns ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status check_vars(const fleet_dataset_options *o)
{
    for (int i = 0; i < o->n_use_var; i++) {
        const fleet_var *v = o->use_var[i];

        if (!v || v->kind != FL_VAR_DATA ||
            (!v->ragged && !fl_shape_batched(&v->shape)))
            return fl_fail(FLEET_EINVAL,
                           "dataset: use_var[%d] is not a data variable with a "
                           "batch",
                           i);
        if (v->weighs)
            return fl_fail(FLEET_EINVAL,
                           "dataset: use_var[%d] is the weights of \"%s\", "
                           "which are fed with it",
                           i, v->weighs->name);
    }
    return FLEET_OK;
}

static fleet_status take_slots(fleet_dataset *d, const fleet_dataset_options *o)
{
    int n = o->n_slot ? o->n_slot : o->n_use_var;
    fleet_slot *copy;

    if (o->n_slot < 0 || o->n_use_var < 0 || (o->n_slot && o->n_use_var))
        return fl_fail(FLEET_EINVAL,
                       "dataset: give either slots or use_var, got %d and %d",
                       o->n_slot, o->n_use_var);
    if (fl_format_has_slots(o->format)) {
        if (o->n_slot)
            return fl_fail(FLEET_EINVAL, "dataset: this format has slots of "
                                         "its own");
        return FLEET_OK;
    }
    if (o->n_slot > 0 && !o->slots)
        return fl_fail(FLEET_EINVAL, "dataset: n_slot is %d, but slots is NULL",
                       o->n_slot);
    if (o->n_use_var > 0 && !o->use_var)
        return fl_fail(FLEET_EINVAL,
                       "dataset: n_use_var is %d, but use_var is NULL",
                       o->n_use_var);
    FL_TRY(check_vars(o));
    copy = fl_arena_alloc(&d->arena, (size_t)n * sizeof *copy);
    if (!copy)
        return FLEET_ENOMEM;
    for (int i = 0; i < n; i++) {
        const fleet_var *v = o->n_slot ? NULL : o->use_var[i];
        fleet_slot of_var;

        if (v) /* as Fleet's use_var says it */
            of_var =
                (fleet_slot){.name = v->name,
                             .dtype = v->dtype,
                             .dim = v->ragged ? -1 : fl_shape_cols(&v->shape),
                             .weighted = v->weights != NULL};
        FL_TRY(copy_slot(&d->arena, v ? &of_var : &o->slots[i], &copy[i]));
        if (o->format == FLEET_PARQUET)
            FL_TRY(name_column(&d->arena, &copy[i]));
    }
    d->slots = copy;
    d->n_slot = n;
    return FLEET_OK;
}

static fleet_status copy_text(fl_arena *a, const char **text)
{
    if (!*text)
        return FLEET_OK;
    *text = fl_arena_strdup(a, *text);
    return *text ? FLEET_OK : FLEET_ENOMEM;
}

/* A worker that is told that the job has ended leaves, whatever its data do.
 * One that is to stop waits no longer for them. */
static fleet_status job_status(void *dataset)
{
    const fleet_dataset *d = dataset;
    fleet *f = d->fleet;

    if (f->worker_io)
        FL_TRY(fl_worker_io_status(f->worker_io));
    return d->stops && d->in_round == 0 &&
                   (!d->trainer || d->trainer->micro == 0) &&
                   (f->role.worker_num == 1 || fl_inexact_apart(f)) &&
                   fl_stop_wanted(f)
               ? FLEET_EEND
               : FLEET_OK;
}

static bool is_alone(const fl_role *r)
{
    return r->server_num == 0 && r->worker_num == 1;
}

/* Other processes wait for a worker whose input brings nothing. */
static int64_t pipe_timeout_of(const fleet_dataset *d)
{
    const fl_role *r = &d->fleet->role;

    if (d->options.pipe_timeout_ms != 0)
        return d->options.pipe_timeout_ms;
    return is_alone(r) ? 0 : r->deadline_ms[FL_STEP_DEADLINE];
}

fl_stream_spec fl_dataset_spec(fleet_dataset *d)
{
    const fleet_dataset_options *o = &d->options;
    const char *pipe = o->pipe_command;

    return (fl_stream_spec){
        .format = o->format,
        .slots = d->slots,
        .n_slot = d->n_slot,
        .batch_size = o->batch_size,
        .n_thread = o->thread_num,
        .most_held = d->most_held,
        .pipe_command = pipe && strcmp(pipe, "cat") != 0 ? pipe : NULL,
        .pipe_timeout_ms = pipe_timeout_of(d),
        .shuffle = o->shuffle,
        .max_bad_lines = o->max_bad_lines,
        .cache = o->cache && !d->cache.is_off ? &d->cache : NULL,
        .separator = o->separator,
        .comment = o->comment,
        .header = o->header,
        .skip_lines = o->skip_lines,
        .missing = o->missing,
        .statistics = d->has_statistics ? &d->statistics : NULL,
        .files = (const char *const *)d->files.path,
        .n_file = (int)d->files.n,
        .any_file = o->format != FLEET_IDX && o->format != FLEET_PARQUET,
        .share_count = 1,
        .log = &d->fleet->context.log,
        .job_status = job_status,
        .job = d,
    };
}

static fleet_status copy_options(fleet_dataset *d,
                                 const fleet_dataset_options *o)
{
    d->options = *o;
    if (o->batch_size == 0)
        d->options.batch_size = 1;
    if (o->thread_num == 0)
        d->options.thread_num = 1;
    if (o->separator == 0)
        d->options.separator = ',';
    d->options.slots = NULL;
    d->options.use_var = NULL;
    FL_TRY(copy_text(&d->arena, &d->options.pipe_command));
    FL_TRY(copy_text(&d->arena, &d->options.missing));
    FL_TRY(copy_text(&d->arena, &d->options.negative_label));
    FL_TRY(copy_text(&d->arena, &d->options.draw_slot));
    FL_TRY(fl_dataset_check_sampling(o));
    if (o->lease_lines < 0)
        return fl_fail(FLEET_EINVAL,
                       "dataset: lease_lines: expected 0 or more, got %lld",
                       (long long)o->lease_lines);
    return take_slots(d, o);
}

fleet_dataset *fl_dataset_create(fleet *f, const fleet_dataset_options *o,
                                 const char *call)
{
    fl_stream_spec spec;
    fleet_status status;
    fleet_dataset *d;
    int at;

    if (fl_handle_check(f, call) != FLEET_OK)
        return NULL;
    if (!o) {
        fl_fail(FLEET_EINVAL, "%s: no options", call);
        return NULL;
    }
    d = fl_alloc(sizeof *d);
    if (!d)
        return NULL;
    d->fleet = f;
    d->next = f->datasets;
    f->datasets = d;
    FL_GOTO(failed, copy_options(d, o));
    spec = fl_dataset_spec(
        d); /* as far as it can be known before there are files */
    FL_GOTO(failed, fl_spec_check_options(&spec));
    if (!fl_format_has_slots(spec.format))
        FL_GOTO(failed, fl_spec_check_slots(&spec, &at));
    return d;
failed:
    fleet_dataset_destroy(d);
    return NULL;
}

fleet_dataset *fleet_queue_dataset(fleet *f, const fleet_dataset_options *o)
{
    if (o && o->memory_limit != 0) {
        fl_fail(FLEET_EINVAL, "fleet_queue_dataset: memory_limit: expected 0, "
                              "as it keeps no samples in memory");
        return NULL;
    }
    return fl_dataset_create(f, o, "fleet_queue_dataset");
}

void fleet_dataset_destroy(fleet_dataset *d)
{
    fleet_dataset **at;

    if (!d)
        return;
    for (at = &d->fleet->datasets; *at && *at != d; at = &(*at)->next)
        ;
    if (*at)
        *at = d->next;
    if (d->psgpu)
        d->forget_psgpu(d->psgpu);
    fl_dataset_memory_done(d);
    fl_format_free_own_slots(d->own_slots);
    fl_free(d->cache.whole);
    fl_statistics_done(&d->statistics);
    fl_paths_done(&d->files);
    fl_arena_done(&d->arena);
    fl_free(d);
}

/* --- files --------------------------------------------------------------- */

/* idx: the two paths as they are, images first. */
static fleet_status two_paths(const char *const *globs, int n, fl_paths *files)
{
    fl_paths one;

    *files = (fl_paths){0};
    if (n != 2)
        return fl_fail(FLEET_EINVAL,
                       "dataset: idx takes two files, the images and the "
                       "labels, got %d",
                       n);
    for (int i = 0; i < 2; i++) {
        fleet_status status = fl_paths_glob(&one, &globs[i], 1);

        if (status == FLEET_OK && one.n != 1)
            status = fl_fail(FLEET_EINVAL,
                             "dataset: \"%s\" matches %zu files; "
                             "idx takes one",
                             globs[i], one.n);
        if (status == FLEET_OK)
            status = fl_grow(&files->path, &files->capacity, files->n + 1,
                             sizeof *files->path);
        if (status == FLEET_OK) {
            files->path[files->n++] = one.path[0];
            one.n = 0; /* the path has a new owner */
        }
        fl_paths_done(&one);
        FL_TRY(status);
    }
    return FLEET_OK;
}

static fleet_status list_files(const fleet_dataset *d, const char *const *globs,
                               int n, fl_paths *files)
{
    if (d->options.format == FLEET_IDX)
        return two_paths(globs, n, files);
    return fl_pipe_command_has_path(d->options.pipe_command)
               ? fl_paths_names(files, globs, n)
               : fl_paths_glob(files, globs, n);
}

/* The slots that files of this format bring; if they cannot be read, all stays
 * as it was. */
static fleet_status own_slots(fleet_dataset *d, const char *path)
{
    const fleet_slot *slots;
    int n;

    FL_TRY(fl_format_own_slots(d->options.format, path, &slots, &n));
    if (!slots)
        return FLEET_OK;
    fl_format_free_own_slots(d->own_slots);
    d->slots = d->own_slots = slots;
    d->n_slot = n;
    return FLEET_OK;
}

fleet_status fleet_dataset_set_filelist(fleet_dataset *d,
                                        const char *const *globs, int n)
{
    fleet_status status;
    fl_paths files;

    if (!d || !globs || n < 1)
        return fl_fail(FLEET_EINVAL,
                       "fleet_dataset_set_filelist: no dataset or no files");
    FL_TRY(fl_dataset_memory_check_list(d));
    status = list_files(d, globs, n, &files);
    if (status == FLEET_OK)
        status = own_slots(d, files.path[0]);
    if (status != FLEET_OK) {
        fl_paths_done(&files);
        return status;
    }
    fl_paths_done(&d->files);
    d->files = files;
    d->read_once = false;
    d->cache.is_off = false;
    if (d->at.batch > 0 && !fl_dataset_memory_was_loaded(d))
        /* of a pass over other files, which ends so */
        d->at = (fl_position){.pass = d->at.pass + 1};
    return FLEET_OK;
}

/* --- statistics ---------------------------------------------------------- */

bool fl_dataset_standardizes(const fleet_dataset *d)
{
    return fl_count_standardized(d->slots, d->n_slot) > 0;
}

fleet_status fl_statistics_of(const fleet *f, fl_json **json)
{
    *json = NULL;
    for (fleet_dataset *d = f->datasets; d; d = d->next)
        if (d->has_statistics) {
            fl_json_free(*json);
            *json = NULL;
            FL_TRY(fl_statistics_save(&d->statistics, json));
        }
    return FLEET_OK;
}

fleet_status fl_dataset_fits(const fleet_dataset *d, const fl_statistics *s)
{
    if (s->n == fl_count_standardized(d->slots, d->n_slot))
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE,
                   "dataset: %d columns are standardized, but there are "
                   "statistics of %d",
                   fl_count_standardized(d->slots, d->n_slot), s->n);
}

fleet_status fl_dataset_set_statistics(fleet_dataset *d, const fl_statistics *s)
{
    fl_statistics copy;

    FL_TRY(fl_dataset_fits(d, s));
    FL_TRY(fl_statistics_copy(&copy, s));
    fl_statistics_done(&d->statistics);
    d->statistics = copy;
    d->has_statistics = true;
    return FLEET_OK;
}

fleet_status fl_dataset_need_statistics(fleet_dataset *d)
{
    fleet_status status;
    fl_stream_spec spec;

    if (d->has_statistics || !fl_dataset_standardizes(d))
        return FLEET_OK;
    if (d->fleet->loaded.n == fl_count_standardized(d->slots, d->n_slot))
        return fl_dataset_set_statistics(d, &d->fleet->loaded);
    spec = fl_dataset_spec(d);
    FL_TRY(fl_read_once_check_means(&spec));
    FL_TRY(fl_stream_statistics(&spec, &d->statistics));
    status = job_status(d); /* a stop has ended it as the end of data does */
    d->has_statistics = status == FLEET_OK;
    if (status != FLEET_OK)
        fl_statistics_done(&d->statistics);
    return status;
}

fleet_status fleet_dataset_use_statistics_of(fleet_dataset *d,
                                             fleet_dataset *other)
{
    if (!d || !other)
        return fl_fail(FLEET_EINVAL,
                       "fleet_dataset_use_statistics_of: no dataset");
    if (!fl_dataset_standardizes(other))
        return FLEET_OK;
    FL_TRY(fl_dataset_need_statistics(other));
    return fl_dataset_set_statistics(d, &other->statistics);
}

/* --- a pass -------------------------------------------------------------- */

fleet_status fl_dataset_check_worker(const fleet_dataset *d)
{
    if (fleet_is_worker(d->fleet))
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE, "dataset: this process is a %s: workers train",
                   fleet_is_server(d->fleet) ? "server" : "heter worker");
}

/* --- leases --------------------------------------------------------------- */

static int64_t lease_batches(const fleet_dataset *d)
{
    return (d->options.lease_lines - 1) / d->options.batch_size + 1;
}

static fleet_status next_lease(void *dataset, int64_t number, int64_t *lease)
{
    const fleet_dataset *d = dataset;
    const fl_lease_question q = {
        .pass = {.pass = (uint64_t)d->at.pass,
                 .dataset = (uint32_t)d->begun,
                 .batches = (uint32_t)lease_batches(d)},
        .number = (uint64_t)number};
    uint64_t got = 0;

    FL_TRY(fl_worker_io_lease(d->fleet->worker_io, &q, &got));
    *lease = got <= INT64_MAX ? (int64_t)got : -1;
    return FLEET_OK;
}

/* In sync all workers make each step together, so none would get on before a
 * slow one; ranks have no server to ask. */
static fleet_status lease_out(const fleet_dataset *d, fl_stream_spec *spec)
{
    const fl_job_mode mode = fl_handle_mode(d->fleet);

    if (fl_mode_is_sync(mode) || fl_mode_has_ranks(mode))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "dataset: lease_lines %lld in mode %s: expected 0, or "
                       "workers that update apart, in ps-async, ps-half-async "
                       "or ps-geo",
                       (long long)d->options.lease_lines,
                       fl_job_mode_name(mode));
    if (lease_batches(d) > UINT32_MAX)
        return fl_fail(FLEET_EINVAL,
                       "dataset: lease_lines %lld: expected %lld at most, in "
                       "batches of %lld",
                       (long long)d->options.lease_lines,
                       (long long)(UINT32_MAX * d->options.batch_size),
                       (long long)d->options.batch_size);
    spec->next_lease = next_lease;
    spec->lease_batches = lease_batches(d);
    return FLEET_OK;
}

/* idx is one pair of files. */
fleet_status fl_dataset_share(const fleet_dataset *d, fl_stream_spec *spec,
                              int64_t *first_file)
{
    const fl_role *r = &d->fleet->role;
    int64_t count;

    FL_TRY(fl_dataset_check_worker(d));
    if (d->options.lease_lines > 0 && r->worker_num > 1)
        return lease_out(d, spec);
    if (d->options.format == FLEET_IDX || spec->n_file < r->worker_num) {
        spec->share_index = r->index;
        spec->share_count = r->worker_num;
        return FLEET_OK;
    }
    FL_TRY(fleet_util_file_shard(d->fleet, spec->n_file, first_file, &count));
    spec->files += *first_file;
    spec->n_file = (int)count;
    return FLEET_OK;
}

uint64_t fl_dataset_seed(const fleet_dataset *d, int64_t pass, int64_t of)
{
    const uint64_t seeds[] = {d->fleet->context.seed, (uint64_t)pass};

    return fl_hash(seeds, sizeof seeds, (uint64_t)of);
}

static fleet_status check_files(const fleet_dataset *d)
{
    return d->files.n > 0
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE, "dataset: it has no files: call "
                                       "fleet_dataset_set_filelist()");
}

static fleet_status open_files(fleet_dataset *d, bool shared,
                               const fl_slot_bounds *bounds, fl_stream **stream)
{
    int64_t first_file = 0;
    fl_stream_spec spec;

    FL_TRY(check_files(d));
    if (shared) /* first, as a stop of what follows leaves a position */
        FL_TRY(fl_position_take(d));
    FL_TRY(fl_dataset_need_statistics(d));
    spec = fl_dataset_spec(d);
    spec.bounds = bounds;
    if (shared) { /* other passes do not change the order of training */
        FL_TRY(fl_dataset_share(d, &spec, &first_file));
        spec.first_batch = d->at.batch;
        FL_TRY(fl_dataset_sample(d, &spec));
    }
    spec.seed = fl_dataset_seed(d, d->at.pass, first_file);
    FL_TRY(fl_read_once_begin(d, &spec));
    return fl_stream_open(stream, &spec);
}

fleet_status fl_dataset_open(fleet_dataset *d, bool shared,
                             const fl_slot_bounds *bounds, fl_stream **stream)
{
    return d->memory ? fl_dataset_memory_open(d, shared, bounds, stream)
                     : open_files(d, shared, bounds, stream);
}

fleet_status fl_dataset_open_files(fleet_dataset *d, fl_stream **stream)
{
    return open_files(d, false, NULL, stream);
}
