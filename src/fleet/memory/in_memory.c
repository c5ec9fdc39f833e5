/* in_memory.c - in-memory datasets: samples loaded, shuffled and let go. */
#include "fleet/memory/in_memory.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/position_data.h"
#include "fleet/job/read_once.h"

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
    if (o && o->lease_lines != 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_in_memory_dataset: lease_lines: expected 0, got "
                       "%lld: each worker has its samples in memory",
                       (long long)o->lease_lines);
    if (o && o->negative_rate != 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_in_memory_dataset: negative_rate: expected 0, "
                       "got %g: each pass has all samples in memory",
                       o->negative_rate);
    if (o && o->draw_slot)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_in_memory_dataset: draw_slot: expected NULL, got "
                       "\"%s\": each pass has all samples in memory",
                       o->draw_slot);
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

static fleet_status check_memory(const fleet_dataset *d, const char *call)
{
    if (!d)
        return fl_fail(FLEET_EINVAL, "%s: no dataset", call);
    FL_TRY(fl_handle_check(d->fleet, call));
    if (!d->memory)
        return fl_fail(FLEET_ESTATE,
                       "%s: a queue dataset has no samples in memory: expected "
                       "one of fleet_in_memory_dataset()",
                       call);
    return FLEET_OK;
}

static fleet_status check_kind(const fleet_dataset *d, const char *call)
{
    FL_TRY(check_memory(d, call));
    return d->memory->held.users == 0
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE,
                         "%s: a pass over the samples is under "
                         "way",
                         call);
}

fleet_status fl_in_memory_check(const fleet_dataset *d, const char *call)
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

/* What of which files is read. */
static fleet_status describe_load(fleet_dataset *d, fl_stream_spec *spec,
                                  int64_t *first_file)
{
    *first_file = 0;
    FL_TRY(fl_dataset_need_statistics(d));
    *spec = fl_dataset_spec(d);
    FL_TRY(fl_dataset_share(d, spec, first_file));
    return fl_read_once_begin(d, spec);
}

static fleet_status read_files(fleet_dataset *d, fl_sample_memory *held)
{
    const fl_memory_limit limit = {.most = d->options.memory_limit};
    int64_t first_file;
    fl_stream_spec spec;

    FL_TRY(describe_load(d, &spec, &first_file));
    FL_TRY(fl_sample_memory_load(held, &spec, (int)first_file, &limit));
    return fl_paths_copy(&held->files, &d->files);
}

/* A stop ends a wait. */
static fleet_status end_wait(fleet_dataset *d, fleet_status status)
{
    d->stops = d->trainer != NULL;
    return status == FLEET_EEND
               ? fl_fail(FLEET_EEND, "dataset: stopped while samples were "
                                     "read into memory")
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

static fleet_status check_files(const fleet_dataset *d, const char *call)
{
    if (d->memory->preload)
        return fl_fail(FLEET_ESTATE,
                       "%s: files are being read into memory: call "
                       "fleet_dataset_wait_preload_done() before",
                       call);
    return d->files.n > 0 ? FLEET_OK
                          : fl_fail(FLEET_ESTATE,
                                    "%s: the dataset has no files: call "
                                    "fleet_dataset_set_filelist()",
                                    call);
}

static fleet_status describe_files(const fleet_dataset *d, fl_json **files)
{
    fleet_status status;

    *files = fl_json_object();
    status = *files ? fl_position_files(&d->files, *files) : FLEET_ENOMEM;
    if (status != FLEET_OK) {
        fl_json_free(*files);
        *files = NULL;
    }
    return status;
}

fleet_status fleet_dataset_load_into_memory(fleet_dataset *d)
{
    static const char call[] = "fleet_dataset_load_into_memory";
    fl_sample_memory held = {.n_block = 0};
    fleet_status status;
    fl_json *files;

    FL_TRY(check_kind(d, call));
    FL_TRY(check_files(d, call));
    fl_dataset_memory_release(d->memory);
    FL_TRY(describe_files(d, &files));
    d->stops = true;
    status = end_wait(d, read_files(d, &held));
    if (status != FLEET_OK) {
        fl_sample_memory_done(&held);
        fl_json_free(files);
        return status;
    }
    take_samples(d, &held, files);
    return FLEET_OK;
}

static fleet_status start_preload(fleet_dataset *d)
{
    const fl_memory_limit limit = {.most = d->options.memory_limit,
                                   .used = d->memory->held.bytes};
    int64_t first_file;
    fl_stream_spec spec;

    FL_TRY(describe_load(d, &spec, &first_file));
    return fl_memory_preload_start(&d->memory->preload, &spec, (int)first_file,
                                   &d->files, &limit);
}

fleet_status fleet_dataset_preload_into_memory(fleet_dataset *d)
{
    static const char call[] = "fleet_dataset_preload_into_memory";
    fleet_status status;
    fl_json *files;

    FL_TRY(check_memory(d, call));
    FL_TRY(check_files(d, call));
    FL_TRY(describe_files(d, &files));
    d->stops = true;
    status = end_wait(d, start_preload(d));
    if (status != FLEET_OK) {
        fl_json_free(files);
        return status;
    }
    d->memory->preload_files = files;
    return FLEET_OK;
}

fleet_status fleet_dataset_wait_preload_done(fleet_dataset *d)
{
    static const char call[] = "fleet_dataset_wait_preload_done";
    fl_dataset_memory *m;
    fl_sample_memory held;
    fleet_status status;
    fl_stream_spec spec;
    bool over;

    FL_TRY(check_kind(d, call));
    m = d->memory;
    if (!m->preload)
        return fl_fail(FLEET_ESTATE,
                       "%s: nothing is being read: call "
                       "fleet_dataset_preload_into_memory() before",
                       call);
    spec = fl_dataset_spec(d);
    d->stops = true;
    status =
        end_wait(d, fl_memory_preload_wait(m->preload, &spec, &over, &held));
    if (!over)
        return status;
    fl_memory_preload_destroy(m->preload);
    m->preload = NULL;
    if (status == FLEET_OK) {
        fl_dataset_memory_release(m);
        take_samples(d, &held, m->preload_files);
    } else {
        fl_json_free(m->preload_files);
    }
    m->preload_files = NULL;
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

    FL_TRY(fl_in_memory_check(d, "fleet_dataset_local_shuffle"));
    m = d->memory;
    FL_TRY(fl_dataset_shuffle_pass(d, FL_SHUFFLE_LOCAL, &pass));
    fl_permutation_init(&m->view.order, m->held.rows,
                        fl_dataset_seed(d, pass, d->fleet->role.index));
    m->view.shuffled = m->held.rows > 0;
    m->of[FL_SHUFFLE_LOCAL] = pass;
    return FLEET_OK;
}

/* By slot: is it in the list? */
static fleet_status list_slots(const fleet_dataset *d, const char *const *names,
                               int n, bool *moved)
{
    for (int k = 0; k < n; k++) {
        int i = 0;

        while (names[k] && i < d->n_slot &&
               strcmp(d->slots[i].name, names[k]) != 0)
            i++;
        if (!names[k] || i == d->n_slot)
            return fl_fail(FLEET_ENOENT,
                           "fleet_dataset_slots_shuffle: the dataset has no "
                           "slot \"%.500s\"",
                           names[k] ? names[k] : "(NULL)");
        if (i >= fl_count_read_slots(d->slots, d->n_slot))
            return fl_fail(FLEET_EINVAL,
                           "fleet_dataset_slots_shuffle: slot \"%.500s\" is "
                           "made of other slots: expected these",
                           names[k]);
        moved[i] = true;
    }
    return FLEET_OK;
}

void fl_in_memory_move_none(fl_dataset_memory *m)
{
    fl_free(m->moved);
    m->moved = NULL;
    m->of[FL_SHUFFLE_SLOTS] = FL_NEVER;
}

fleet_status fleet_dataset_slots_shuffle(fleet_dataset *d,
                                         const char *const *slots, int n)
{
    static const char call[] = "fleet_dataset_slots_shuffle";
    const int64_t apart = (int64_t)1 << 32; /* from seeds of samples' orders */
    fleet_status status;
    int64_t pass;
    bool *moved;

    FL_TRY(fl_in_memory_check(d, call));
    if (n < 0 || (n > 0 && !slots))
        return fl_fail(FLEET_EINVAL, "%s: %d slots, of which there is no list",
                       call, n);
    FL_TRY(fl_dataset_shuffle_pass(d, FL_SHUFFLE_SLOTS, &pass));
    FL_TRY(FL_NEW(&moved, (size_t)d->n_slot * sizeof *moved));
    status = list_slots(d, slots, n, moved);
    if (status != FLEET_OK) {
        fl_free(moved);
        return status;
    }
    fl_in_memory_move_none(d->memory);
    if (n == 0 || d->memory->held.rows == 0) {
        fl_free(moved);
        return FLEET_OK;
    }
    fl_permutation_init(&d->memory->view.other, d->memory->held.rows,
                        fl_dataset_seed(d, pass, apart + d->fleet->role.index));
    d->memory->moved = moved;
    d->memory->of[FL_SHUFFLE_SLOTS] = pass;
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

    FL_TRY(fl_in_memory_check(d, call));
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

    FL_TRY(fl_in_memory_check(d, call));
    if (!samples)
        return fl_fail(FLEET_EINVAL, "%s: no place for the number", call);
    rows = d->memory->of[FL_SHUFFLE_LOCAL] == FL_NEVER &&
                   d->memory->of[FL_SHUFFLE_GLOBAL] == FL_NEVER
               ? 0
               : (int64_t)d->memory->held.rows;
    return put_size(d, all_workers, rows, samples);
}
