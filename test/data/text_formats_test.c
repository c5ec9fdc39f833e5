/* text_formats_test.c - files of libsvm, slot text and JSON lines are what a
 * script reads in them that has nothing of libfleet's (text_formats_ref.py),
 * however lines are cut into blocks, windows and batches, and on any number of
 * threads. */
#define SUITE text_formats
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 12000, ROOM = 12 << 20, LABEL = 0, DENSE, TAGS, WORDS, QUERY };

static const fleet_slot slots[] = {
    [LABEL] = {.name = "label"},
    [DENSE] = {.name = "dense", .dim = 3},
    [TAGS] = {.name = "tags", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
    [WORDS] = {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    [QUERY] = {.name = "query", .dtype = FLEET_INT64}};

static const fleet_slot svm_slots[] = {
    {.name = "label"},
    {.name = "qid", .dtype = FLEET_INT64},
    {.name = "tags", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};

typedef struct text {
    char *begin, *at;
    uint64_t random;
} text;

static uint64_t below(text *t, uint64_t n)
{
    return data_random(&t->random) % n;
}

static void put(text *t, const char *s)
{
    t->at = stpcpy(t->at, s);
}

/* Numbers of all lengths, short ones most often. */
static void put_number(text *t)
{
    static const char *const odd[] = {"0",    "-0.0",  "1e5",  "-2.5e-3",
                                      "3e38", "1e-40", "0.25", "-17"};
    const uint64_t kind = below(t, 12);
    const double x = (double)(int64_t)below(t, 2000001) / 1e6 - 1;

    if (kind < 8)
        t->at += sprintf(t->at, kind < 5 ? "%.3g" : "%.9g", x);
    else
        put(t, odd[below(t, 8)]);
}

static void put_id(text *t)
{
    const int shift = (int)below(t, 64);

    t->at += sprintf(t->at, "%llu",
                     (unsigned long long)(data_random(&t->random) >> shift));
}

/* Now and then a line has more values than a window takes. */
static int how_many(text *t)
{
    return below(t, 200) == 0 ? 400 : (int)below(t, 9);
}

static void put_libsvm(text *t)
{
    put_number(t);
    put(t, " qid:");
    put_id(t);
    for (int n = how_many(t); n > 0; n--) {
        put(t, below(t, 9) ? " " : "\t ");
        put_id(t);
        put(t, ":");
        put_number(t);
    }
    put(t, below(t, 5) ? "\n" : " # what it is: 3:4\n");
    if (below(t, 40) == 0)
        put(t, "# a comment\n\n");
}

static void put_named(text *t, const char *name, void (*value)(text *t))
{
    put(t, name);
    put(t, ":");
    value(t);
    put(t, below(t, 9) ? " " : " \t");
}

static void put_weighted(text *t)
{
    put_id(t);
    if (below(t, 3) == 0)
        return;
    put(t, ":");
    put_number(t);
}

static void put_slot_text(text *t)
{
    const int n = how_many(t);

    put_named(t, "label", put_number);
    for (int i = 0; i < n; i++) {
        put_named(t, "words", put_id);
        put_named(t, i % 2 ? "tags" : "word", put_weighted);
    }
    if (below(t, 3))
        for (int i = 0; i < 3; i++)
            put_named(t, "dense", put_number);
    if (below(t, 3))
        put_named(t, "query", put_id);
    put(t, "\n");
}

static void put_pair(text *t)
{
    put(t, "[ ");
    put_id(t);
    put(t, ",");
    put_number(t);
    put(t, "]");
}

static void put_array(text *t, int n, void (*value)(text *t))
{
    put(t, below(t, 2) ? "[" : " [ ");
    for (int i = 0; i < n; i++) {
        put(t, i == 0 ? "" : below(t, 2) ? "," : " ,\t");
        value(t);
    }
    put(t, "]");
}

static void put_json(text *t)
{
    put(t, "{\"label\":");
    put_number(t);
    if (below(t, 3)) {
        put(t, ", \"dense\" : ");
        put_array(t, 3, put_number);
    }
    put(t, below(t, 2) ? ",\"other\":{\"a\":[1,{\"b\":null}],\"c\":\"}\\\"\"}"
                       : ",\"words\":null");
    if (t->at[-1] != 'l') {
        put(t, ",\"w\\u006frds\":");
        put_array(t, how_many(t), put_id);
    }
    put(t, ",\"tags\":");
    put_array(t, how_many(t), below(t, 2) ? put_pair : put_id);
    put(t, below(t, 2) ? ",\"query\":null}\n" : "}\n");
}

/* --- both readings -------------------------------------------------------- */

static char *put_float(char *to, float x)
{
    uint32_t word;

    memcpy(&word, &x, sizeof word);
    return to + sprintf(to, "%08x ", word);
}

static char *put_row(char *to, const fleet_slot *s, const fl_slot_data *d,
                     int64_t row)
{
    const int64_t dim = s->dim ? s->dim : 1;
    int64_t i = d->offsets ? d->offsets[row] : row * dim;
    const int64_t end = d->offsets ? d->offsets[row + 1] : (row + 1) * dim;

    for (; i < end; i++) {
        if (s->dtype == FLEET_INT64)
            to += sprintf(to, "%llu ", ((unsigned long long *)d->values)[i]);
        else
            to = put_float(to, ((float *)d->values)[i]);
        if (d->weights)
            to = put_float(to, d->weights[i]);
    }
    return stpcpy(to, "; ");
}

/* libsvm's lines have a label, a query and one list of ids. */
static char *put_rows(char *to, const fl_stream_spec *spec, const fl_batch *b)
{
    static const fleet_slot dense = {.name = "dense", .dim = 3};
    const fl_slot_data nothing = {.values = (float[3]){0, 0, 0}};
    const bool svm = spec->format == FLEET_LIBSVM;

    for (int64_t row = 0; row < b->rows; row++) {
        to = put_row(to, &spec->slots[0], &b->slot[0], row);
        if (svm) {
            to = put_row(to, &dense, &nothing, 0);
            to = put_row(to, &spec->slots[2], &b->slot[2], row);
            to = stpcpy(to, "; ");
            to = put_row(to, &spec->slots[1], &b->slot[1], row);
        }
        for (int i = 1; !svm && i < spec->n_slot; i++)
            to = put_row(to, &spec->slots[i], &b->slot[i], row);
        to[-1] = '\n';
    }
    return to;
}

static char *read_all(const fl_stream_spec *spec)
{
    char *out = malloc(ROOM), *to = out;
    fl_stream *s = NULL;
    fleet_status status;
    fl_batch *b;

    CHECK_OK(fl_stream_open(&s, spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        to = put_rows(to, spec, b);
        CHECK(to - out < ROOM - (1 << 20));
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    fl_stream_close(s);
    *to = 0;
    return out;
}

static char *read_by_script(const char *format, const char *path)
{
    const char *source = getenv("FLEET_SOURCE");
    char command[1000], *out = malloc(ROOM);

    if (access("/usr/bin/python3", X_OK) != 0)
        test_skip("there is no /usr/bin/python3");
    snprintf(command, sizeof command,
             "/usr/bin/python3 %s/test/data/text_formats_ref.py %s %s",
             source && *source ? source : ".", format, path);
    CHECK_INT(test_shell(command, out, ROOM), 0);
    return out;
}

/* Row by row, so that a difference can be looked at. */
static void compare(const char *got, const char *want)
{
    for (int row = 1; *got || *want; row++) {
        const size_t n = strcspn(got, "\n"), m = strcspn(want, "\n");

        if (n != m || memcmp(got, want, n) != 0)
            test_fail(__FILE__, __LINE__, "row %d: got %.*s, not %.*s", row,
                      (int)n, got, (int)m, want);
        got += n + (got[n] != 0);
        want += m + (want[m] != 0);
    }
}

static void check(fleet_format format, const char *name, void (*line)(text *t))
{
    static const struct {
        int n_thread;
        int64_t batch;
    } how[] = {{1, 1}, {1, 700}, {3, 64}, {2, 5000}};
    const bool svm = format == FLEET_LIBSVM;
    text t = {.begin = malloc(ROOM), .random = 5};
    const char *path;
    char *want;

    t.at = t.begin;
    for (int i = 0; i < ROWS; i++)
        line(&t);
    CHECK(t.at - t.begin > 9 << 17); /* more than a block */
    t.at[-1] = 0;
    path = test_file(name, t.begin);
    want = read_by_script(name, path);
    for (int i = 0; i < DATA_N(how); i++) {
        fl_stream_spec spec =
            data_spec(format, svm ? svm_slots : slots,
                      svm ? DATA_N(svm_slots) : DATA_N(slots), &path, 1);
        char *got;

        spec.n_thread = how[i].n_thread;
        spec.batch_size = how[i].batch;
        got = read_all(&spec);
        CHECK(strlen(want) > ROWS * 10);
        compare(got, want);
        free(got);
    }
    free(want);
    free(t.begin);
}

TEST(libsvm_is_what_a_script_reads)
{
    check(FLEET_LIBSVM, "libsvm", put_libsvm);
}

TEST(slot_text_is_what_a_script_reads)
{
    check(FLEET_SLOT_TEXT, "slot_text", put_slot_text);
}

TEST(json_lines_are_what_a_script_reads)
{
    check(FLEET_JSON_LINES, "json_lines", put_json);
}
