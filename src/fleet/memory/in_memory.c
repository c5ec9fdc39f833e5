/* in_memory.c - in-memory datasets: samples loaded, shuffled and let go. */
#include "base/memory.h"
#include "fleet/job/dataset_memory.h"
#include "fleet/job/position_data.h"
#include "fleet/job/read_once.h"
#include "base/json/json_write.h"

static fleet_status check_options(const fleet_dataset_options *o)
{
    if (o && o->shuffle != 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_in_memory_dataset: shuffle: expected 0, got "
                       "%lld: fleet_dataset_local_shuffle() shuffles all "
                       "samples in memory",
                       (long long)o->shuffle);
    if (o && o->memory_limit < 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_in_memory_dataset: memory_limit: expected 0 or "
                       "more bytes, got %lld",
                       (long long)o->memory_limit);
    return FLEET_OK;
}

fleet_dataset *fleet_in_memory_dataset(fleet *f, const fleet_dataset_options *o)
{
    fleet_dataset *d;

    if (check_options(o) != FLEET_OK)
        return NULL;
    d = fl_dataset_create(f, o, "fleet_in_memory_dataset");
    if (!d)
        return NULL;
    d->memory = fl_alloc(sizeof *d->memory);
    if (!d->memory) {
        fleet_dataset_destroy(d);
        return NULL;
    }
    fl_dataset_memory_release(d->memory);
    return d;
}

/* --- loaded --------------------------------------------------------------- */

static fleet_status check_kind(const fleet_dataset *d, const char *call)
{
    if (!d)
        return fl_fail(FLEET_EINVAL, "%s: no dataset", call);
    FL_TRY(fl_handle_check(d->fleet, call));
    if (!d->memory)
        return fl_fail(FLEET_ESTATE,
                       "%s: a queue dataset has no samples in memory: expected "
                       "one of fleet_in_memory_dataset()",
                       call);
    return d->memory->held.users == 0
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE,
                         "%s: a pass over the samples is under "
                         "way",
                         call);
}

static fleet_status check_loaded(const fleet_dataset *d, const char *call)
{
    FL_TRY(check_kind(d, call));
    return d->memory->loaded
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE,
                         "%s: there are no samples in memory: call "
                         "fleet_dataset_load_into_memory()",
                         call);
}

/* A stopped pass over other samples has ended. */
static void end_stopped_pass(fleet_dataset *d, fl_json *files)
{
    fl_dataset_memory *m = d->memory;

    if (d->at.batch > 0 && m->files && !fl_position_same(m->files, files))
        d->at = (fl_position){.pass = d->at.pass + 1};
    fl_json_free(m->files);
    m->files = files;
}

static fleet_status read_files(fleet_dataset *d, fl_sample_memory *held)
{
    const fl_memory_limit limit = {.most = d->options.memory_limit};
    int64_t first_file = 0;
    fl_stream_spec spec;

    FL_TRY(fl_dataset_need_statistics(d));
    spec = fl_dataset_spec(d);
    FL_TRY(fl_dataset_share(d, &spec, &first_file));
    FL_TRY(fl_read_once_begin(d, &spec));
    FL_TRY(fl_sample_memory_load(held, &spec, (int)first_file, &limit));
    FL_TRY(fl_paths_copy(&held->files, &d->files));
    return spec.job_status(d); /* a stop ends it as the end of files does */
}

static fleet_status load_files(fleet_dataset *d, fl_sample_memory *held)
{
    fleet_status status;

    d->stops = true;
    status = read_files(d, held);
    d->stops = false;
    return status == FLEET_EEND
               ? fl_fail(FLEET_EEND, "dataset: stopped while samples were read "
                                     "into memory")
               : status;
}

static void take_samples(fleet_dataset *d, const fl_sample_memory *held,
                         fl_json *files)
{
    end_stopped_pass(d, files);
    d->memory->held = *held;
    d->memory->n_loaded = (int64_t)held->rows;
    d->memory->loaded = true;
    FL_INFO(&d->fleet->context.log, "dataset: %lld samples in memory, %.1f MB",
            (long long)held->rows, (double)held->bytes * 1e-6);
}

fleet_status fleet_dataset_load_into_memory(fleet_dataset *d)
{
    static const char call[] = "fleet_dataset_load_into_memory";
    fl_sample_memory held = {.n_block = 0};
    fl_json *files = NULL;
    fleet_status status;

    FL_TRY(check_kind(d, call));
    if (d->files.n == 0)
        return fl_fail(FLEET_ESTATE,
                       "%s: the dataset has no files: call "
                       "fleet_dataset_set_filelist()",
                       call);
    fl_dataset_memory_release(d->memory);
    files = fl_json_object();
    FL_GOTO(failed, files ? FLEET_OK : FLEET_ENOMEM);
    FL_GOTO(failed, fl_position_files(&d->files, files));
    FL_GOTO(failed, load_files(d, &held));
    take_samples(d, &held, files);
    return FLEET_OK;
failed:
    fl_sample_memory_done(&held);
    fl_json_free(files);
    return status;
}

fleet_status fleet_dataset_release_memory(fleet_dataset *d)
{
    FL_TRY(check_kind(d, "fleet_dataset_release_memory"));
    fl_dataset_memory_release(d->memory);
    return FLEET_OK;
}

/* --- shuffled ------------------------------------------------------------- */

fleet_status fleet_dataset_local_shuffle(fleet_dataset *d)
{
    fl_dataset_memory *m;
    int64_t pass;

    FL_TRY(check_loaded(d, "fleet_dataset_local_shuffle"));
    m = d->memory;
    FL_TRY(fl_dataset_shuffle_pass(d, FL_SHUFFLE_LOCAL, &pass));
    fl_permutation_init(&m->view.order, m->held.rows,
                        fl_dataset_seed(d, pass, d->fleet->role.index));
    m->view.shuffled = m->held.rows > 0;
    m->of[FL_SHUFFLE_LOCAL] = pass;
    return FLEET_OK;
}

/* --- sizes ---------------------------------------------------------------- */

static fleet_status put_size(fleet_dataset *d, int all_workers, int64_t mine,
                             int64_t *samples)
{
    double sum = (double)mine;

    if (all_workers)
        FL_TRY(fleet_metrics_sum(d->fleet, &sum, 1));
    *samples = (int64_t)sum;
    return FLEET_OK;
}

fleet_status fleet_dataset_get_memory_data_size(fleet_dataset *d,
                                                int all_workers,
                                                int64_t *samples)
{
    static const char call[] = "fleet_dataset_get_memory_data_size";

    FL_TRY(check_loaded(d, call));
    if (!samples)
        return fl_fail(FLEET_EINVAL, "%s: no place for the number", call);
    return put_size(d, all_workers, d->memory->n_loaded, samples);
}

fleet_status fleet_dataset_get_shuffle_data_size(fleet_dataset *d,
                                                 int all_workers,
                                                 int64_t *samples)
{
    static const char call[] = "fleet_dataset_get_shuffle_data_size";
    int64_t rows;

    FL_TRY(check_loaded(d, call));
    if (!samples)
        return fl_fail(FLEET_EINVAL, "%s: no place for the number", call);
    rows = d->memory->of[FL_SHUFFLE_LOCAL] == FL_NEVER &&
                   d->memory->of[FL_SHUFFLE_GLOBAL] == FL_NEVER
               ? 0
               : (int64_t)d->memory->held.rows;
    return put_size(d, all_workers, rows, samples);
}
