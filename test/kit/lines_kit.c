/* lines_kit.c - see lines_kit.h. */
#define SUITE lines_kit
#include "lines_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example_kit.h"
#include "test.h"

#include "base/file.h"
#include "base/memory.h"
#include "fleet/train/train.h"
#include "runtime/exec/feed_fetch.h"

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* --- texts ---------------------------------------------------------------- */

/* Cells of which some are missing. */
static int put_csv(char *to, unsigned *r, char by)
{
    static const char *const color[] = {"red", "green", "blue", "?", ""};
    unsigned c = next(r) % 5;
    double x = next(r) % 1000 / 50.0;

    return sprintf(to, "%s%c%g%c%s%c%u%c%s\n", x > 9 ? "yes" : "no", by, x, by,
                   color[c], by, next(r) % 90, by,
                   next(r) % 3 ? "\"a b\"" : "?");
}

static int put_criteo(char *to, unsigned *r)
{
    int n = sprintf(to, "%u", next(r) % 2);

    for (int i = 0; i < 13; i++)
        n += next(r) % 4 ? sprintf(to + n, "\t%d", (int)(next(r) % 500) - 2)
                         : sprintf(to + n, "\t%d", (int)(next(r) % 9));
    for (int i = 0; i < 26; i++)
        n += next(r) % 5 ? sprintf(to + n, "\t%08x", next(r) % 40)
                         : sprintf(to + n, "\t");
    return n + sprintf(to + n, "\n");
}

static int put_multislot(char *to, unsigned *r)
{
    unsigned w = next(r) % 3;
    int n = sprintf(to, "1 %u 2 0.%u -1.5 1 %u %u", next(r) % 50, next(r) % 100,
                    next(r) % 2, w);

    for (unsigned i = 0; i < w; i++)
        n += sprintf(to + n, " %u", next(r) % 40);
    return n + sprintf(to + n, "\n");
}

static int put_libsvm(char *to, unsigned *r)
{
    unsigned w = next(r) % 6;
    int n = sprintf(to, "%s", next(r) % 2 ? "+1" : "-1");

    for (unsigned i = 0; i < w; i++)
        n += sprintf(to + n, " %u:1", 10 * i + next(r) % 10);
    return n + sprintf(to + n, "%s\n", w == 0 || next(r) % 4 ? " 99:1" : "");
}

static int put_slot_text(char *to, unsigned *r)
{
    unsigned w = next(r) % 3;
    int n = sprintf(to, "label:%u color:%u ", next(r) % 2, next(r) % 50);

    if (next(r) % 4)
        n += sprintf(to + n, "numbers:0.%u unread:x numbers:-1.5 ",
                     next(r) % 100);
    for (unsigned i = 0; i < w; i++)
        n += sprintf(to + n, "word:%u ", next(r) % 40);
    return n + sprintf(to + n, "\n");
}

static int put_json(char *to, unsigned *r)
{
    return sprintf(to,
                   "{\"label\":%u,\"color\":\"%x\",\"numbers\":[0.%u,-1.5],"
                   "\"unread\":{\"a\":[]},\"word\":[%u,\"\\u00e%u\"]}\n",
                   next(r) % 2, next(r) % 50, next(r) % 100, next(r) % 40,
                   next(r) % 10);
}

/* In another order, with one that no slot reads, one that may be missing. */
static int put_example(char *to, unsigned *r, bool labelled)
{
    const char *const texts[] = {"red", "green", "\xC3\xA9"};
    example e = {.n = 0};
    int64_t x[2] = {next(r) % 2, next(r) % 50};

    if (labelled)
        example_ints(&e, "label", x, 1);
    example_ints(&e, "color", x + 1, 1);
    example_floats(&e, "unread", (float[]){1}, 1);
    if (next(r) % 4)
        example_floats(&e, "numbers", (float[]){(float)x[1] / 50, -1.5f}, 2);
    if (next(r) % 2)
        example_texts(&e, "word", texts + next(r) % 2, (int)(next(r) % 3));
    else
        example_ints(&e, "word", x, (int)(next(r) % 3));
    return (int)(example_record(to, &e) - to);
}

static int put_line(lines_format format, char *to, unsigned *r)
{
    switch (format) {
    case LINES_CSV:
    case LINES_MADE:
        return put_csv(to, r, ',');
    case LINES_HEADER:
        return put_csv(to, r, ';');
    case LINES_CRITEO:
        return put_criteo(to, r);
    case LINES_MULTISLOT:
        return put_multislot(to, r);
    case LINES_LIBSVM:
        return put_libsvm(to, r);
    case LINES_SLOT_TEXT:
        return put_slot_text(to, r);
    case LINES_TFRECORD:
        return put_example(to, r, true);
    default:
        return put_json(to, r);
    }
}

static void make_text(lines_scene *s)
{
    char *to = s->text = malloc(LINES_N * 600 + 200);
    unsigned r = 7;

    if (s->format == LINES_HEADER)
        to += sprintf(to, "made by hand\n#c\nwon;x;color;size;word\n");
    for (int i = 0; i < LINES_N; i++) {
        if (s->format == LINES_HEADER && i == 20)
            to += sprintf(to, "# a comment\n\n");
        to += put_line(s->format, to, &r);
    }
    s->size = (size_t)(to - s->text);
    s->path = test_file_bytes("lines.txt", s->text, s->size);
}

static char *records_unlabelled(const lines_scene *s, size_t *size)
{
    char *text = malloc(s->size), *to = text;
    unsigned r = 7;

    for (int i = 0; i < LINES_N; i++)
        to += put_example(to, &r, false);
    *size = (size_t)(to - text);
    return text;
}

char *lines_unlabelled(const lines_scene *s, size_t *size)
{
    char *text, *to;
    const char *at = s->text;

    if (s->format == LINES_TFRECORD)
        return records_unlabelled(s, size);
    text = to = malloc(s->size + 1);

    for (int n = 1; *at; n++) {
        const char *end = strchr(at, '\n') + 1, *from = at;
        size_t head = 0;

        if (s->format == LINES_MULTISLOT) { /* the third of four slots */
            for (int i = 0; i < 5; i++)
                from = strchr(from, ' ') + 1;
            head = (size_t)(from - at);
            from = strchr(strchr(from, ' ') + 1, ' ') + 1;
        } else if (s->format == LINES_JSON) {
            head = 1;
            from = strchr(at, ',') + 1;
        } else if (s->format == LINES_LIBSVM || s->format == LINES_SLOT_TEXT) {
            from = strchr(at, ' ') + 1;
        } else if (s->format != LINES_HEADER ||
                   (n > 2 && strpbrk(at, ";\n")[0] == ';')) {
            from = strpbrk(at, s->format == LINES_CRITEO   ? "\t"
                               : s->format != LINES_HEADER ? ","
                                                           : ";") +
                   1;
        }
        memcpy(to, at, head);
        memcpy(to + head, from, (size_t)(end - from));
        to += head + (size_t)(end - from);
        at = end;
    }
    *to = 0;
    *size = (size_t)(to - text);
    return text;
}

/* --- models --------------------------------------------------------------- */

static void describe_csv(lines_scene *s, fleet_dataset_options *o)
{
    static const fleet_transform numbers[] = {FLEET_STANDARDIZE,
                                              FLEET_LOG1P_STANDARDIZE};
    static const fleet_transform equals = FLEET_EQUALS;
    static const char *const yes[] = {"yes"};
    static const char *const place[2][6] = {
        {"0", "1", "3", "2", "4"}, {"won", "x", "size", "color", "word"}};
    static fleet_slot slot[5];
    const char *const *at = place[s->format == LINES_HEADER];

    slot[0] = (fleet_slot){.name = "label",
                           .dtype = FLEET_INT64,
                           .columns = at,
                           .n_column = 1,
                           .transforms = &equals,
                           .n_transform = 1,
                           .equals = yes,
                           .n_equals = 1,
                           .required = 1};
    slot[1] = (fleet_slot){.name = "unread", /* by the model */
                           .columns = at + 2,
                           .n_column = 1,
                           .transforms = numbers,
                           .n_transform = 1};
    slot[2] = (fleet_slot){.name = "numbers",
                           .dim = 2,
                           .columns = at + 1,
                           .n_column = 2,
                           .transforms = numbers,
                           .n_transform = 2};
    slot[3] = (fleet_slot){.name = "color",
                           .dtype = FLEET_INT64,
                           .columns = at + 3,
                           .n_column = 1};
    slot[4] = (fleet_slot){.name = "word",
                           .dtype = FLEET_INT64,
                           .dim = -1,
                           .columns = at + 4,
                           .n_column = 1};
    o->format = FLEET_CSV;
    o->slots = slot;
    o->n_slot = 5;
    o->missing = "?";
    if (s->format == LINES_CSV)
        return;
    o->separator = ';';
    o->header = 1;
    o->skip_lines = 1;
    o->comment = '#';
}

/* The color is a cross of two cells, of which one is a bucket before; a model
 * has neither as an input. */
static void describe_made(fleet_dataset_options *o)
{
    static const fleet_transform log = FLEET_LOG1P_STANDARDIZE,
                                 equals = FLEET_EQUALS, words = FLEET_WORDS;
    static const char *const place[] = {"0", "1", "2", "3", "4"};
    static const char *const pair[] = {"1", "3"}, *const yes[] = {"yes"};
    static const char *const crossed[] = {"hue", "bucket"};
    static const char *const size[] = {"size"};
    static const float bounds[] = {-1, 0, 0.5f};
    static const fleet_slot slot[] = {
        {.name = "label",
         .dtype = FLEET_INT64,
         .columns = place,
         .n_column = 1,
         .transforms = &equals,
         .n_transform = 1,
         .equals = yes,
         .n_equals = 1,
         .required = 1},
        {.name = "hue",
         .dtype = FLEET_INT64,
         .columns = place + 2,
         .n_column = 1},
        {.name = "size",
         .columns = place + 3,
         .n_column = 1,
         .transforms = &log,
         .n_transform = 1},
        {.name = "numbers", .dim = 2, .columns = pair, .n_column = 2},
        {.name = "word",
         .dtype = FLEET_INT64,
         .dim = -1,
         .columns = place + 4,
         .n_column = 1,
         .transforms = &words,
         .n_transform = 1},
        {.name = "bucket",
         .dtype = FLEET_INT64,
         .from = size,
         .n_from = 1,
         .buckets = bounds,
         .n_bucket = 3},
        {.name = "color", .dtype = FLEET_INT64, .from = crossed, .n_from = 2}};

    o->format = FLEET_CSV;
    o->slots = slot;
    o->n_slot = 7;
    o->missing = "?";
}

static void describe_multislot(fleet_dataset_options *o)
{
    static const fleet_slot slot[] = {
        {.name = "color", .dtype = FLEET_INT64},
        {.name = "numbers", .dim = 2},
        {.name = "label", .dtype = FLEET_INT64},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1}};

    o->slots = slot;
    o->n_slot = 4;
}

static const char *const *names_of(const lines_scene *s, int *n)
{
    static const char *const name[] = {"word", "numbers", "color"};

    *n = s->format == LINES_LIBSVM ? 1 : 3;
    return name;
}

static void describe_named(lines_format format, fleet_dataset_options *o)
{
    static const fleet_slot named[] = {
        {.name = "color", .dtype = FLEET_INT64},
        {.name = "numbers", .dim = 2},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1},
        {.name = "label", .dtype = FLEET_INT64, .required = 1}};

    o->format = format == LINES_SLOT_TEXT  ? FLEET_SLOT_TEXT
                : format == LINES_TFRECORD ? FLEET_TFRECORD
                                           : FLEET_JSON_LINES;
    o->slots = named;
    o->n_slot = 4;
}

static void describe_libsvm(fleet_dataset_options *o)
{
    static const fleet_slot slot[] = {
        {.name = "label", .dtype = FLEET_INT64},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1}};

    o->format = FLEET_LIBSVM;
    o->slots = slot;
    o->n_slot = 2;
}

static void build(lines_scene *s)
{
    static const fleet_dense_slot dense = {.name = "numbers", .dim = 2};
    static const fleet_id_slot ids[] = {{.name = "color"},
                                        {.name = "word", .dim = -1}};
    const fleet_ctr_options own = {.dense = &dense,
                                   .n_dense = 1,
                                   .ids = ids,
                                   .n_ids = 2,
                                   .embedding_dim = 4,
                                   .hidden = (int64_t[]){8},
                                   .n_hidden = 1};
    const fleet_ctr_options criteo = {
        .embedding_dim = 4, .hidden = (int64_t[]){8}, .n_hidden = 1};

    const fleet_ctr_options words = {.ids = ids + 1,
                                     .n_ids = 1,
                                     .embedding_dim = 4,
                                     .hidden = (int64_t[]){8},
                                     .n_hidden = 1};

    s->p = fleet_program_create(s->f);
    fleet_wide_deep(s->p,
                    s->format == LINES_CRITEO   ? &criteo
                    : s->format == LINES_LIBSVM ? &words
                                                : &own,
                    &s->m);
    s->pair = fleet_concat(
        s->p, (fleet_var *[]){s->m.prediction, s->m.prediction}, 2, 1);
    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(fleet_adam(s->f, 0.01f, NULL), s->m.loss));
}

typedef struct taken {
    lines_scene *s;
    int64_t n;
} taken;

static fleet_status take_predictions(void *arg, fleet_executor *e,
                                     const fl_batch *b)
{
    taken *t = arg;
    fleet_fetch f = {.var = t->s->m.prediction,
                     .data = t->s->want + t->n,
                     .size = sizeof t->s->want - (size_t)t->n * sizeof(float)};

    FL_TRY(fl_executor_fetch(e, &f));
    t->n += b->rows;
    return FLEET_OK;
}

void lines_open(lines_scene *s, lines_format format)
{
    const fleet_options options = {.num_threads = 1,
                                   .log_level = FLEET_LOG_WARNING};
    const fleet_executor_options for_test = {.for_test = 1};
    fleet_dataset_options o = {.batch_size = 32};

    *s = (lines_scene){.format = format};
    make_text(s);
    CHECK_OK(fleet_init(&s->f, &options));
    build(s);
    if (format == LINES_CRITEO)
        o.format = FLEET_CRITEO;
    else if (format == LINES_MULTISLOT)
        describe_multislot(&o);
    else if (format == LINES_LIBSVM)
        describe_libsvm(&o);
    else if (format == LINES_MADE)
        describe_made(&o);
    else if (format > LINES_LIBSVM)
        describe_named(format, &o);
    else
        describe_csv(s, &o);
    s->data = fleet_queue_dataset(s->f, &o);
    CHECK(s->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(s->data, &s->path, 1));
    s->trainer = fleet_executor_create(s->p, NULL);
    s->tester = fleet_executor_create(s->p, &for_test);
    lines_train(s, 1);
}

void lines_train(lines_scene *s, int passes)
{
    fleet_train_options fetch = {.n_fetch = 1, .print_period = INT64_MAX};
    const fleet_var *want;
    taken t = {.s = s};

    for (int i = 0; i < passes; i++)
        CHECK_OK(fleet_train_from_dataset(s->trainer, s->data, NULL, NULL));
    CHECK_OK(fleet_evaluate(s->tester, s->data, &s->m, &s->found));
    want = s->m.prediction;
    fetch.fetch_list = &want;
    CHECK_OK(
        fl_infer_pass(s->tester, s->data, &fetch, take_predictions, &t, NULL));
    CHECK_INT(t.n, LINES_N);
}

void lines_close(lines_scene *s)
{
    fleet_executor_destroy(s->trainer);
    fleet_executor_destroy(s->tester);
    fleet_destroy(s->f);
    free(s->text);
}

/* All data variables but the label. */
static int feeds_of(const lines_scene *s, fleet_var **feed)
{
    char name[8];
    int n = 0, n_own;
    const char *const *own = names_of(s, &n_own);

    if (s->format != LINES_CRITEO) {
        for (; n < n_own; n++)
            feed[n] = fleet_program_var(s->p, own[n]);
        return n;
    }
    feed[n++] = fleet_program_var(s->p, "dense_input");
    for (int i = 1; i <= 26; i++) {
        snprintf(name, sizeof name, "%d", i);
        feed[n++] = fleet_program_var(s->p, name);
    }
    return n;
}

const char *lines_saved(lines_scene *s)
{
    const fleet_inference_options o = {.dataset = s->data, .label = "label"};
    fleet_var *feed[27];
    int n = feeds_of(s, feed);

    CHECK_OK(fleet_save_inference_model_with(s->f, test_path("model"), feed, n,
                                             &s->m.prediction, 1, &o));
    return test_path("model");
}

fleet_predictor *lines_predictor(lines_scene *s)
{
    fleet_predictor *p = fleet_load_inference_model(lines_saved(s));

    if (!p)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    return p;
}

int lines_scores(const char *path, float *to, int most)
{
    char *text, *at, *end;
    size_t size;
    int n = 0;

    CHECK_OK(fl_file_read(path, &text, &size));
    for (at = text; *at; at = end + 1) {
        CHECK(n < most);
        to[n++] = strtof(at, &end);
        CHECK(*end == '\n');
    }
    fl_free(text);
    return n;
}
