/* check_spec.c - what a spec may not be. */
#include "data/layout/check_spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/layout/layout.h"
#include "data/layout/libsvm_slots.h"

enum { MOST_THREADS = 1024 };

static const int64_t MOST_ROWS = (int64_t)1 << 31, MOST_DIM = (int64_t)1 << 31;

static fleet_status bad_slot(const fleet_slot *s, const char *why)
{
    return fl_fail(FLEET_ECONFIG, "slot \"%s\": %s", s->name, why);
}

static fleet_status check_numbers(const fl_stream_spec *s)
{
    if (s->n_thread < 1 || s->n_thread > MOST_THREADS)
        return fl_fail(FLEET_EINVAL, "reader threads: expected 1 to %d, got %d",
                       MOST_THREADS, s->n_thread);
    if (s->batch_size < 1 || s->batch_size > MOST_ROWS)
        return fl_fail(FLEET_EINVAL,
                       "batch size: expected 1 to %" PRId64 ", got %" PRId64,
                       MOST_ROWS, s->batch_size);
    if (s->pipe_timeout_ms < 0 || s->pipe_timeout_ms > INT32_MAX)
        return fl_fail(FLEET_EINVAL,
                       "pipe_timeout_ms: expected 0 to %" PRId32
                       ", got %" PRId64,
                       INT32_MAX, s->pipe_timeout_ms);
    if (s->shuffle < 0)
        return fl_fail(FLEET_EINVAL,
                       "shuffle: expected 0 or more, got %" PRId64, s->shuffle);
    if (s->max_bad_lines < 0)
        return fl_fail(FLEET_EINVAL,
                       "max_bad_lines: expected 0 or more, got %" PRId64,
                       s->max_bad_lines);
    if (s->share_count < 1 || s->share_index < 0 ||
        s->share_index >= s->share_count)
        return fl_fail(FLEET_EINVAL, "share %" PRId64 " of %" PRId64 " is none",
                       s->share_index, s->share_count);
    return FLEET_OK;
}

static fleet_status check_csv_options(const fl_stream_spec *s)
{
    char sep = s->separator ? s->separator : ',';

    if (strchr("\n\r\"", sep))
        return fl_fail(FLEET_ECONFIG,
                       "separator: a newline or a quote cannot be one");
    if (s->skip_lines < 0)
        return fl_fail(FLEET_ECONFIG,
                       "skip_lines: expected 0 or more, got %" PRId64,
                       s->skip_lines);
    if (s->comment && (s->comment == sep || strchr("\n\r", s->comment)))
        return fl_fail(FLEET_ECONFIG,
                       "comment: the separator or a newline cannot be it");
    return FLEET_OK;
}

/* What only csv knows must not be set in vain; texts of Parquet may be missing,
 * too. */
static fleet_status check_no_csv_options(const fl_stream_spec *s)
{
    const bool other = s->separator && s->separator != ',';
    const char *set = s->header       ? "header"
                      : s->skip_lines ? "skip_lines"
                      : s->comment    ? "comment"
                      : s->missing && *s->missing && s->format != FLEET_PARQUET
                          ? "missing"
                      : other ? "separator"
                              : NULL;

    return set ? fl_fail(FLEET_ECONFIG, "%s: only csv files have it", set)
               : FLEET_OK;
}

static fleet_status check_slot(const fleet_slot *s)
{
    if (!s->name || !*s->name)
        return fl_fail(FLEET_ECONFIG, "a slot without a name");
    if (s->dtype && s->dtype != FLEET_FLOAT32 && s->dtype != FLEET_INT64)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": expected float32 or int64, got %s",
                       s->name, fleet_dtype_name(s->dtype));
    if (s->dim < -1 || s->dim > MOST_DIM)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": expected a dim of -1 (any number) or "
                       "more, got %" PRId64,
                       s->name, s->dim);
    if (s->weighted && (s->dtype != FLEET_INT64 || s->dim != -1))
        return bad_slot(s, "weights are for ids of any number: int64 with dim "
                           "-1");
    if (s->n_column < 0 || s->n_transform < 0 || s->n_equals < 0 ||
        (s->n_column && !s->columns) || (s->n_transform && !s->transforms) ||
        (s->n_equals && !s->equals))
        return bad_slot(s, "a list of another length than it says");
    return FLEET_OK;
}

static fleet_status check_transform(const fleet_slot *s, fleet_transform t)
{
    const bool id = fl_slot_is_id(s);

    if (t < FLEET_TRANSFORM_NONE || t > FLEET_WORDS)
        return fl_fail(FLEET_ECONFIG, "slot \"%s\": %d is no transform",
                       s->name, (int)t);
    if (!id && t == FLEET_HASH)
        return bad_slot(s, "hash makes ids, so it needs int64");
    if (t == FLEET_WORDS && (!id || s->dim != -1 || s->weighted))
        return bad_slot(s, "words makes any number of ids, so it needs int64 "
                           "with dim -1, and no weights");
    if (id && (t == FLEET_LOG1P || fl_standardizes(t)))
        return bad_slot(s, "log1p and standardize make numbers, so they need "
                           "float32");
    if (t == FLEET_EQUALS && s->n_equals == 0)
        return bad_slot(s, "equals needs texts to compare with");
    return FLEET_OK;
}

static fleet_status check_column(const fl_stream_spec *spec,
                                 const fleet_slot *s, int i)
{
    size_t n;

    if (!s->columns[i])
        return bad_slot(s, "a column without a name");
    n = strspn(s->columns[i], "0123456789");
    if (spec->format == FLEET_CSV && !spec->header &&
        (n < 1 || n > 9 || s->columns[i][n]))
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": without a header a column is a position "
                       "from 0, got \"%.60s\"",
                       s->name, s->columns[i]);
    return check_transform(s, fl_transform_of(s, i));
}

static fleet_status check_columns(const fl_stream_spec *spec,
                                  const fleet_slot *s)
{
    const int64_t dim = fl_slot_dim(s);
    const bool lists = spec->format == FLEET_PARQUET && s->n_column == 1;
    bool compares = false;

    if (s->n_column < 1)
        return bad_slot(s, spec->format == FLEET_CSV
                               ? "a csv slot needs columns"
                               : "a slot of Parquet needs columns");
    if (dim >= 0 && dim != s->n_column && !lists)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": its dim is %" PRId64 " but it has %d "
                       "columns",
                       s->name, dim, s->n_column);
    if (s->n_transform > 1 && s->n_transform != s->n_column)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": %d transforms for %d columns", s->name,
                       s->n_transform, s->n_column);
    for (int i = 0; i < s->n_column; i++) {
        FL_TRY(check_column(spec, s, i));
        compares = compares || fl_transform_of(s, i) == FLEET_EQUALS;
    }
    for (int i = 0; i < s->n_equals; i++)
        if (!s->equals[i])
            return bad_slot(s, "a text of equals is NULL");
    return s->n_equals && !compares
               ? bad_slot(s, "texts to compare with, but no equals")
               : FLEET_OK;
}

/* --- slots that no line has ----------------------------------------------- */

static fleet_status check_buckets(const fleet_slot *s)
{
    if (!s->buckets)
        return bad_slot(s, "a list of another length than it says");
    for (int i = 0; i < s->n_bucket; i++)
        if (!isfinite(s->buckets[i]) ||
            (i > 0 && s->buckets[i] <= s->buckets[i - 1]))
            return bad_slot(s, "boundaries of buckets are finite and rise");
    return FLEET_OK;
}

/* Slot i of the spec is made of that one; *dim is multiplied by its. */
static fleet_status check_source(const fl_stream_spec *spec, int i,
                                 const char *name, int64_t *dim)
{
    const fleet_slot *s = &spec->slots[i], *of;
    const int at = name ? fl_slot_named(spec->slots, i, name) : -1;
    const bool bucketed = s->n_bucket > 0;

    if (at < 0)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": from: expected the name of a slot in "
                       "front of it, got \"%.60s\"",
                       s->name, name ? name : "");
    of = &spec->slots[at];
    if (fl_slot_is_id(of) == bucketed || of->weighted)
        return fl_fail(FLEET_ECONFIG,
                       "slot \"%s\": from: expected a slot of %s, which "
                       "\"%s\" is not",
                       s->name, bucketed ? "numbers" : "ids without weights",
                       name);
    if (*dim < 0 || fl_slot_dim(of) < 0)
        *dim = -1;
    else if (__builtin_mul_overflow(*dim, fl_slot_dim(of), dim))
        return bad_slot(s, "too many values");
    return FLEET_OK;
}

static fleet_status check_made_slot(const fl_stream_spec *spec, int i)
{
    const fleet_slot *s = &spec->slots[i];
    const bool bucketed = s->n_bucket > 0;
    int64_t dim = 1;

    if (spec->format == FLEET_LIBSVM)
        return bad_slot(s, "from: not for libsvm");
    if (s->n_from == 0)
        return bad_slot(s, "slots that are made of others stand behind it: "
                           "expected in front of it");
    if (s->n_column || s->n_transform || s->n_equals || s->required ||
        s->weighted || !fl_slot_is_id(s))
        return bad_slot(s, "from: a slot that is made of others has ids "
                           "without weights, and nothing of a line's");
    if (!s->from || s->n_from < 0 || s->n_bucket < 0 ||
        (bucketed ? s->n_from != 1
                  : s->n_from < 2 || s->n_from > FL_MOST_CROSSED))
        return bad_slot(s, bucketed ? "from: buckets are of one slot"
                                    : "from: expected 2 to 8 slots that are "
                                      "crossed, or one and buckets");
    FL_TRY(bucketed ? check_buckets(s) : FLEET_OK);
    for (int k = 0; k < s->n_from; k++)
        FL_TRY(check_source(spec, i, s->from[k], &dim));
    return dim == fl_slot_dim(s)
               ? FLEET_OK
               : fl_fail(FLEET_ECONFIG,
                         "slot \"%s\": expected a dim of %" PRId64
                         ", as the slots that it is made of say, got %" PRId64,
                         s->name, dim, fl_slot_dim(s));
}

/* --- all slots ------------------------------------------------------------ */

fleet_status fl_spec_check_slots(const fl_stream_spec *spec, int *at)
{
    const bool columns = fl_has_columns(spec->format);
    int n_read;

    *at = 0;
    if (spec->n_slot < 1 || !spec->slots)
        return fl_fail(FLEET_ECONFIG, "a dataset needs slots");
    n_read = fl_count_read_slots(spec->slots, spec->n_slot);
    if (n_read == 0)
        return bad_slot(&spec->slots[0], "from: there is no slot in front");
    for (; *at < spec->n_slot; ++*at) {
        const fleet_slot *s = &spec->slots[*at];

        FL_TRY(check_slot(s));
        for (int j = 0; j < *at; j++)
            if (strcmp(s->name, spec->slots[j].name) == 0)
                return bad_slot(s, "stands twice");
        if (*at >= n_read)
            FL_TRY(check_made_slot(spec, *at));
        else if (s->n_bucket != 0)
            return bad_slot(s, "buckets, but no slot from which");
        else if (columns)
            FL_TRY(check_columns(spec, s));
        else if (s->n_column || s->n_transform || s->n_equals)
            return bad_slot(s, "only csv and Parquet files have columns and "
                               "transforms");
        if (s->required && !fl_slots_by_name(spec->format))
            return bad_slot(s, "required: in lines of this format no slot may "
                               "be missing");
        if (s->weighted &&
            (spec->format == FLEET_TFRECORD || spec->format == FLEET_PARQUET))
            return bad_slot(s, spec->format == FLEET_PARQUET
                                   ? "a column of Parquet has ids without "
                                     "weights"
                                   : "a feature of a tf.Example has ids "
                                     "without weights");
        if (spec->format == FLEET_SLOT_TEXT && strpbrk(s->name, ": \t\v\f\r"))
            return bad_slot(s, "a name in slot text has no colons and blanks");
    }
    return spec->format == FLEET_LIBSVM ? fl_libsvm_check(spec, at) : FLEET_OK;
}

/* The slots must be the format's own. For idx the width is compared when the
 * file is open. */
static fleet_status check_own_slots(const fl_stream_spec *spec, int n,
                                    const char *const name[2])
{
    bool same = spec->n_slot == n;

    for (int i = 0; same && i < n; i++) {
        const fleet_slot *s = &spec->slots[i];
        bool floats = i == (n > 2); /* criteo: the second, idx: the first */

        same =
            fl_slot_is_id(s) != floats && (i >= 2 || !strcmp(s->name, name[i]));
        if (n > 2)
            same = same && fl_slot_dim(s) == (i == 1 ? 13 : 1);
    }
    return same ? FLEET_OK
                : fl_fail(FLEET_ECONFIG,
                          "slots: criteo and idx files have their own");
}

static fleet_status check_whole(const fl_stream_spec *s)
{
    static const char *const criteo[] = {"label", "dense_input"};
    static const char *const idx[] = {"image", "label"};

    if (s->n_file < 0 || (s->n_file > 0 && !s->files))
        return fl_fail(FLEET_EINVAL, "%d files", s->n_file);
    if (s->format == FLEET_CRITEO)
        return check_own_slots(s, 28, criteo);
    if (s->format != FLEET_IDX)
        return FLEET_OK;
    if (s->n_file != (s->no_label ? 1 : 2))
        return fl_fail(FLEET_ECONFIG, "idx: expected %s, got %d",
                       s->no_label ? "one file, the images"
                                   : "two files, images and labels",
                       s->n_file);
    return check_own_slots(s, 2, idx);
}

fleet_status fl_spec_check_statistics(const fl_stream_spec *spec)
{
    const int n = fl_count_standardized(spec->slots, spec->n_slot);

    if (n == 0)
        return FLEET_OK;
    if (!spec->statistics)
        return fl_fail(FLEET_ECONFIG, "standardize: there are no statistics");
    if (spec->statistics->n != n)
        return fl_fail(FLEET_ECONFIG,
                       "standardize: %d columns want it, but the statistics "
                       "are of %d",
                       n, spec->statistics->n);
    return FLEET_OK;
}

fleet_status fl_spec_check_options(const fl_stream_spec *s)
{
    FL_TRY(check_numbers(s));
    if (s->format < FLEET_MULTISLOT || (int)s->format >= FL_N_FORMAT)
        return fl_fail(FLEET_EINVAL, "%d is no format", (int)s->format);
    if ((s->format == FLEET_IDX || s->format == FLEET_PARQUET) &&
        fl_command_of(s))
        return fl_fail(FLEET_ECONFIG, "pipe_command: not for %s files",
                       s->format == FLEET_IDX ? "idx" : "Parquet");
    if (s->format == FLEET_IDX && s->max_bad_lines)
        return fl_fail(FLEET_ECONFIG, "max_bad_lines: idx files have no lines");
    if (s->cache && (s->format == FLEET_IDX || fl_command_of(s)))
        return fl_fail(FLEET_ECONFIG, "cache: not for %s",
                       s->format == FLEET_IDX
                           ? "idx files"
                           : "what goes through a pipe_command, which may "
                             "change without a trace");
    return s->format == FLEET_CSV ? check_csv_options(s)
                                  : check_no_csv_options(s);
}

fleet_status fl_spec_check(const fl_stream_spec *spec)
{
    int at;

    FL_TRY(fl_spec_check_options(spec));
    FL_TRY(fl_spec_check_slots(spec, &at));
    return check_whole(spec);
}
