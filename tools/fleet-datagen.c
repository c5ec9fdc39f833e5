/* fleet-datagen.c - click logs of any size from a seed, with the best scores
 * that can be reached on them; docs/datagen.md. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet-datagen/example_record.h"
#include "fleet-datagen/hidden_model.h"

static const char usage[] =
    "usage: fleet-datagen [OPTION]... FILE\n"
    "\n"
    "Writes made-up click logs, and to stdout a line of JSON with the best AUC "
    "and log\nloss that can be reached on them. FILE - is stdout; then that "
    "line goes to stderr.\nA name that ends with .gz is compressed.\n"
    "  --format F     multislot, csv, criteo, libsvm, slot_text, json_lines,\n"
    "                 tfrecord (default multislot)\n"
    "  --lines N      how many (default 100000)\n"
    "  --first N      begin with that line of the set, from 0 (default 0)\n"
    "  --seed N       of the hidden model and the lines (default 0)\n"
    "  --dense N      counts in a line (default 13, at most 64)\n"
    "  --slots N      slots of one id (default 26, at most 1024)\n"
    "  --ids N        ids of each slot (default 100000, at most 2^31)\n"
    "  --zipf X       exponent of how often ids come (default 1.05; 0: all "
    "alike)\n"
    "  --positive X   about that share of labels is 1 (default 0.25)\n"
    "  --signal X     how much labels depend on the line (default 2)\n"
    "  --config FILE  writes a configuration of fleet-train that reads them\n";

typedef enum data_format {
    MULTISLOT,
    CSV,
    CRITEO,
    LIBSVM,
    SLOT_TEXT,
    JSON_LINES,
    TFRECORD,
    N_FORMAT
} data_format;

static const char *const formats[N_FORMAT] = {
    "multislot", "csv",        "criteo",  "libsvm",
    "slot_text", "json_lines", "tfrecord"};

typedef struct options {
    hidden_model model;
    data_format format;
    int64_t lines, first;
    const char *file, *config;
} options;

/* --- options -------------------------------------------------------------- */

static bool failed(const char *what, const char *expected, const char *got)
{
    fprintf(stderr, "fleet-datagen: --%s: expected %s, not \"%s\"\n", what,
            expected, got);
    return false;
}

static bool read_integer(const char *what, const char *text, int64_t low,
                         int64_t high, int64_t *to)
{
    char expected[80], *end;

    errno = 0;
    *to = strtoll(text, &end, 10);
    if (errno == 0 && end > text && *end == 0 && *to >= low && *to <= high)
        return true;
    snprintf(expected, sizeof expected,
             "an integer from %" PRId64 " to %" PRId64, low, high);
    return failed(what, expected, text);
}

static bool read_number(const char *what, const char *text, double low,
                        double high, double *to)
{
    char expected[80], *end;

    *to = strtod(text, &end);
    if (end > text && *end == 0 && *to >= low && *to <= high)
        return true;
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
    return failed(what, expected, text);
}

static bool read_format(const char *text, data_format *to)
{
    for (int i = 0; i < N_FORMAT; i++)
        if (strcmp(text, formats[i]) == 0) {
            *to = (data_format)i;
            return true;
        }
    return failed("format",
                  "multislot, csv, criteo, libsvm, slot_text, json_lines or "
                  "tfrecord",
                  text);
}

static bool read_option(int option, const char *text, options *o)
{
    hidden_model *m = &o->model;
    int64_t n = 0;
    bool is_read = true;

    switch (option) {
    case 'f':
        return read_format(text, &o->format);
    case 'l':
        return read_integer("lines", text, 1, INT64_C(1) << 40, &o->lines);
    case '1':
        return read_integer("first", text, 0, INT64_C(1) << 40, &o->first);
    case 's':
        is_read = read_integer("seed", text, 0, INT64_MAX, &n);
        m->seed = (uint64_t)n;
        return is_read;
    case 'd':
        is_read = read_integer("dense", text, 0, MOST_DENSE, &n);
        m->n_dense = (int)n;
        return is_read;
    case 'n':
        is_read = read_integer("slots", text, 0, MOST_SLOT, &n);
        m->n_slot = (int)n;
        return is_read;
    case 'i':
        return read_integer("ids", text, 1, INT64_C(1) << 31, &m->n_id);
    case 'z':
        return read_number("zipf", text, 0, 10, &m->exponent);
    case 'p':
        return read_number("positive", text, 1e-6, 1 - 1e-6, &m->positive);
    case 'g':
        return read_number("signal", text, 0, 100, &m->signal);
    case 'c':
        o->config = text;
        return true;
    default:
        return false;
    }
}

static bool check(const options *o)
{
    char got[80];

    snprintf(got, sizeof got, "%d and %d", o->model.n_dense, o->model.n_slot);
    if (o->format == CRITEO &&
        (o->model.n_dense != 13 || o->model.n_slot != 26))
        return failed("format criteo", "--dense 13 and --slots 26", got);
    if (o->model.n_dense + o->model.n_slot == 0)
        return failed("dense and --slots", "one of them above 0", got);
    if (o->config && strcmp(o->file, "-") == 0)
        return failed("config", "a FILE that can be read again", o->file);
    return true;
}

/* --- a line --------------------------------------------------------------- */

/* Room for all of it: numbers take less than 24 bytes, names less than 16, and
 * what a record has besides is less than 80. */
enum { MOST_LINE = (MOST_DENSE + MOST_SLOT + 2) * 40 };

static char *put_multislot(const hidden_model *m, const hidden_line *l,
                           char *at)
{
    at += sprintf(at, "1 %d", l->label);
    if (m->n_dense > 0)
        at += sprintf(at, " %d", m->n_dense);
    for (int i = 0; i < m->n_dense; i++)
        at += sprintf(at, " %.6g", log1p((double)l->count[i]));
    for (int s = 0; s < m->n_slot; s++)
        at += sprintf(at, " 1 %" PRIu32, hidden_model_id(m, s, l->rank[s]));
    return at;
}

/* Criteo's logs are separated by tabs; csv by commas. */
static char *put_cells(const hidden_model *m, const hidden_line *l, char by,
                       char *at)
{
    at += sprintf(at, "%d", l->label);
    for (int i = 0; i < m->n_dense; i++)
        at += sprintf(at, "%c%" PRId64, by, l->count[i]);
    for (int s = 0; s < m->n_slot; s++)
        at +=
            sprintf(at, "%c%08" PRIx32, by, hidden_model_id(m, s, l->rank[s]));
    return at;
}

/* An index for each count and, behind those, for each id of each slot. */
static char *put_libsvm(const hidden_model *m, const hidden_line *l, char *at)
{
    at += sprintf(at, "%d", l->label);
    for (int i = 0; i < m->n_dense; i++)
        at += sprintf(at, " %d:%.6g", 1 + i, log1p((double)l->count[i]));
    for (int s = 0; s < m->n_slot; s++)
        at += sprintf(at, " %" PRId64 ":1",
                      1 + m->n_dense + s * m->n_id + l->rank[s]);
    return at;
}

static char *put_slot_text(const hidden_model *m, const hidden_line *l,
                           char *at)
{
    at += sprintf(at, "click:%d", l->label);
    for (int i = 0; i < m->n_dense; i++)
        at += sprintf(at, " counts:%.6g", log1p((double)l->count[i]));
    for (int s = 0; s < m->n_slot; s++)
        at += sprintf(at, " slot_%d:%" PRIu32, s,
                      hidden_model_id(m, s, l->rank[s]));
    return at;
}

static char *put_json(const hidden_model *m, const hidden_line *l, char *at)
{
    at += sprintf(at, "{\"click\":%d", l->label);
    for (int i = 0; i < m->n_dense; i++)
        at += sprintf(at, "%s%.6g", i == 0 ? ",\"counts\":[" : ",",
                      log1p((double)l->count[i]));
    if (m->n_dense > 0)
        *at++ = ']';
    for (int s = 0; s < m->n_slot; s++)
        at += sprintf(at, ",\"slot_%d\":%" PRIu32, s,
                      hidden_model_id(m, s, l->rank[s]));
    *at++ = '}';
    return at;
}

static char *put_values(const options *o, const hidden_line *l, char *text)
{
    switch (o->format) {
    case MULTISLOT:
        return put_multislot(&o->model, l, text);
    case LIBSVM:
        return put_libsvm(&o->model, l, text);
    case SLOT_TEXT:
        return put_slot_text(&o->model, l, text);
    case JSON_LINES:
        return put_json(&o->model, l, text);
    default:
        return put_cells(&o->model, l, o->format == CSV ? ',' : '\t', text);
    }
}

static size_t put_line(const options *o, const hidden_line *l, char *text)
{
    char *end;

    if (o->format == TFRECORD)
        return (size_t)(example_record_put(&o->model, l, text) - text);
    end = put_values(o, l, text);
    *end++ = '\n';
    return (size_t)(end - text);
}

/* --- the file ------------------------------------------------------------- */

static bool is_compressed(const char *path)
{
    size_t n = strlen(path);

    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

static gzFile open_file(const char *path)
{
    const char *mode = is_compressed(path) ? "wb6" : "wbT";

    errno = 0;
    return strcmp(path, "-") == 0 ? gzdopen(dup(STDOUT_FILENO), mode)
                                  : gzopen(path, mode);
}

static bool file_failed(const char *path)
{
    fprintf(stderr, "fleet-datagen: %s: %s\n", path,
            errno ? strerror(errno) : "cannot be written");
    return false;
}

static bool write_lines(const options *o, gzFile to, best_score *s)
{
    static hidden_line line;
    static char text[MOST_LINE];

    for (int64_t i = 0; i < o->lines; i++) {
        size_t size;

        hidden_model_line(&o->model, (uint64_t)(o->first + i), &line);
        size = put_line(o, &line, text);
        if (gzwrite(to, text, (unsigned)size) != (int)size)
            return false;
        best_score_note(s, &line);
    }
    return true;
}

static bool write_file(const options *o, best_score *s)
{
    gzFile to = open_file(o->file);
    bool is_written;

    if (!to)
        return file_failed(o->file);
    errno = 0;
    is_written = write_lines(o, to, s);
    if (gzclose(to) != Z_OK || !is_written)
        return file_failed(o->file);
    return true;
}

/* --- the configuration ---------------------------------------------------- */

/* Sticky: false once there was no memory. */
static void put(bool *ok, fl_json *to, const char *key, fl_json *value)
{
    *ok = fl_json_put(to, key, value) == FLEET_OK && *ok;
}

static fl_json *slot_of(bool *ok, fl_json *slots, const char *name,
                        const char *type, int64_t dim)
{
    fl_json *slot = fl_json_object();

    *ok = fl_json_append(slots, slot) == FLEET_OK && *ok;
    if (!*ok)
        return NULL;
    put(ok, slot, "name", fl_json_string(name));
    put(ok, slot, "type", fl_json_string(type));
    put(ok, slot, "dim", fl_json_int(dim));
    return slot;
}

static void put_columns(bool *ok, fl_json *slot, int first, int n)
{
    fl_json *columns;

    *ok = *ok && fl_json_put_array(slot, "columns", &columns) == FLEET_OK;
    for (int i = 0; *ok && i < n; i++)
        *ok = fl_json_append(columns, fl_json_int(first + i)) == FLEET_OK;
}

static void put_slots(bool *ok, const options *o, fl_json *config)
{
    const hidden_model *m = &o->model;
    fl_json *slots, *slot;
    char name[24];

    *ok = *ok && fl_json_put_array(config, "slots", &slots) == FLEET_OK;
    slot = *ok ? slot_of(ok, slots, "click", "float", 1) : NULL;
    if (*ok)
        put(ok, slot, "role", fl_json_string("label"));
    if (*ok && o->format == CSV)
        put_columns(ok, slot, 0, 1);
    if (*ok && o->format == LIBSVM) {
        slot = slot_of(ok, slots, "features", "uint64", -1);
        if (*ok)
            put(ok, slot, "weighted", fl_json_bool(true));
        return;
    }
    if (*ok && m->n_dense > 0) {
        slot = slot_of(ok, slots, "counts", "float", m->n_dense);
        if (*ok && o->format == CSV) {
            put_columns(ok, slot, 1, m->n_dense);
            put(ok, slot, "transform", fl_json_string("log1p_standardize"));
        }
    }
    for (int s = 0; *ok && s < m->n_slot; s++) {
        snprintf(name, sizeof name, "slot_%d", s);
        slot = slot_of(ok, slots, name, "uint64", 1);
        if (*ok && o->format == CSV)
            put_columns(ok, slot, 1 + m->n_dense + s, 1);
    }
}

static bool make_config(const options *o, fl_json *config)
{
    fl_json *model = fl_json_object(), *optimizer = fl_json_object();
    fl_json *dataset = fl_json_object(), *train;
    bool ok = true;

    put(&ok, config, "model", model);
    put(&ok, config, "optimizer", optimizer);
    put(&ok, config, "dataset", dataset);
    if (!ok)
        return false;
    put(&ok, model, "type", fl_json_string("wide_deep"));
    put(&ok, optimizer, "type", fl_json_string("adam"));
    put(&ok, optimizer, "learning_rate", fl_json_double(0.001, 6));
    put(&ok, dataset, "format", fl_json_string(formats[o->format]));
    put(&ok, dataset, "batch_size", fl_json_int(256));
    ok = ok && fl_json_put_array(dataset, "train", &train) == FLEET_OK &&
         fl_json_append(train, fl_json_string(o->file)) == FLEET_OK;
    if (ok && o->format != CRITEO)
        put_slots(&ok, o, config);
    return ok;
}

static bool write_config(const options *o)
{
    fl_json *config = fl_json_object();
    char *text =
        config && make_config(o, config) ? fl_json_print(config, true) : NULL;
    FILE *f = text ? fopen(o->config, "w") : NULL;
    bool is_written = f && fprintf(f, "%s\n", text) > 0;

    if (f && fclose(f) != 0)
        is_written = false;
    fl_free(text);
    fl_json_free(config);
    return is_written || file_failed(o->config);
}

/* --- the whole ------------------------------------------------------------ */

static bool print_summary(const options *o, const best_score *s)
{
    FILE *to = strcmp(o->file, "-") == 0 ? stderr : stdout;
    bool both = s->positives > 0 && s->positives < s->n;
    char auc[32] = "null";

    if (both)
        snprintf(auc, sizeof auc, "%.6f", best_score_auc(s));
    fprintf(to,
            "{\"lines\":%" PRId64 ",\"positives\":%" PRId64
            ",\"best_auc\":%s,\"best_logloss\":%.6f}\n",
            s->n, s->positives, auc, s->logloss / (double)s->n);
    return fflush(to) == 0 || file_failed("standard output");
}

static bool generate(options *o)
{
    static int64_t counts[2][BEST_BUCKETS];
    best_score s = {.negative = counts[0], .positive = counts[1]};

    hidden_model_begin(&o->model);
    return write_file(o, &s) && (!o->config || write_config(o)) &&
           print_summary(o, &s);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"format", required_argument, NULL, 'f'},
        {"lines", required_argument, NULL, 'l'},
        {"first", required_argument, NULL, '1'},
        {"seed", required_argument, NULL, 's'},
        {"dense", required_argument, NULL, 'd'},
        {"slots", required_argument, NULL, 'n'},
        {"ids", required_argument, NULL, 'i'},
        {"zipf", required_argument, NULL, 'z'},
        {"positive", required_argument, NULL, 'p'},
        {"signal", required_argument, NULL, 'g'},
        {"config", required_argument, NULL, 'c'},
        {0}};
    static options o = {.lines = 100000,
                        .model = {.n_dense = 13,
                                  .n_slot = 26,
                                  .n_id = 100000,
                                  .exponent = 1.05,
                                  .positive = 0.25,
                                  .signal = 2}};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (option == '?')
            return fputs(usage, stderr), 2;
        if (!read_option(option, optarg, &o))
            return 2;
    }
    if (argc - optind != 1)
        return fputs(usage, stderr), 2;
    o.file = argv[optind];
    if (!check(&o))
        return 2;
    return generate(&o) ? 0 : 1;
}
