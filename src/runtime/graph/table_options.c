/* table_options.c - the life of a table's rows: ranges of its options, their
 * texts. */
#include "runtime/graph/table_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

bool fl_table_has_life(const fleet_table_options *o)
{
    return o->entry.kind != FLEET_ENTRY_ALL || o->unknown_zeros ||
           o->ttl_updates != 0 || o->most_rows != 0;
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
    default:
        return fl_fail(FLEET_EINVAL, "%s: entry %d does not exist", name,
                       (int)e->kind);
    }
}

fleet_status fl_table_options_check(const char *name,
                                    const fleet_table_options *o)
{
    FL_TRY(check_entry(name, &o->entry));
    if (o->ttl_updates < 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: ttl_updates %" PRId64 ": expected 0 or more", name,
                       o->ttl_updates);
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
    default:
        return true;
    }
}

const char *fl_table_options_differ(const fleet_table_options *has,
                                    const fleet_table_options *want)
{
    if (want->entry.kind != FLEET_ENTRY_ALL &&
        !same_entry(&has->entry, &want->entry))
        return "entry";
    if (want->unknown_zeros && !has->unknown_zeros)
        return "unknown_zeros";
    if (want->ttl_updates != 0 && want->ttl_updates != has->ttl_updates)
        return "ttl_updates";
    return want->most_rows != 0 && want->most_rows != has->most_rows
               ? "most_rows"
               : NULL;
}

static void print_entry(const fleet_entry *e, fl_text *out)
{
    if (e->kind == FLEET_COUNT_FILTER_ENTRY)
        fl_text_add(out, "entry %s%" PRId64, count_filter, e->count);
    else if (e->kind == FLEET_BLOOM_FILTER_ENTRY)
        fl_text_add(out, "entry %s%" PRId64 ":%" PRId64 ":%.17g", bloom,
                    e->count, e->most_keys, e->false_positive_rate);
    else
        fl_text_add(out, "entry %s%.17g", probability, e->probability);
}

void fl_table_options_print(const fleet_table_options *o, const char *between,
                            fl_text *out)
{
    const char *before = "";

    if (o->entry.kind != FLEET_ENTRY_ALL) {
        print_entry(&o->entry, out);
        before = between;
    }
    if (o->unknown_zeros) {
        fl_text_add(out, "%sunknown_zeros yes", before);
        before = between;
    }
    if (o->ttl_updates != 0) {
        fl_text_add(out, "%sttl_updates %" PRId64, before, o->ttl_updates);
        before = between;
    }
    if (o->most_rows != 0)
        fl_text_add(out, "%smost_rows %" PRId64, before, o->most_rows);
}

static bool read_bloom(const char *text, fleet_entry *entry)
{
    char *end;

    *entry = (fleet_entry){.kind = FLEET_BLOOM_FILTER_ENTRY};
    entry->count = (int64_t)strtoll(text, &end, 10);
    if (end == text || *end != ':')
        return false;
    text = end + 1;
    entry->most_keys = (int64_t)strtoll(text, &end, 10);
    if (end == text || *end != ':')
        return false;
    text = end + 1;
    entry->false_positive_rate = strtod(text, &end);
    return end != text && *end == 0;
}

bool fl_entry_read(const char *text, fleet_entry *entry)
{
    size_t n = sizeof count_filter - 1, m = sizeof probability - 1;
    char *end = NULL;

    if (strncmp(text, count_filter, n) == 0) {
        *entry = (fleet_entry){.kind = FLEET_COUNT_FILTER_ENTRY,
                               .count = (int64_t)strtoll(text + n, &end, 10)};
        return end != text + n && *end == 0;
    }
    if (strncmp(text, bloom, sizeof bloom - 1) == 0)
        return read_bloom(text + sizeof bloom - 1, entry);
    if (strncmp(text, probability, m) != 0)
        return false;
    *entry = (fleet_entry){.kind = FLEET_PROBABILITY_ENTRY,
                           .probability = strtod(text + m, &end)};
    return end != text + m && *end == 0;
}
