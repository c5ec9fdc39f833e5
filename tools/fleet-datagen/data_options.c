/* data_options.c - the command line, checked. */
#include "data_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/format/formats.h"

const char data_options_usage[] =
    "usage: fleet-datagen [OPTION]... FILE\n"
    "\n"
    "Writes made-up click logs, or histories of ids, and to stdout a line of "
    "JSON with\nthe best score that can be reached on them. FILE - is stdout; "
    "then that line goes\nto stderr. A name that ends with .gz is compressed.\n"
    "  --format F     multislot, csv, criteo, libsvm, slot_text, json_lines,\n"
    "                 tfrecord, parquet (default multislot)\n"
    "  --lines N      how many (default 100000)\n"
    "  --first N      begin with that line of the set, from 0 (default 0)\n"
    "  --seed N       of the hidden model and the lines (default 0)\n"
    "  --ids N        ids of each slot (default 100000, at most 2^31), or "
    "items "
    "of\n                 histories (default 1000)\n"
    "  --zipf X       exponent of how often ids come (default 1.05; 0: all "
    "alike)\n"
    "  --positive X   about that share of labels is 1 (default 0.25)\n"
    "  --signal X     how much labels depend on the line (default 2)\n"
    "  --config FILE  writes a configuration of fleet-train that reads them\n"
    "  --model NAME   of that configuration (default wide_deep; din of "
    "histories,\n                 gru4rec of pairs)\n"
    "click logs:\n"
    "  --dense N      counts in a line (default 13, at most 64)\n"
    "  --slots N      slots of one id (default 26, at most 1024)\n"
    "histories, an item behind each, and whether it was clicked:\n"
    "  --history N    ids of a history, at most (at most 1000)\n"
    "  --rule R       what items go by: interest, next (default interest)\n"
    "  --topics N     of items (default 20, at most 10000)\n"
    "  --follow X     chance that an item goes by the history (default 0.8)\n"
    "  --pairs        no label: the item is what follows the history\n"
    "  --top K        of pairs: recall and NDCG of the K best (default 10)\n";

enum { ALL, LOGS, SEQUENCES, LABELS };

typedef struct integer_option {
    const char *name;
    int64_t low, high;
    size_t at;
    int use;
} integer_option;

#define AT(member) offsetof(data_options, member)

static const integer_option integers[] = {
    {"lines", 1, INT64_C(1) << 40, AT(lines), ALL},
    {"first", 0, INT64_C(1) << 40, AT(first), ALL},
    {"seed", 0, INT64_MAX, AT(seed), ALL},
    {"ids", 1, INT64_C(1) << 31, AT(ids), ALL},
    {"dense", 0, MOST_DENSE, AT(dense), LOGS},
    {"slots", 0, MOST_SLOT, AT(slots), LOGS},
    {"history", 1, MOST_HISTORY, AT(history), ALL},
    {"topics", 2, MOST_TOPIC, AT(topics), SEQUENCES},
    {"top", 1, 1000000, AT(top), SEQUENCES},
};

typedef struct real_option {
    const char *name;
    double low, high;
    size_t at;
    int use;
} real_option;

static const real_option reals[] = {
    {"zipf", 0, 10, AT(zipf), ALL},
    {"positive", 1e-6, 1 - 1e-6, AT(positive), LABELS},
    {"signal", 0, 100, AT(signal), LABELS},
    {"follow", 0, 1, AT(follow), SEQUENCES},
};

enum {
    N_INTEGER = sizeof integers / sizeof *integers,
    N_REAL = sizeof reals / sizeof *reals
};

static const sequence_reader readers[] = {
    {"din", true, true, false},       {"dien", true, true, false},
    {"bst", true, true, false},       {"sasrec", true, true, false},
    {"gru4rec", true, true, true},    {"youtube_dnn", false, true, true},
    {"two_tower", false, true, true}, {0}};

/* --- single options ------------------------------------------------------- */

static bool failed(const char *what, const char *expected, const char *got)
{
    fprintf(stderr, "fleet-datagen: --%s: expected %s, not \"%s\"\n", what,
            expected, got);
    return false;
}

static bool read_integer(const integer_option *i, const char *text,
                         data_options *o)
{
    int64_t *to = (int64_t *)(void *)((char *)o + i->at);
    char expected[80], *end;

    errno = 0;
    *to = strtoll(text, &end, 10);
    if (errno == 0 && end > text && *end == 0 && *to >= i->low &&
        *to <= i->high)
        return true;
    snprintf(expected, sizeof expected,
             "an integer from %" PRId64 " to %" PRId64, i->low, i->high);
    return failed(i->name, expected, text);
}

static bool read_real(const real_option *r, const char *text, data_options *o)
{
    double *to = (double *)(void *)((char *)o + r->at);
    char expected[80], *end;

    *to = strtod(text, &end);
    if (end > text && *end == 0 && *to >= r->low && *to <= r->high)
        return true;
    snprintf(expected, sizeof expected, "a number from %g to %g", r->low,
             r->high);
    return failed(r->name, expected, text);
}

/* All but pictures. */
static bool read_format(const char *text, fleet_format *to)
{
    char expected[200] = "";
    size_t n = 0;

    for (int i = 0; fl_format_names[i]; i++) {
        if (i == FLEET_IDX)
            continue;
        if (strcmp(text, fl_format_names[i]) == 0) {
            *to = (fleet_format)i;
            return true;
        }
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%s%s",
                              n == 0                   ? ""
                              : fl_format_names[i + 1] ? ", "
                                                       : " or ",
                              fl_format_names[i]);
    }
    return failed("format", expected, text);
}

static bool read_rule(const char *text, data_options *o)
{
    o->rule = strcmp(text, "next") == 0 ? RULE_NEXT : RULE_INTEREST;
    o->of_sequences = "rule";
    return o->rule == RULE_NEXT || strcmp(text, "interest") == 0 ||
           failed("rule", "interest or next", text);
}

static void note_use(data_options *o, int use, const char *name)
{
    if (use == LOGS)
        o->of_logs = name;
    else if (use == SEQUENCES)
        o->of_sequences = name;
    else if (use == LABELS)
        o->of_labels = name;
}

static const struct option others[] = {{"help", no_argument, NULL, 'h'},
                                       {"format", required_argument, NULL, 'f'},
                                       {"config", required_argument, NULL, 'c'},
                                       {"model", required_argument, NULL, 'm'},
                                       {"rule", required_argument, NULL, 'r'},
                                       {"pairs", no_argument, NULL, 'p'},
                                       {0}};

enum { N_OTHER = sizeof others / sizeof *others };

/* Integers, then reals, then the others. */
static const struct option *all_options(void)
{
    static struct option all[N_INTEGER + N_REAL + N_OTHER];

    for (int i = 0; i < N_INTEGER; i++)
        all[i] = (struct option){integers[i].name, required_argument, NULL, 0};
    for (int i = 0; i < N_REAL; i++)
        all[N_INTEGER + i] =
            (struct option){reals[i].name, required_argument, NULL, 0};
    memcpy(all + N_INTEGER + N_REAL, others, sizeof others);
    return all;
}

static bool read_number(int which, const char *text, data_options *o)
{
    const integer_option *i = &integers[which < N_INTEGER ? which : 0];
    const real_option *r = &reals[which < N_INTEGER ? 0 : which - N_INTEGER];

    if (which < N_INTEGER) {
        note_use(o, i->use, i->name);
        return read_integer(i, text, o);
    }
    note_use(o, r->use, r->name);
    return read_real(r, text, o);
}

static bool read_one(int letter, int which, const char *text, data_options *o)
{
    switch (letter) {
    case 0:
        return read_number(which, text, o);
    case 'f':
        return read_format(text, &o->format);
    case 'r':
        return read_rule(text, o);
    case 'p':
        o->pairs = true;
        o->of_sequences = "pairs";
        return true;
    case 'm':
        o->model = text;
        return true;
    default:
        o->config = text;
        return true;
    }
}

/* --- all of them ---------------------------------------------------------- */

bool data_options_is_compressed(const char *path)
{
    size_t n = strlen(path);

    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

static bool check_log(data_options *o)
{
    char got[80];

    if (o->of_sequences)
        return failed(o->of_sequences, "--history beside it", "no history");
    o->ids = o->ids > 0 ? o->ids : 100000;
    o->model = o->model ? o->model : "wide_deep";
    snprintf(got, sizeof got, "%" PRId64 " and %" PRId64, o->dense, o->slots);
    if (o->format == FLEET_CRITEO && (o->dense != 13 || o->slots != 26))
        return failed("format criteo", "--dense 13 and --slots 26", got);
    return o->dense + o->slots > 0 ||
           failed("dense and --slots", "one of them above 0", got);
}

static bool find_reader(data_options *o)
{
    const sequence_reader *r = readers;
    char expected[200] = "";
    size_t n = 0;

    o->model = o->model ? o->model : o->pairs ? "gru4rec" : "din";
    for (; r->name; r++) {
        if (!(o->pairs ? r->has_pairs : r->has_clicks))
            continue;
        if (strcmp(r->name, o->model) == 0)
            break;
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%s%s",
                              n > 0 ? ", " : "", r->name);
    }
    o->reader = r;
    return r->name || failed(o->pairs ? "model of pairs" : "model of histories",
                             expected, o->model);
}

static bool check_sequence(data_options *o)
{
    char got[40];

    if (o->of_logs)
        return failed(o->of_logs, "no --history beside it", "one");
    if (o->pairs && o->of_labels)
        return failed(o->of_labels, "no --pairs beside it, which have no label",
                      "some");
    if (o->format == FLEET_LIBSVM || o->format == FLEET_CRITEO)
        return failed("format", "one that can have histories",
                      fl_format_names[o->format]);
    o->ids = o->ids > 0 ? o->ids : 1000;
    snprintf(got, sizeof got, "%" PRId64, o->ids);
    if (o->ids % o->topics != 0)
        return failed("ids", "as many for each of --topics", got);
    return find_reader(o);
}

static bool check(data_options *o)
{
    if (!(o->history > 0 ? check_sequence(o) : check_log(o)))
        return false;
    if (o->config && strcmp(o->file, "-") == 0)
        return failed("config", "a FILE that can be read again", o->file);
    if (o->format == FLEET_PARQUET &&
        (strcmp(o->file, "-") == 0 || data_options_is_compressed(o->file)))
        return failed("format parquet",
                      "a FILE on a disk without .gz, as pages in it are "
                      "compressed",
                      o->file);
    return true;
}

static bool refuse_usage(void)
{
    fputs(data_options_usage, stderr);
    return false;
}

bool data_options_read(int argc, char **argv, data_options *o, bool *help)
{
    const struct option *known = all_options();
    int letter, which = 0;

    *o = (data_options){.lines = 100000,
                        .dense = 13,
                        .slots = 26,
                        .topics = 20,
                        .top = 10,
                        .zipf = 1.05,
                        .positive = 0.25,
                        .signal = 2,
                        .follow = 0.8};
    *help = false;
    while ((letter = getopt_long(argc, argv, "", known, &which)) != -1) {
        if (letter == 'h') {
            *help = true;
            return false;
        }
        if (letter == '?')
            return refuse_usage();
        if (!read_one(letter, which, optarg, o))
            return false;
    }
    if (argc - optind != 1)
        return refuse_usage();
    o->file = argv[optind];
    return check(o);
}

/* --- models --------------------------------------------------------------- */

void data_options_log(const data_options *o, hidden_model *m)
{
    *m = (hidden_model){.seed = (uint64_t)o->seed,
                        .n_dense = (int)o->dense,
                        .n_slot = (int)o->slots,
                        .n_id = o->ids,
                        .exponent = o->zipf,
                        .positive = o->positive,
                        .signal = o->signal};
    hidden_model_begin(m);
}

void data_options_sequence(const data_options *o, sequence_model *m)
{
    *m = (sequence_model){.seed = (uint64_t)o->seed,
                          .rule = o->rule,
                          .pairs = o->pairs,
                          .most = (int)o->history,
                          .topics = (int)o->topics,
                          .n_id = o->ids,
                          .exponent = o->zipf,
                          .follow = o->follow,
                          .positive = o->positive,
                          .signal = o->signal};
    sequence_model_begin(m);
}
