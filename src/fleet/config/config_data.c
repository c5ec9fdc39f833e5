/* config_data.c - the configuration's dataset. */
#include <string.h>

#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "fleet/config/config_internal.h"

static fleet_status read_char(const fl_at *at, char *out)
{
    const char *text = NULL;

    FL_TRY(fl_at_string(at, &text));
    if (!text)
        return FLEET_OK;
    if (strlen(text) != 1)
        return fl_at_expected(at, "one character");
    *out = text[0];
    return FLEET_OK;
}

static fleet_status read_csv(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"separator", "header", "skip_lines",
                                       "comment", NULL};
    static const char *const missing[] = {"missing", NULL};
    fleet_dataset_options *o = &c->dataset;
    bool header = false;
    fl_at one;

    FL_TRY(fl_config_csv_alone(c, at, keys));
    FL_TRY(fl_config_columns_alone(c, at, missing));
    one = fl_at_key(at, "separator");
    FL_TRY(read_char(&one, &o->separator));
    one = fl_at_key(at, "comment");
    FL_TRY(read_char(&one, &o->comment));
    one = fl_at_key(at, "header");
    FL_TRY(fl_at_bool(&one, &header));
    o->header = header;
    one = fl_at_key(at, "skip_lines");
    FL_TRY(fl_at_int(&one, 0, 1000000, &o->skip_lines));
    one = fl_at_key(at, "missing");
    return fl_at_string(&one, &o->missing);
}

static fleet_status read_files(fl_config *c, const fl_at *at, const char *key,
                               bool required, const char ***files, int *n)
{
    fl_at list = fl_at_key(at, key);

    if (required)
        FL_TRY(fl_at_required(&list));
    FL_TRY(fl_config_texts(c, &list, files, n));
    if (c->dataset.format == FLEET_IDX && *n != 2 && list.json)
        return fl_at_expected(&list, "two files, the images and the labels");
    if (*n == 0 && list.json)
        return fl_at_expected(&list, "at least one file");
    return FLEET_OK;
}

int fl_config_has_stdin(const char *const *files, int n)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += strcmp(files[i], "-") == 0;
    return found;
}

/* Standard input comes once: it is for one pass of one list. */
static fleet_status check_stdin(const fl_config *c, const fl_at *at)
{
    const int train = fl_config_has_stdin(c->train, c->n_train);
    const int test = fl_config_has_stdin(c->test, c->n_test);
    const int items = fl_config_has_stdin(c->items, c->n_items);
    fl_at one = fl_at_key(at, train > 1 ? "train" : "test");

    if (train > 1 || test > 1)
        return fl_at_expected(&one, "files: \"-\", standard input, once");
    one = fl_at_key(at, "train");

    if (train && c->epochs > 1)
        return fl_at_expected(&one, "files: \"-\", standard input, can be read "
                                    "once, and epochs is above 1");
    one = fl_at_key(at, "test");
    if (train && test)
        return fl_at_expected(&one, "files: \"-\", standard input, can be read "
                                    "once, and train does");
    one = fl_at_key(at, items ? "items" : "validation");
    return items || fl_config_has_stdin(c->validation, c->n_validation)
               ? fl_at_expected(&one,
                                "files, which are read several times, and "
                                "not \"-\", standard input")
               : FLEET_OK;
}

/* What is done to files, whatever their format. */
static fleet_status read_passes(fl_config *c, const fl_at *at)
{
    fleet_dataset_options *o = &c->dataset;
    int64_t threads = 1;
    bool cache = false;
    fl_at one = fl_at_key(at, "pipe_command");

    FL_TRY(fl_at_string(&one, &o->pipe_command));
    one = fl_at_key(at, "pipe_timeout_ms");
    FL_TRY(fl_at_int(&one, 0, INT32_MAX, &o->pipe_timeout_ms));
    o->batch_size = 1;
    one = fl_at_key(at, "batch_size");
    FL_TRY(fl_at_int(&one, 1, 1 << 24, &o->batch_size));
    one = fl_at_key(at, "thread_num");
    FL_TRY(fl_at_int(&one, 1, 64, &threads));
    o->thread_num = (int)threads;
    one = fl_at_key(at, "shuffle");
    FL_TRY(fl_at_int(&one, 0, (int64_t)1 << 40, &o->shuffle));
    one = fl_at_key(at, "lease_lines");
    FL_TRY(fl_at_int(&one, 0, (int64_t)1 << 32, &o->lease_lines));
    one = fl_at_key(at, "max_bad_lines");
    FL_TRY(fl_at_int(&one, 0, (int64_t)1 << 40, &o->max_bad_lines));
    one = fl_at_key(at, "cache");
    FL_TRY(fl_at_bool(&one, &cache));
    o->cache = cache;
    one = fl_at_key(at, "negative_rate");
    FL_TRY(fl_at_double(&one, 1e-9, 1, &o->negative_rate));
    one = fl_at_key(at, "draw_most");
    return fl_at_double(&one, 1e-30, 1e30, &o->draw_most);
}

static const char *const shuffle_names[] = {"none", "local", "global", NULL};

/* Samples of the training in memory. */
static fleet_status read_memory(fl_config *c, const fl_at *at)
{
    fl_at one = fl_at_key(at, "in_memory"), own;

    FL_TRY(fl_at_bool(&one, &c->in_memory));
    one = fl_at_key(at, "shuffle");
    if (c->in_memory && c->dataset.shuffle > 0)
        return fl_at_expected(&one, "0: with in_memory there is memory_shuffle "
                                    "for it");
    one = fl_at_key(at, "lease_lines");
    if (c->in_memory && c->dataset.lease_lines > 0)
        return fl_at_expected(&one, "0: with in_memory each worker has its "
                                    "samples in memory");
    one = fl_at_key(at, "negative_rate");
    if (c->in_memory && one.json)
        return fl_at_expected(&one, "nothing: with in_memory each pass has all "
                                    "samples");
    one = fl_at_key(at, "memory_shuffle");
    own = fl_at_key(at, "memory_limit");
    if (!c->in_memory && (one.json || own.json))
        return fl_at_expected(one.json ? &one : &own,
                              "nothing: in_memory is not true");
    FL_TRY(fl_at_choice(&one, shuffle_names, &c->memory_shuffle));
    return fl_at_int(&own, 0, (int64_t)1 << 50, &c->memory_limit);
}

/* The dataset's own checks. */
static fleet_status check_options(const fl_config *c, const fl_at *at)
{
    const fleet_dataset_options *o = &c->dataset;
    fl_cache_state cache = {false};
    const fl_stream_spec spec = {.format = o->format,
                                 .batch_size = o->batch_size,
                                 .n_thread = o->thread_num,
                                 .pipe_command = o->pipe_command,
                                 .pipe_timeout_ms = o->pipe_timeout_ms,
                                 .max_bad_lines = o->max_bad_lines,
                                 .cache = o->cache ? &cache : NULL,
                                 .separator = o->separator,
                                 .comment = o->comment,
                                 .missing = o->missing,
                                 .share_count = 1};

    return fl_config_in(fl_spec_check_options(&spec), at->path);
}

fleet_status fl_config_read_dataset(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {
        "format",          "train",         "test",       "pipe_command",
        "pipe_timeout_ms", "batch_size",    "thread_num", "shuffle",
        "lease_lines",     "separator",     "header",     "skip_lines",
        "missing",         "comment",       "validation", "items",
        "max_bad_lines",   "cache",         "in_memory",  "memory_shuffle",
        "memory_limit",    "negative_rate", "draw_most",  NULL};
    int format = 0;
    fl_at one;

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_keys(at, keys));
    one = fl_at_key(at, "format");
    FL_TRY(fl_at_required(&one));
    FL_TRY(fl_at_choice(&one, fl_format_names, &format));
    c->dataset.format = (fleet_format)format;
    FL_TRY(read_passes(c, at));
    FL_TRY(read_memory(c, at));
    FL_TRY(read_csv(c, at));
    FL_TRY(read_files(c, at, "train", true, &c->train, &c->n_train));
    FL_TRY(read_files(c, at, "test", false, &c->test, &c->n_test));
    FL_TRY(read_files(c, at, "validation", false, &c->validation,
                      &c->n_validation));
    FL_TRY(read_files(c, at, "items", false, &c->items, &c->n_items));
    FL_TRY(check_stdin(c, at));
    return check_options(c, at);
}
