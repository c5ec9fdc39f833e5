/* position.c - positions of datasets: written for saves, read, and gone on
 * from. */
#include "fleet/job/position.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/memory.h"
#include "fleet/job/dataset.h"
#include "fleet/job/inexact.h"
#include "runtime/exec/executor.h"

/* --- what data it is of --------------------------------------------------- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* What cuts files into lines that are samples. */
static fl_json *lines_of(const fleet_dataset_options *o)
{
    fl_text t = {0};
    fl_json *json;

    fl_text_add(&t, "skip %" PRId64 "%s, separator %d, comment %d",
                o->skip_lines, o->header ? ", header" : "", o->separator,
                o->comment);
    json = t.status == FLEET_OK ? fl_json_string(fl_text_chars(&t)) : NULL;
    fl_text_done(&t);
    return json;
}

/* Names without their folders, which may be elsewhere by then, and sizes. */
static fleet_status put_files(const fl_paths *files, fl_json *json)
{
    int64_t bytes = 0;
    fl_hasher h;

    fl_hasher_init(&h, 0);
    for (size_t i = 0; i < files->n; i++) {
        const char *name = base_of(files->path[i]);
        struct stat st;
        int64_t size = stat(files->path[i], &st) == 0 ? (int64_t)st.st_size : 0;

        fl_hasher_add(&h, name, strlen(name) + 1);
        fl_hasher_add(&h, &size, sizeof size);
        bytes += size;
    }
    FL_TRY(fl_json_put(json, "files", fl_json_int((int64_t)files->n)));
    FL_TRY(fl_json_put(json, "first", fl_json_string(base_of(files->path[0]))));
    FL_TRY(fl_json_put(json, "last",
                       fl_json_string(base_of(files->path[files->n - 1]))));
    FL_TRY(fl_json_put(json, "bytes", fl_json_int(bytes)));
    return fl_json_put(json, "names_and_sizes", fl_json_hex(fl_hasher_end(&h)));
}

static fleet_status put_data(const fleet_dataset *d, fl_json *json)
{
    static const char *const formats[] = {"multislot", "criteo", "csv", "idx"};
    const fleet_dataset_options *o = &d->options;
    const char *pipe = o->pipe_command ? o->pipe_command : "cat";

    FL_TRY(fl_json_put(json, "seed", fl_json_hex(d->fleet->context.seed)));
    FL_TRY(
        fl_json_put(json, "workers", fl_json_int(d->fleet->role.worker_num)));
    FL_TRY(fl_json_put(json, "format", fl_json_string(formats[o->format])));
    FL_TRY(fl_json_put(json, "batch_size", fl_json_int(o->batch_size)));
    FL_TRY(fl_json_put(json, "shuffle", fl_json_int(o->shuffle)));
    FL_TRY(fl_json_put(json, "pipe_command", fl_json_string(pipe)));
    FL_TRY(fl_json_put(json, "lines", lines_of(o)));
    return put_files(&d->files, json);
}

fleet_status fl_position_data(const fleet_dataset *d, fl_json **data)
{
    fleet_status status;

    *data = fl_json_object();
    status = *data ? put_data(d, *data) : FLEET_ENOMEM;
    if (status != FLEET_OK) {
        fl_json_free(*data);
        *data = NULL;
    }
    return status;
}

/* --- written -------------------------------------------------------------- */

static fl_position now_of(const fleet_dataset *d)
{
    fl_position at = d->at;

    if (d->trainer)
        at.loss_sum = d->trainer->loss_sum;
    return at;
}

static fleet_status put_inexact(const fleet *f, fl_json *entry)
{
    fl_text why = {0};
    fleet_status status = fl_inexact_why(f, &why);

    if (status == FLEET_OK && why.length > 0)
        status =
            fl_json_put(entry, "inexact", fl_json_string(fl_text_chars(&why)));
    fl_text_done(&why);
    return status;
}

/* Where workers are apart, the pass begins anew. */
static fleet_status put_position(const fleet_dataset *d, fl_json *entry)
{
    const bool apart = fl_inexact_apart(d->fleet);
    fl_position at = now_of(d);
    fl_json *data = NULL;
    uint64_t bits;

    memcpy(&bits, &at.loss_sum, sizeof bits);
    FL_TRY(fl_json_put(entry, "pass", fl_json_int(at.pass)));
    FL_TRY(fl_json_put(entry, "batch", fl_json_int(apart ? 0 : at.batch)));
    if (!apart || at.batch > 0)
        FL_TRY(put_inexact(d->fleet, entry));
    if (apart || at.batch == 0)
        return FLEET_OK;
    FL_TRY(fl_json_put(entry, "samples", fl_json_int(at.samples)));
    FL_TRY(fl_json_put(entry, "loss_sum", fl_json_hex(bits)));
    FL_TRY(fl_position_data(d, &data));
    return fl_json_put(entry, "data", data);
}

static const fleet_dataset *next_begun(const fleet_dataset *list, int after)
{
    const fleet_dataset *next = NULL;

    for (const fleet_dataset *d = list; d; d = d->next)
        if (d->begun > after && (!next || d->begun < next->begun))
            next = d;
    return next;
}

fleet_status fl_positions_save(const fleet *f, fl_json **list)
{
    const fleet_dataset *d = next_begun(f->datasets, 0);
    fleet_status status = FLEET_OK;

    *list = NULL;
    if (!d)
        return FLEET_OK;
    *list = fl_json_array();
    if (!*list)
        return FLEET_ENOMEM;
    for (; d && status == FLEET_OK; d = next_begun(f->datasets, d->begun)) {
        fl_json *entry = fl_json_object();

        status = fl_json_append(*list, entry);
        if (status == FLEET_OK)
            status = put_position(d, entry);
    }
    if (status != FLEET_OK) {
        fl_json_free(*list);
        *list = NULL;
    }
    return status;
}

/* --- read ----------------------------------------------------------------- */

static fleet_status read_middle(const fl_at *entry, fl_saved_position *s)
{
    fl_at samples = fl_at_key(entry, "samples"),
          loss = fl_at_key(entry, "loss_sum"), data = fl_at_key(entry, "data");
    uint64_t bits;

    FL_TRY(fl_at_required(&samples));
    FL_TRY(fl_at_int(&samples, 0, (int64_t)1 << 53, &s->at.samples));
    FL_TRY(fl_at_hex(&loss, &bits));
    memcpy(&s->at.loss_sum, &bits, sizeof bits);
    FL_TRY(fl_at_required(&data));
    if (!fl_at_is_object(&data))
        return fl_at_expected(&data, "an object");
    s->data = fl_json_copy(data.json);
    return s->data ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status read_position(const fl_at *entry, fl_saved_position *s)
{
    fl_at pass = fl_at_key(entry, "pass"), batch = fl_at_key(entry, "batch");

    fl_at why = fl_at_key(entry, "inexact");
    const char *inexact = NULL;

    FL_TRY(fl_at_required(&pass));
    FL_TRY(fl_at_int(&pass, 0, (int64_t)1 << 53, &s->at.pass));
    FL_TRY(fl_at_required(&batch));
    FL_TRY(fl_at_int(&batch, 0, (int64_t)1 << 53, &s->at.batch));
    FL_TRY(fl_at_string(&why, &inexact));
    if (inexact && !(s->inexact = fl_strdup(inexact)))
        return FLEET_ENOMEM;
    return s->at.batch > 0 ? read_middle(entry, s) : FLEET_OK;
}

fleet_status fl_positions_read(const fl_at *list, fl_saved_position **saved,
                               int *n)
{
    fleet_status status = FLEET_OK;

    *saved = NULL;
    *n = 0;
    FL_TRY(fl_at_array(list));
    if (fl_at_count(list) == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(saved, (size_t)fl_at_count(list) * sizeof **saved));
    for (fl_at e = fl_at_first(list); e.json && status == FLEET_OK;
         fl_at_next(list, &e))
        status = read_position(&e, &(*saved)[(*n)++]);
    if (status != FLEET_OK) {
        fl_positions_done(*saved, *n);
        *saved = NULL;
        *n = 0;
    }
    return status;
}

void fl_positions_done(fl_saved_position *saved, int n)
{
    for (int i = 0; i < n; i++) {
        fl_json_free(saved[i].data);
        fl_free(saved[i].inexact);
    }
    fl_free(saved);
}

void fl_positions_set(fleet *f, fl_saved_position *saved, int n, bool begins)
{
    fl_positions_done(f->saved_position, f->n_saved_position);
    f->saved_position = saved;
    f->n_saved_position = n;
    if (!begins)
        return;
    f->n_begun = 0;
    for (fleet_dataset *d = f->datasets; d; d = d->next) {
        d->at = (fl_position){0};
        d->begun = 0;
    }
}

bool fl_positions_pass(const fleet *f)
{
    for (const fleet_dataset *d = f->datasets; d; d = d->next)
        if (d->trainer)
            return true;
    return false;
}

fl_position fl_positions_middle(const fleet *f)
{
    for (int i = 0; i < f->n_saved_position; i++)
        if (f->saved_position[i].at.batch > 0)
            return f->saved_position[i].at;
    return (fl_position){0};
}

fleet_status fl_positions_check(const fleet *f, const fl_position *first)
{
    const fl_position mine = fl_positions_middle(f);

    if (mine.pass == first->pass && mine.batch == first->batch)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "fleet_init_worker: worker 0 goes on in pass %" PRId64
                   " after batch %" PRId64 " (0: it has loaded nothing of the "
                   "kind), worker %d in pass %" PRId64 " after batch %" PRId64
                   ": all workers load the same save",
                   first->pass, first->batch, f->role.index, mine.pass,
                   mine.batch);
}

/* --- gone on from --------------------------------------------------------- */

static bool same_json(const fl_json *a, const fl_json *b)
{
    char *x = fl_json_print(a, false), *y = fl_json_print(b, false);
    bool same = x && y && strcmp(x, y) == 0;

    fl_free(x);
    fl_free(y);
    return same;
}

/* "batch_size was 32 and is 64, shuffle was ..." */
static void list_differences(fl_text *t, const fl_json *was, const fl_json *is)
{
    fl_at old = fl_at_root(was), now = fl_at_root(is);

    for (fl_at m = fl_at_first_member(&now); m.json;
         fl_at_next_member(&now, &m)) {
        fl_at o = fl_at_key(&old, fl_at_name(&m));
        char *x = fl_json_print(o.json, false),
             *y = fl_json_print(m.json, false);

        if (!x || !y || strcmp(x, y) != 0)
            fl_text_add(t, "%s%s was %s and is %s", t->length > 0 ? ", " : "",
                        fl_at_name(&m), x ? x : "absent", y ? y : "?");
        fl_free(x);
        fl_free(y);
    }
}

static fleet_status refuse_data(const fl_saved_position *s, const fl_json *is)
{
    fl_text t = {0};
    fleet_status status;

    list_differences(&t, s->data, is);
    status = fl_fail(FLEET_EINVAL,
                     "dataset: the save that was loaded is of pass %" PRId64
                     ", batch %" PRId64
                     ", of other data than this dataset has: %s. Load it with "
                     "position FLEET_POSITION_ANEW to begin at the first batch",
                     s->at.pass, s->at.batch, fl_text_chars(&t));
    fl_text_done(&t);
    return status;
}

/* That of the same data; else the first one that is left, if that is between
 * two passes, before which data may change. */
static fleet_status choose_saved(const fleet_dataset *d, const fl_json *data,
                                 fl_saved_position **chosen)
{
    const fleet *f = d->fleet;
    fl_saved_position *first = NULL;

    for (int i = 0; i < f->n_saved_position; i++) {
        fl_saved_position *s = &f->saved_position[i];

        if (s->taken)
            continue;
        first = first ? first : s;
        *chosen = s;
        if (s->data && same_json(s->data, data))
            return FLEET_OK;
    }
    *chosen = first;
    return first && first->at.batch > 0 ? refuse_data(first, data) : FLEET_OK;
}

static void note_position(const fleet_dataset *d, const fl_saved_position *s)
{
    const fl_position *at = &s->at;

    if (s->inexact)
        FL_WARN(&d->fleet->context.log,
                "dataset: goes on in pass %" PRId64 " after batch %" PRId64
                ", but not to the bit: %s",
                at->pass, at->batch, s->inexact);
    else if (at->batch > 0)
        FL_INFO(&d->fleet->context.log,
                "dataset: goes on in pass %" PRId64 " after batch %" PRId64,
                at->pass, at->batch);
}

fleet_status fl_position_take(fleet_dataset *d)
{
    fl_saved_position *chosen = NULL;
    fl_json *data = NULL;
    fleet_status status = FLEET_OK;

    if (d->begun > 0)
        return FLEET_OK;
    if (d->fleet->n_saved_position > 0) {
        FL_TRY(fl_position_data(d, &data));
        status = choose_saved(d, data, &chosen);
        fl_json_free(data);
    }
    FL_TRY(status);
    if (chosen) {
        chosen->taken = true;
        d->at = chosen->at;
        note_position(d, chosen);
    }
    d->begun = ++d->fleet->n_begun;
    return FLEET_OK;
}

fleet_status fleet_dataset_position(fleet_dataset *d, int64_t *pass,
                                    int64_t *batch)
{
    if (!d || !pass || !batch)
        return fl_fail(FLEET_EINVAL, "fleet_dataset_position: NULL argument");
    if (d->files.n == 0)
        return fl_fail(FLEET_ESTATE,
                       "fleet_dataset_position: the dataset has no files: call "
                       "fleet_dataset_set_filelist()");
    FL_TRY(fl_position_take(d));
    *pass = d->at.pass;
    *batch = d->at.batch;
    return FLEET_OK;
}
