/* table_options.c - the life of a table's rows: ranges of its options, their
 * texts. */
#include "runtime/graph/table_options.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/error.h"

/* Counts are kept as floats, which are exact up to this one. */
enum { MOST_COUNT = 1 << 24 };

enum { MOST_BLOOM_COUNT = 4095 }; /* two counters in a float */
#define LEAST_RATE 1e-6
#define MOST_RATE  0.5
static const int64_t most_keys = (int64_t)1 << 40;

enum { LEAST_ROWS = 1024 }; /* of most_rows: one for each bucket */

static const char count_filter[] = "count_filter_entry:";
static const char probability[] = "probability_entry:";
static const char bloom[] = "bloom_filter_entry:";
static const char show_click[] = "show_click_entry:";

bool fl_table_has_life(const fleet_table_options *o)
{
    return o->entry.kind != FLEET_ENTRY_ALL || o->unknown_zeros ||
           o->accessor.kind != FLEET_NO_ACCESSOR || o->ttl_updates != 0 ||
           o->ttl_seconds != 0 || o->most_rows != 0 || o->most_bytes != 0;
}

static fleet_status check_bloom(const char *name, const fleet_entry *e)
{
    if (e->count < 2 || e->count > MOST_BLOOM_COUNT)
        return fl_fail(FLEET_EINVAL,
                       "%s: a Bloom filter of %" PRId64 ": expected 2 to %d",
                       name, e->count, MOST_BLOOM_COUNT);
    if (e->most_keys < 1 || e->most_keys > most_keys)
        return fl_fail(FLEET_EINVAL,
                       "%s: a Bloom filter of most_keys %" PRId64
                       ": expected 1 to %" PRId64,
                       name, e->most_keys, most_keys);
    if (!(e->false_positive_rate >= LEAST_RATE &&
          e->false_positive_rate <= MOST_RATE))
        return fl_fail(FLEET_EINVAL,
                       "%s: a Bloom filter of false_positive_rate %g: expected "
                       "%g to %g",
                       name, e->false_positive_rate, LEAST_RATE, MOST_RATE);
    return FLEET_OK;
}

/* The members of an entry that its kind does not read say nothing. */
static fleet_status check_unread(const char *name, const fleet_entry *e)
{
    const bool bloom_filter = e->kind == FLEET_BLOOM_FILTER_ENTRY;
    const bool counts = bloom_filter || e->kind == FLEET_COUNT_FILTER_ENTRY;
    const char *unread = NULL;

    if (e->count != 0 && !counts)
        unread = "count";
    else if (e->probability != 0 && e->kind != FLEET_PROBABILITY_ENTRY)
        unread = "probability";
    else if (e->most_keys != 0 && !bloom_filter)
        unread = "most_keys";
    else if (e->false_positive_rate != 0 && !bloom_filter)
        unread = "false_positive_rate";
    else if (e->score != 0 && e->kind != FLEET_SHOW_CLICK_ENTRY)
        unread = "score";
    return unread ? fl_fail(FLEET_EINVAL,
                            "%s: entry.%s is set, but entry.kind %d does not "
                            "read it",
                            name, unread, (int)e->kind)
                  : FLEET_OK;
}

static fleet_status check_entry(const char *name, const fleet_entry *e)
{
    switch (e->kind) {
    case FLEET_ENTRY_ALL:
        return FLEET_OK;
    case FLEET_COUNT_FILTER_ENTRY:
        if (e->count >= 1 && e->count <= MOST_COUNT)
            return FLEET_OK;
        return fl_fail(FLEET_EINVAL,
                       "%s: a count filter of %" PRId64 ": expected 1 to %d",
                       name, e->count, MOST_COUNT);
    case FLEET_PROBABILITY_ENTRY:
        if (e->probability > 0 && e->probability < 1)
            return FLEET_OK;
        return fl_fail(FLEET_EINVAL,
                       "%s: an entry of probability %g: expected above 0 and "
                       "below 1",
                       name, e->probability);
    case FLEET_BLOOM_FILTER_ENTRY:
        return check_bloom(name, e);
    case FLEET_SHOW_CLICK_ENTRY:
        if (e->score > 0 && e->score <= 1e30f)
            return FLEET_OK;
        return fl_fail(FLEET_EINVAL,
                       "%s: an entry of score %g: expected above 0 and up to "
                       "1e30",
                       name, (double)e->score);
    default:
        return fl_fail(FLEET_EINVAL, "%s: entry %d does not exist", name,
                       (int)e->kind);
    }
}

/* --- the accessor's numbers ----------------------------------------------- */

typedef struct accessor_number {
    const char *name;
    size_t at;
    float otherwise, low, high; /* otherwise: of 0 */
} accessor_number;

#define NUMBER(member, otherwise, low, high)                                   \
    {                                                                          \
#member, offsetof(fleet_accessor, member), otherwise, low, high        \
    }
static const accessor_number numbers[] = {
    NUMBER(nonclk_coeff, 0.1f, 0, 1e6f),
    NUMBER(click_coeff, 1, 0, 1e6f),
    NUMBER(show_click_decay_rate, 0.98f, 0, 1),
    NUMBER(delete_threshold, 0.8f, -1e30f, 1e30f),
    NUMBER(delete_after_unseen_days, 30, 0, 4000),
    NUMBER(base_threshold, 1.5f, -1e30f, 1e30f),
    NUMBER(delta_threshold, 0.25f, -1e30f, 1e30f),
    NUMBER(delta_keep_days, 16, 0, 4000),
    NUMBER(embedx_threshold, 10, -1e30f, 1e30f),
    NUMBER(ssd_unseenday_threshold, 0, 0, 4000),
};

enum { N_NUMBER = sizeof numbers / sizeof *numbers };

static float *number_at(const accessor_number *n, fleet_accessor *a)
{
    return (float *)(void *)((char *)a + n->at);
}

static float number_of(const accessor_number *n, const fleet_accessor *a)
{
    float x = *(const float *)(const void *)((const char *)a + n->at);

    return x == 0 ? n->otherwise : x;
}

void fl_accessor_fill(fleet_accessor *a)
{
    for (int i = 0; i < N_NUMBER; i++)
        *number_at(&numbers[i], a) = number_of(&numbers[i], a);
}

fleet_status fl_accessor_keep(fl_arena *arena, fleet_accessor *a)
{
    fl_accessor_fill(a);
    if (a->show && !(a->show = fl_arena_strdup(arena, a->show)))
        return FLEET_ENOMEM;
    if (a->click && !(a->click = fl_arena_strdup(arena, a->click)))
        return FLEET_ENOMEM;
    return FLEET_OK;
}

/* The first member that is set; NULL: none. */
static const char *asked_of(const fleet_accessor *a)
{
    for (int i = 0; i < N_NUMBER; i++)
        if (*(const float *)(const void *)((const char *)a + numbers[i].at) !=
            0)
            return numbers[i].name;
    return a->show              ? "show"
           : a->click           ? "click"
           : a->embedx_dim != 0 ? "embedx_dim"
                                : NULL;
}

static fleet_status check_accessor(const char *name, const fleet_accessor *a)
{
    if (a->kind == FLEET_NO_ACCESSOR)
        return asked_of(a) ? fl_fail(FLEET_EINVAL,
                                     "%s: accessor.%s without accessor.kind",
                                     name, asked_of(a))
                           : FLEET_OK;
    if (a->kind != FLEET_CTR_ACCESSOR)
        return fl_fail(FLEET_EINVAL, "%s: accessor %d does not exist", name,
                       (int)a->kind);
    if (a->embedx_dim == 0 && a->embedx_threshold != 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: embedx_threshold %g without embedx_dim", name,
                       (double)a->embedx_threshold);
    for (int i = 0; i < N_NUMBER; i++) {
        const accessor_number *n = &numbers[i];
        float x = number_of(n, a);

        if (!(x >= n->low && x <= n->high))
            return fl_fail(FLEET_EINVAL, "%s: %s %g: expected %g to %g", name,
                           n->name, (double)x, (double)n->low, (double)n->high);
    }
    return FLEET_OK;
}

fleet_status fl_accessor_vector_check(const char *name, const fleet_accessor *a,
                                      int64_t dim, fleet_row_storage storage)
{
    if (a->kind == FLEET_NO_ACCESSOR || a->embedx_dim == 0)
        return FLEET_OK;
    if (a->embedx_dim < 0 || a->embedx_dim >= dim)
        return fl_fail(FLEET_EINVAL,
                       "%s: embedx_dim %" PRId64 " of rows of %" PRId64
                       ": expected 0 or more, and at least one number before "
                       "the vector",
                       name, a->embedx_dim, dim);
    return storage == FLEET_ROW_FLOAT32
               ? FLEET_OK
               : fl_fail(FLEET_EUNSUPPORTED,
                         "%s: embedx_dim and a storage: rows are rounded as "
                         "one, with a vector that is not there",
                         name);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static const char *differing_number(const fleet_accessor *has,
                                    const fleet_accessor *want)
{
    if (want->kind == FLEET_NO_ACCESSOR)
        return NULL;
    if (has->kind != want->kind)
        return "accessor";
    for (int i = 0; i < N_NUMBER; i++)
        if (number_of(&numbers[i], has) != number_of(&numbers[i], want))
            return numbers[i].name;
    if (has->embedx_dim != want->embedx_dim)
        return "embedx_dim";
    if (!same_text(has->show, want->show))
        return "show";
    return same_text(has->click, want->click) ? NULL : "click";
}

bool fl_accessor_has_number(int i, const fleet_accessor *a)
{
    const size_t at = numbers[i].at;

    return (at != offsetof(fleet_accessor, embedx_threshold) ||
            a->embedx_dim != 0) &&
           (at != offsetof(fleet_accessor, ssd_unseenday_threshold) ||
            a->ssd_unseenday_threshold != 0);
}

static void print_accessor(const fleet_accessor *a, const char *between,
                           fl_text *out)
{
    fl_text_add(out, "accessor ctr%sshow %s%sclick %s", between,
                a->show ? a->show : "once", between,
                a->click ? a->click : "never");
    if (a->embedx_dim != 0)
        fl_text_add(out, "%sembedx_dim %" PRId64, between, a->embedx_dim);
    for (int i = 0; i < N_NUMBER; i++) {
        if (!fl_accessor_has_number(i, a))
            continue;
        fl_text_add(out, "%s%s ", between, numbers[i].name);
        fl_text_float(out, number_of(&numbers[i], a));
    }
}

/* --- all of them ---------------------------------------------------------- */

fleet_status fl_table_options_check(const char *name,
                                    const fleet_table_options *o)
{
    FL_TRY(check_entry(name, &o->entry));
    FL_TRY(check_unread(name, &o->entry));
    FL_TRY(check_accessor(name, &o->accessor));
    if (o->entry.kind == FLEET_SHOW_CLICK_ENTRY &&
        o->accessor.kind == FLEET_NO_ACCESSOR)
        return fl_fail(FLEET_EINVAL,
                       "%s: a show-click entry goes by an accessor, and there "
                       "is none",
                       name);
    if (o->ttl_updates < 0 || o->ttl_updates > FL_MOST_EXACT)
        return fl_fail(FLEET_EINVAL,
                       "%s: ttl_updates %" PRId64 ": expected 0 to 2^53 - 1",
                       name, o->ttl_updates);
    if (o->ttl_seconds < 0 || o->ttl_seconds > FL_MOST_EXACT)
        return fl_fail(FLEET_EINVAL,
                       "%s: ttl_seconds %" PRId64 ": expected 0 to 2^53 - 1",
                       name, o->ttl_seconds);
    if (o->most_bytes < 0 || o->most_bytes > FL_MOST_EXACT)
        return fl_fail(FLEET_EINVAL,
                       "%s: most_bytes %" PRId64 ": expected 0 to 2^53 - 1",
                       name, o->most_bytes);
    if (o->most_rows < 0 || (o->most_rows > 0 && o->most_rows < LEAST_ROWS))
        return fl_fail(FLEET_EINVAL,
                       "%s: most_rows %" PRId64 ": expected 0, or %d or more: "
                       "each bucket of the table has its share of them",
                       name, o->most_rows, LEAST_ROWS);
    return FLEET_OK;
}

static bool same_entry(const fleet_entry *a, const fleet_entry *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case FLEET_COUNT_FILTER_ENTRY:
        return a->count == b->count;
    case FLEET_PROBABILITY_ENTRY:
        return a->probability == b->probability;
    case FLEET_BLOOM_FILTER_ENTRY:
        return a->count == b->count && a->most_keys == b->most_keys &&
               a->false_positive_rate == b->false_positive_rate;
    case FLEET_SHOW_CLICK_ENTRY:
        return a->score == b->score;
    default:
        return true;
    }
}

const char *fl_table_options_differ(const fleet_table_options *has,
                                    const fleet_table_options *want)
{
    const char *number = differing_number(&has->accessor, &want->accessor);

    if (want->entry.kind != FLEET_ENTRY_ALL &&
        !same_entry(&has->entry, &want->entry))
        return "entry";
    if (want->unknown_zeros && !has->unknown_zeros)
        return "unknown_zeros";
    if (number)
        return number;
    if (want->ttl_updates != 0 && want->ttl_updates != has->ttl_updates)
        return "ttl_updates";
    if (want->ttl_seconds != 0 && want->ttl_seconds != has->ttl_seconds)
        return "ttl_seconds";
    if (want->most_bytes != 0 && want->most_bytes != has->most_bytes)
        return "most_bytes";
    return want->most_rows != 0 && want->most_rows != has->most_rows
               ? "most_rows"
               : NULL;
}

void fl_entry_print(const fleet_entry *e, fl_text *out)
{
    if (e->kind == FLEET_COUNT_FILTER_ENTRY)
        fl_text_add(out, "%s%" PRId64, count_filter, e->count);
    else if (e->kind == FLEET_BLOOM_FILTER_ENTRY)
        fl_text_add(out, "%s%" PRId64 ":%" PRId64 ":%.17g", bloom, e->count,
                    e->most_keys, e->false_positive_rate);
    else if (e->kind == FLEET_SHOW_CLICK_ENTRY)
        fl_text_add(out, "%s%.9g", show_click, (double)e->score);
    else
        fl_text_add(out, "%s%.17g", probability, e->probability);
}

/* What is before the next one. */
static const char *print_number(const char *name, int64_t x, const char *before,
                                const char *between, fl_text *out)
{
    if (x == 0)
        return before;
    fl_text_add(out, "%s%s %" PRId64, before, name, x);
    return between;
}

void fl_table_options_print(const fleet_table_options *o, const char *between,
                            fl_text *out)
{
    const char *before = "";

    if (o->entry.kind != FLEET_ENTRY_ALL) {
        fl_text_add(out, "entry ");
        fl_entry_print(&o->entry, out);
        before = between;
    }
    if (o->unknown_zeros) {
        fl_text_add(out, "%sunknown_zeros yes", before);
        before = between;
    }
    if (o->accessor.kind != FLEET_NO_ACCESSOR) {
        fl_text_add(out, "%s", before);
        print_accessor(&o->accessor, between, out);
        before = between;
    }
    before = print_number("ttl_updates", o->ttl_updates, before, between, out);
    before = print_number("ttl_seconds", o->ttl_seconds, before, between, out);
    before = print_number("most_rows", o->most_rows, before, between, out);
    print_number("most_bytes", o->most_bytes, before, between, out);
}

/* Digits, with `after` behind them; *text is behind that. */
static bool read_count(const char **text, char after, int64_t *n)
{
    size_t digits = strspn(*text, "0123456789");

    if (digits == 0 || (*text)[digits] != after)
        return false;
    *n = (int64_t)strtoll(*text, NULL, 10);
    *text += digits + 1;
    return true;
}

/* A decimal number to the end: no blank before it, no sign, not hexadecimal. */
static bool read_fraction(const char *text, double *x)
{
    char *end;

    if (!strchr("0123456789.", *text) || text[strspn(text, "0123456789.eE+-")])
        return false;
    *x = fl_text_number(text, &end);
    return end != text && *end == 0;
}

static bool read_bloom(const char *text, fleet_entry *entry)
{
    *entry = (fleet_entry){.kind = FLEET_BLOOM_FILTER_ENTRY};
    return read_count(&text, ':', &entry->count) &&
           read_count(&text, ':', &entry->most_keys) &&
           read_fraction(text, &entry->false_positive_rate);
}

bool fl_entry_read(const char *text, fleet_entry *entry)
{
    const size_t n = sizeof count_filter - 1, m = sizeof probability - 1;

    if (strncmp(text, count_filter, n) == 0) {
        text += n;
        *entry = (fleet_entry){.kind = FLEET_COUNT_FILTER_ENTRY};
        return read_count(&text, 0, &entry->count);
    }
    if (strncmp(text, bloom, sizeof bloom - 1) == 0)
        return read_bloom(text + sizeof bloom - 1, entry);
    if (strncmp(text, show_click, sizeof show_click - 1) == 0) {
        double score = 0;
        bool read = read_fraction(text + sizeof show_click - 1, &score);

        *entry = (fleet_entry){.kind = FLEET_SHOW_CLICK_ENTRY,
                               .score = (float)score};
        return read;
    }
    if (strncmp(text, probability, m) != 0)
        return false;
    *entry = (fleet_entry){.kind = FLEET_PROBABILITY_ENTRY};
    return read_fraction(text + m, &entry->probability);
}

const char *fl_accessor_number(int i, fleet_accessor *a, float **number)
{
    if (i >= N_NUMBER)
        return NULL;
    *number = number_at(&numbers[i], a);
    return numbers[i].name;
}
