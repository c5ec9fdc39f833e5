/* position.c - positions of datasets: written for saves, read, and gone on
 * from. */
#include "fleet/job/position.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/dataset_memory.h"
#include "fleet/job/inexact.h"
#include "fleet/job/position_data.h"
#include "fleet/job/trail_mark.h"
#include "runtime/exec/executor.h"

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

static fl_json *hex_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return fl_json_hex(bits);
}

/* Where workers are apart, the pass begins anew. */
static fleet_status put_position(const fleet_dataset *d, fl_json *entry)
{
    const bool apart = fl_inexact_apart(d->fleet);
    fl_position at = now_of(d);
    fl_json *data = NULL;

    FL_TRY(fl_json_put(entry, "pass", fl_json_int(at.pass)));
    FL_TRY(fl_json_put(entry, "batch", fl_json_int(apart ? 0 : at.batch)));
    if (!apart || at.batch > 0)
        FL_TRY(put_inexact(d->fleet, entry));
    if (at.pass > 0)
        FL_TRY(fl_json_put(entry, "last_loss", hex_of(at.last_loss)));
    if (!apart && at.batch > 0) {
        FL_TRY(fl_json_put(entry, "samples", fl_json_int(at.samples)));
        FL_TRY(fl_json_put(entry, "loss_sum", hex_of(at.loss_sum)));
    }
    if (d->memory && d->memory->pass_order)
        FL_TRY(
            fl_json_put(entry, "order", fl_json_copy(d->memory->pass_order)));
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

/* Of a load, which its dataset has not taken yet. */
static fleet_status put_saved(const fl_saved_position *s, fl_json *entry)
{
    FL_TRY(fl_json_put(entry, "pass", fl_json_int(s->at.pass)));
    FL_TRY(fl_json_put(entry, "batch", fl_json_int(s->at.batch)));
    FL_TRY(fl_json_put(entry, "last_loss", hex_of(s->at.last_loss)));
    FL_TRY(fl_json_put(entry, "samples", fl_json_int(s->at.samples)));
    FL_TRY(fl_json_put(entry, "loss_sum", hex_of(s->at.loss_sum)));
    if (s->order)
        FL_TRY(fl_json_put(entry, "order", fl_json_copy(s->order)));
    return s->data ? fl_json_put(entry, "data", fl_json_copy(s->data))
                   : FLEET_OK;
}

fleet_status fl_positions_all(const fleet *f, fl_json **list)
{
    FL_TRY(fl_positions_save(f, list));
    if (!*list)
        *list = fl_json_array();
    for (int i = 0; i < f->n_saved_position; i++) {
        fl_json *entry;

        if (f->saved_position[i].taken)
            continue;
        entry = fl_json_object();
        FL_TRY(fl_json_append(*list, entry));
        FL_TRY(put_saved(&f->saved_position[i], entry));
    }
    return FLEET_OK;
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

static fleet_status read_double(const fl_at *at, double *x)
{
    uint64_t bits;

    FL_TRY(fl_at_hex(at, &bits));
    memcpy(x, &bits, sizeof bits);
    return FLEET_OK;
}

static fleet_status read_middle(const fl_at *entry, fl_position *at)
{
    fl_at samples = fl_at_key(entry, "samples");
    fl_at loss = fl_at_key(entry, "loss_sum");

    FL_TRY(fl_at_required(&samples));
    FL_TRY(fl_at_int(&samples, 0, FL_MOST_EXACT, &at->samples));
    return read_double(&loss, &at->loss_sum);
}

static fleet_status read_order(const fl_at *entry, fl_saved_position *s)
{
    fl_at order = fl_at_key(entry, "order");

    if (!order.json)
        return FLEET_OK;
    if (!fl_at_is_object(&order))
        return fl_at_expected(&order, "an object");
    s->order = fl_json_copy(order.json);
    return s->order ? FLEET_OK : FLEET_ENOMEM;
}

/* Required in the middle of a pass. */
static fleet_status read_data(const fl_at *entry, fl_saved_position *s)
{
    fl_at data = fl_at_key(entry, "data");

    if (s->at.batch > 0)
        FL_TRY(fl_at_required(&data));
    if (!data.json)
        return FLEET_OK;
    if (!fl_at_is_object(&data))
        return fl_at_expected(&data, "an object");
    s->data = fl_json_copy(data.json);
    return s->data ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status read_position(const fl_at *entry, fl_saved_position *s)
{
    fl_at pass = fl_at_key(entry, "pass"), batch = fl_at_key(entry, "batch");
    fl_at why = fl_at_key(entry, "inexact");
    fl_at loss = fl_at_key(entry, "last_loss");
    const char *inexact = NULL;

    FL_TRY(fl_at_required(&pass));
    FL_TRY(fl_at_int(&pass, 0, FL_MOST_EXACT, &s->at.pass));
    FL_TRY(fl_at_required(&batch));
    FL_TRY(fl_at_int(&batch, 0, FL_MOST_EXACT, &s->at.batch));
    FL_TRY(fl_at_string(&why, &inexact));
    if (inexact && !(s->inexact = fl_strdup(inexact)))
        return FLEET_ENOMEM;
    if (loss.json)
        FL_TRY(read_double(&loss, &s->at.last_loss));
    if (s->at.batch > 0)
        FL_TRY(read_middle(entry, &s->at));
    FL_TRY(read_order(entry, s));
    return read_data(entry, s);
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
        fl_json_free(saved[i].order);
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

bool fl_position_same(const fl_json *a, const fl_json *b)
{
    char *x = fl_json_print(a, false), *y = fl_json_print(b, false);
    bool same = x && y && strcmp(x, y) == 0;

    fl_free(x);
    fl_free(y);
    return same;
}

/* What a key of the data is called where it differs; in this order. */
static const struct {
    const char *key, *title;
    bool of_files;
} titles[] = {{"seed", "seed", false},
              {"workers", "workers", false},
              {"format", "format", false},
              {"batch_size", "batch_size", false},
              {"shuffle", "shuffle", false},
              {"pipe_command", "pipe_command", false},
              {"lines", "lines", false},
              {"bad_lines", "max_bad_lines", false},
              {"lease_lines", "lease_lines", false},
              {"negative_rate", "negative_rate", false},
              {"draw_slot", "draw_slot", false},
              {"draw_most", "draw_most", false},
              {"files", "the number of files", true},
              {"first", "the first file", true},
              {"last", "the last file", true},
              {"bytes", "the size of all files", true}};

/* A seed is the number that fleet_options have. NULL: none was written. */
static void add_value(fl_text *t, const char *key, const fl_json *value)
{
    fl_at root = fl_at_root(value);
    char *text;
    uint64_t seed;

    if (!value) {
        fl_text_add(t, "not given");
        return;
    }
    text = fl_json_print(value, false);
    if (strcmp(key, "seed") == 0 && fl_at_hex(&root, &seed) == FLEET_OK)
        fl_text_add(t, "%" PRIu64, seed);
    else if (strcmp(key, "bytes") == 0)
        fl_text_add(t, "%s bytes", text ? text : "?");
    else
        fl_text_add(t, "%s", text ? text : "?");
    fl_free(text);
}

/* "batch_size was 32 and is 64, shuffle was ..."; where files differ, but
 * neither their number nor their size nor the first or last, that. */
static void list_differences(fl_text *t, const fl_json *was, const fl_json *is)
{
    fl_at old = fl_at_root(was), now = fl_at_root(is);
    bool files = fl_position_same(fl_at_key(&old, "names_and_sizes").json,
                                  fl_at_key(&now, "names_and_sizes").json);

    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        fl_at x = fl_at_key(&old, titles[i].key);
        fl_at y = fl_at_key(&now, titles[i].key);

        if (x.json && y.json ? fl_position_same(x.json, y.json)
                             : !x.json && !y.json)
            continue;
        fl_text_add(t, "%s%s was ", t->length > 0 ? ", " : "", titles[i].title);
        add_value(t, titles[i].key, x.json);
        fl_text_add(t, " and is ");
        add_value(t, titles[i].key, y.json);
        files = files || titles[i].of_files;
    }
    if (!files)
        fl_text_add(t,
                    "%snames or sizes of files between the first and the last "
                    "are others",
                    t->length > 0 ? ", " : "");
}

static fleet_status refuse_data(const fl_saved_position *s, const fl_json *is)
{
    fl_text t = {0};
    fleet_status status;

    list_differences(&t, s->data, is);
    status = fl_fail(FLEET_EINVAL,
                     "dataset: the save that was loaded is of pass %" PRId64
                     ", batch %" PRId64
                     ", of other data than this dataset has: %s. To begin "
                     "at the first batch of these data load it with position "
                     "FLEET_POSITION_ANEW; in a configuration as \"load\" "
                     "with \"position\": \"anew\", and without --resume",
                     s->at.pass, s->at.batch, fl_text_chars(&t));
    fl_text_done(&t);
    return status;
}

static bool has_data(const fleet_dataset *d)
{
    return d->files.n > 0 || (d->memory && d->memory->loaded);
}

/* Has the dataset, if it has files, the data of the saved position? */
static fleet_status compare_data(const fleet_dataset *d,
                                 const fl_saved_position *s, bool *same)
{
    fl_json *data = NULL;

    *same = false;
    if (!s->data || !has_data(d))
        return FLEET_OK;
    FL_TRY(fl_position_data(d, &data));
    *same = fl_position_same(s->data, data);
    fl_json_free(data);
    return FLEET_OK;
}

/* Of another dataset, that has not trained yet? */
static fleet_status is_anothers(const fleet_dataset *d,
                                const fl_saved_position *s, bool *same)
{
    *same = false;
    for (const fleet_dataset *i = d->fleet->datasets; i && !*same; i = i->next)
        if (i != d && i->begun == 0)
            FL_TRY(compare_data(i, s, same));
    return FLEET_OK;
}

/* That of the same data; else the first one that is left, unless another
 * dataset has just its data, as a training's has for that of a test; it must be
 * between two passes, before which data may change. NULL: none. */
static fleet_status choose_saved(const fleet_dataset *d,
                                 fl_saved_position **chosen)
{
    const fleet *f = d->fleet;
    fl_json *data = NULL;
    fleet_status status;
    bool same;

    *chosen = NULL;
    for (int i = 0; i < f->n_saved_position; i++) {
        fl_saved_position *s = &f->saved_position[i];

        if (s->taken)
            continue;
        FL_TRY(compare_data(d, s, &same));
        if (same) {
            *chosen = s;
            return FLEET_OK;
        }
        if (*chosen)
            continue;
        FL_TRY(is_anothers(d, s, &same));
        *chosen = same ? NULL : s;
    }
    if (!*chosen || (*chosen)->at.batch == 0)
        return FLEET_OK;
    FL_TRY(fl_position_data(d, &data));
    status = refuse_data(*chosen, data);
    fl_json_free(data);
    return status;
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

/* Samples in memory that were shuffled are no files in their order. */
static fleet_status take_order(fleet_dataset *d, const fl_saved_position *s)
{
    if (!d->memory && s->order && s->at.batch > 0)
        return fl_fail(FLEET_EINVAL,
                       "dataset: the save that was loaded is of pass %" PRId64
                       ", batch %" PRId64
                       ", over samples that were shuffled in memory: expected "
                       "an in-memory dataset",
                       s->at.pass, s->at.batch);
    if (!d->memory || !s->order)
        return FLEET_OK;
    fl_json_free(d->memory->pass_order);
    d->memory->pass_order = fl_json_copy(s->order);
    return d->memory->pass_order ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_position_take(fleet_dataset *d)
{
    fl_saved_position *chosen;

    if (d->begun > 0)
        return FLEET_OK;
    FL_TRY(fl_trail_mark_take(d->fleet));
    FL_TRY(choose_saved(d, &chosen));
    if (chosen) {
        FL_TRY(take_order(d, chosen));
        chosen->taken = true;
        d->at = chosen->at;
        note_position(d, chosen);
    }
    d->begun = ++d->fleet->n_begun;
    return FLEET_OK;
}

/* Passes over yesterday's files count as this dataset's, which a loop up to a
 * number of passes may not expect. */
static void note_other_files(fleet_dataset *d, const fl_saved_position *s)
{
    fl_json *data = NULL;
    fl_at was = fl_at_root(s->data), is;
    fl_text t = {0};

    if (d->noted || !s->data || s->at.pass == 0 ||
        fl_position_data(d, &data) != FLEET_OK)
        return;
    is = fl_at_root(data);
    if (!fl_position_same(fl_at_key(&was, "names_and_sizes").json,
                          fl_at_key(&is, "names_and_sizes").json)) {
        list_differences(&t, s->data, data);
        FL_WARN(
            &d->fleet->context.log,
            "dataset: the passes of the save that was loaded count (%" PRId64
            "), though they are of other files: %s. With position "
            "FLEET_POSITION_ANEW, \"anew\" in a configuration, it begins "
            "with pass 0",
            s->at.pass, fl_text_chars(&t));
        d->noted = true;
    }
    fl_text_done(&t);
    fl_json_free(data);
}

fleet_status fl_position_next(fleet_dataset *d, fl_position *at,
                              const fl_json **order)
{
    fl_saved_position *chosen = NULL;

    FL_TRY(fl_trail_mark_take(d->fleet));
    if (d->begun == 0)
        FL_TRY(choose_saved(d, &chosen));
    if (chosen)
        note_other_files(d, chosen);
    *at = chosen ? chosen->at : d->at;
    *order = chosen ? chosen->order : d->memory ? d->memory->pass_order : NULL;
    return FLEET_OK;
}

fleet_status fleet_dataset_position(fleet_dataset *d, int64_t *pass,
                                    int64_t *batch)
{
    const fl_json *order;
    fl_position at;

    if (!d || !pass || !batch)
        return fl_fail(FLEET_EINVAL, "fleet_dataset_position: NULL argument");
    if (!has_data(d))
        return fl_fail(FLEET_ESTATE,
                       "fleet_dataset_position: the dataset has no files: call "
                       "fleet_dataset_set_filelist()");
    FL_TRY(fl_position_next(d, &at, &order));
    *pass = at.pass;
    *batch = at.batch;
    return FLEET_OK;
}
