/* reading.c - a dataset's format and slots as JSON, in the words of a
 * configuration. */
#include "fleet/job/reading.h"

#include <float.h>
#include <string.h>

#include "base/json/json_write.h"
#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "data/layout/layout.h"
#include "fleet/job/dataset.h"

static const char *const types[] = {"float", "uint64", NULL};

/* --- into a save ---------------------------------------------------------- */

static fleet_status put_texts(fl_json *object, const char *key,
                              const char *const *text, int n)
{
    fl_json *list;

    FL_TRY(fl_json_put_array(object, key, &list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_string(text[i])));
    return FLEET_OK;
}

/* Of each column, what it is by default, too. */
static fleet_status put_columns(fl_json *to, const fleet_slot *s)
{
    fl_json *list;

    if (s->n_column == 0)
        return FLEET_OK;
    FL_TRY(put_texts(to, "columns", s->columns, s->n_column));
    FL_TRY(fl_json_put_array(to, "transform", &list));
    for (int i = 0; i < s->n_column; i++)
        FL_TRY(fl_json_append(
            list, fl_json_string(fl_transform_names[fl_transform_of(s, i)])));
    if (s->n_equals > 0)
        FL_TRY(put_texts(to, "value", s->equals, s->n_equals));
    return FLEET_OK;
}

/* Of a slot that no line has. */
static fleet_status put_sources(fl_json *to, const fleet_slot *s)
{
    fl_json *list;

    FL_TRY(put_texts(to, "from", s->from, s->n_from));
    if (s->n_bucket == 0)
        return FLEET_OK;
    FL_TRY(fl_json_put_array(to, "buckets", &list));
    for (int i = 0; i < s->n_bucket; i++)
        FL_TRY(fl_json_append(list, fl_json_double((double)s->buckets[i], 9)));
    return FLEET_OK;
}

static fleet_status put_slot(fl_json *list, const fleet_slot *s, int place)
{
    fl_json *to = fl_json_object();

    FL_TRY(fl_json_append(list, to));
    FL_TRY(fl_json_put(to, "name", fl_json_string(s->name)));
    FL_TRY(fl_json_put(to, "type", fl_json_string(types[fl_slot_is_id(s)])));
    FL_TRY(fl_json_put(to, "dim", fl_json_int(fl_slot_dim(s))));
    FL_TRY(fl_json_put(to, "seed", fl_json_int(place)));
    if (s->weighted)
        FL_TRY(fl_json_put(to, "weighted", fl_json_bool(true)));
    if (s->required)
        FL_TRY(fl_json_put(to, "required", fl_json_bool(true)));
    return s->n_from > 0 ? put_sources(to, s) : put_columns(to, s);
}

static fleet_status put_csv(fl_json *to, const fleet_dataset_options *o)
{
    if (!fl_has_columns(o->format))
        return FLEET_OK;
    FL_TRY(
        fl_json_put(to, "separator", fl_json_int((unsigned char)o->separator)));
    FL_TRY(fl_json_put(to, "comment", fl_json_int((unsigned char)o->comment)));
    FL_TRY(fl_json_put(to, "header", fl_json_bool(o->header != 0)));
    FL_TRY(fl_json_put(to, "skip_lines", fl_json_int(o->skip_lines)));
    return fl_json_put(to, "missing",
                       fl_json_string(o->missing ? o->missing : ""));
}

static bool has_command(const fleet_dataset *d)
{
    return fl_command_of(&(fl_stream_spec){
               .pipe_command = d->options.pipe_command}) != NULL;
}

static fleet_status describe_dataset(const fleet_dataset *d, const char *label,
                                     fl_json *to)
{
    fl_json *slots;

    FL_TRY(fl_json_put(to, "format",
                       fl_json_string(fl_format_names[d->options.format])));
    FL_TRY(put_csv(to, &d->options));
    FL_TRY(fl_json_put(to, "piped", fl_json_bool(has_command(d))));
    if (label)
        FL_TRY(fl_json_put(to, "label", fl_json_string(label)));
    FL_TRY(fl_json_put_array(to, "slots", &slots));
    for (int i = 0; i < d->n_slot; i++)
        FL_TRY(put_slot(slots, &d->slots[i], i));
    return FLEET_OK;
}

fleet_status fl_reading_save(const fleet_dataset *d, const char *label,
                             fl_json **json)
{
    fleet_status status;

    *json = NULL;
    if (d->n_slot == 0)
        return FLEET_OK;
    *json = fl_json_object();
    status = describe_dataset(d, label, *json);
    if (status != FLEET_OK) {
        fl_json_free(*json);
        *json = NULL;
    }
    return status;
}

/* --- out of a save -------------------------------------------------------- */

/* Texts of an array, copied; absent: none. */
static fleet_status take_texts(fl_reading *r, const fl_at *at,
                               const char *const **text, int *n)
{
    const char **copy;

    FL_TRY(fl_at_array(at));
    *n = fl_at_count(at);
    if (*n == 0)
        return FLEET_OK;
    copy = fl_arena_alloc(&r->arena, (size_t)*n * sizeof *copy);
    if (!copy)
        return FLEET_ENOMEM;
    *text = copy;
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        const char *one = "";

        FL_TRY(fl_at_string(&e, &one));
        copy[e.index] = fl_arena_strdup(&r->arena, one);
        if (!copy[e.index])
            return FLEET_ENOMEM;
    }
    return FLEET_OK;
}

static fleet_status take_transforms(fl_reading *r, const fl_at *at,
                                    fleet_slot *s)
{
    fleet_transform *copy;

    FL_TRY(fl_at_array(at));
    s->n_transform = fl_at_count(at);
    if (s->n_transform == 0)
        return FLEET_OK;
    copy = fl_arena_alloc(&r->arena, (size_t)s->n_transform * sizeof *copy);
    if (!copy)
        return FLEET_ENOMEM;
    s->transforms = copy;
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        int which = 0;

        FL_TRY(fl_at_choice(&e, fl_transform_names, &which));
        copy[e.index] = (fleet_transform)which;
    }
    return FLEET_OK;
}

static fleet_status take_buckets(fl_reading *r, const fl_at *at, fleet_slot *s)
{
    float *copy;

    FL_TRY(fl_at_array(at));
    s->n_bucket = fl_at_count(at);
    if (s->n_bucket == 0)
        return FLEET_OK;
    s->buckets = copy =
        fl_arena_alloc(&r->arena, (size_t)s->n_bucket * sizeof *copy);
    if (!copy)
        return FLEET_ENOMEM;
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        double x = 0;

        FL_TRY(fl_at_double(&e, -FLT_MAX, FLT_MAX, &x));
        copy[e.index] = (float)x;
    }
    return FLEET_OK;
}

static fleet_status take_text(fl_reading *r, const fl_at *at, const char **text)
{
    const char *found = "";

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_string(at, &found));
    *text = fl_arena_strdup(&r->arena, found);
    return *text ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status take_slot(fl_reading *r, const fl_at *at, fleet_slot *s,
                              uint64_t *seed)
{
    static const char *const keys[] = {
        "name",      "type",  "dim",      "seed", "weighted", "columns",
        "transform", "value", "required", "from", "buckets",  NULL};
    fl_at from = fl_at_key(at, "from"), buckets = fl_at_key(at, "buckets");
    fl_at name = fl_at_key(at, "name"), type = fl_at_key(at, "type");
    fl_at dim = fl_at_key(at, "dim"), seeds = fl_at_key(at, "seed");
    fl_at weighted = fl_at_key(at, "weighted");
    fl_at columns = fl_at_key(at, "columns"), value = fl_at_key(at, "value");
    fl_at transform = fl_at_key(at, "transform");
    fl_at required = fl_at_key(at, "required");
    bool is_weighted = false, is_required = false;
    int64_t hashed_with = 0;
    int which = 0;

    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(take_text(r, &name, &s->name));
    FL_TRY(fl_at_required(&type));
    FL_TRY(fl_at_choice(&type, types, &which));
    s->dtype = which ? FLEET_INT64 : FLEET_FLOAT32;
    FL_TRY(fl_at_required(&dim));
    FL_TRY(fl_at_int(&dim, -1, (int64_t)1 << 31, &s->dim));
    FL_TRY(fl_at_required(&seeds));
    FL_TRY(fl_at_int(&seeds, 0, FL_MOST_EXACT, &hashed_with));
    *seed = (uint64_t)hashed_with;
    FL_TRY(fl_at_bool(&weighted, &is_weighted));
    FL_TRY(fl_at_bool(&required, &is_required));
    s->weighted = is_weighted;
    s->required = is_required;
    FL_TRY(take_texts(r, &columns, &s->columns, &s->n_column));
    FL_TRY(take_transforms(r, &transform, s));
    FL_TRY(take_texts(r, &from, &s->from, &s->n_from));
    FL_TRY(take_buckets(r, &buckets, s));
    return take_texts(r, &value, &s->equals, &s->n_equals);
}

static fleet_status take_slots(fl_reading *r, const fl_at *at)
{
    const int n = fl_at_count(at);

    FL_TRY(fl_at_required(at));
    if (!fl_at_is_array(at) || n < 1)
        return fl_at_expected(at, "an array of slots");
    r->slots = fl_arena_alloc(&r->arena, (size_t)n * sizeof *r->slots);
    r->seeds = fl_arena_alloc(&r->arena, (size_t)n * sizeof *r->seeds);
    if (!r->slots || !r->seeds)
        return FLEET_ENOMEM;
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        FL_TRY(take_slot(r, &e, &r->slots[e.index], &r->seeds[e.index]));
        r->n_slot++;
    }
    return FLEET_OK;
}

static fleet_status take_char(const fl_at *at, char *out)
{
    int64_t byte = 0;

    FL_TRY(fl_at_int(at, 0, 255, &byte));
    *out = (char)byte;
    return FLEET_OK;
}

static fleet_status take_csv(fl_reading *r, const fl_at *at)
{
    fl_at separator = fl_at_key(at, "separator");
    fl_at comment = fl_at_key(at, "comment"), header = fl_at_key(at, "header");
    fl_at skip = fl_at_key(at, "skip_lines");
    fl_at missing = fl_at_key(at, "missing");
    bool has_header = false;

    FL_TRY(take_char(&separator, &r->separator));
    FL_TRY(take_char(&comment, &r->comment));
    FL_TRY(fl_at_bool(&header, &has_header));
    r->header = has_header;
    FL_TRY(fl_at_int(&skip, 0, FL_MOST_EXACT, &r->skip_lines));
    return missing.json ? take_text(r, &missing, &r->missing) : FLEET_OK;
}

static fleet_status find_label(fl_reading *r, const fl_at *at)
{
    const char *name = NULL;

    r->label = -1;
    FL_TRY(fl_at_string(at, &name));
    for (int i = 0; name && i < r->n_slot; i++)
        if (strcmp(r->slots[i].name, name) == 0)
            r->label = i;
    return name && r->label < 0 ? fl_at_expected(at, "the name of a slot")
                                : FLEET_OK;
}

/* As a dataset's are, and the statistics are of as many columns. */
static fleet_status check_reading(const fl_reading *r)
{
    const fl_stream_spec spec = {.format = r->format,
                                 .slots = r->slots,
                                 .n_slot = r->n_slot,
                                 .batch_size = 1,
                                 .n_thread = 1,
                                 .separator = r->separator,
                                 .comment = r->comment,
                                 .header = r->header,
                                 .skip_lines = r->skip_lines,
                                 .missing = r->missing,
                                 .statistics = &r->statistics,
                                 .share_count = 1};
    int at;

    FL_TRY(fl_spec_check_options(&spec));
    FL_TRY(fl_spec_check_slots(&spec, &at));
    return r->statistics.n > 0 ? fl_spec_check_statistics(&spec) : FLEET_OK;
}

static fleet_status load_reader(fl_reading *r, const fl_at *reader,
                                const fl_at *statistics)
{
    static const char *const keys[] = {
        "format",  "separator", "comment", "header", "skip_lines",
        "missing", "piped",     "label",   "slots",  NULL};
    fl_at format = fl_at_key(reader, "format");
    fl_at piped = fl_at_key(reader, "piped");
    fl_at slots = fl_at_key(reader, "slots");
    fl_at label = fl_at_key(reader, "label");
    int which = 0;

    FL_TRY(fl_at_keys(reader, keys));
    FL_TRY(fl_at_required(&format));
    FL_TRY(fl_at_choice(&format, fl_format_names, &which));
    r->format = (fleet_format)which;
    FL_TRY(take_csv(r, reader));
    FL_TRY(fl_at_bool(&piped, &r->is_piped));
    FL_TRY(take_slots(r, &slots));
    FL_TRY(find_label(r, &label));
    if (statistics->json)
        FL_TRY(fl_statistics_load(&r->statistics, statistics));
    return check_reading(r);
}

fleet_status fl_reading_load(fl_reading *r, const fl_at *reader,
                             const fl_at *statistics)
{
    fleet_status status;

    *r = (fl_reading){.label = -1};
    status = load_reader(r, reader, statistics);
    if (status != FLEET_OK)
        fl_reading_done(r);
    return status;
}

void fl_reading_done(fl_reading *r)
{
    fl_statistics_done(&r->statistics);
    fl_arena_done(&r->arena);
    *r = (fl_reading){.label = -1};
}
