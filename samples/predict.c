/* predict.c - score with a saved model: an ad server's first need. No training
 * code, no handle; the predictor may be called from any number of threads.
 *
 *   bin/predict MODEL [LINES]
 *
 * MODEL is what bin/ctr or fleet-train saved. Each line has, for every input of
 * the model in its order, a count and that many values, as in Fleet's MultiSlot
 * text; ids are the numbers that the model was trained on (fleet_hash_text()
 * for text). LINES is a file, or standard input. One line of scores comes out
 * for each; one that does not fit is told with its number, and ends it.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <fleet/fleet.h>

enum { MOST_INPUTS = 1000, MOST_VALUES = 100000, MOST_SHOWN = 60 };
#define BLANKS " \t\r\n\v\f"

/* One sample: memory for every input, and the feeds that point into it. */
typedef struct sample {
    fleet_feed feed[MOST_INPUTS];
    int64_t dims[MOST_INPUTS][FLEET_MAX_DIM], offsets[MOST_INPUTS][2];
    int64_t integer[MOST_VALUES];
    float real[MOST_VALUES];
} sample;

/* Where the lines come from, and the one that is read. */
typedef struct lines {
    const char *name;
    FILE *file;
    char *line;
    size_t size;
    long n;
} lines;

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, BLANKS);
}

/* As much of a word as a message has room for. */
static int shown(const char *word)
{
    size_t n = strcspn(word, BLANKS);

    return n < MOST_SHOWN ? (int)n : MOST_SHOWN;
}

/* Tell what is there in place of what an input needs. */
static int refuse(const lines *l, const fleet_var *v, const char *expected,
                  const char *at)
{
    at = skip_blanks(at);
    if (*at)
        fprintf(stderr,
                "predict: %s:%ld: input \"%s\": expected %s, got "
                "\"%.*s\"\n",
                l->name, l->n, fleet_var_name(v), expected, shown(at), at);
    else
        fprintf(stderr,
                "predict: %s:%ld: input \"%s\": expected %s, but the "
                "line ends\n",
                l->name, l->n, fleet_var_name(v), expected);
    return -1;
}

/* Has a number been read that ends where its word does? */
static int is_word(const char *begin, const char *end)
{
    return end != begin && (!*end || isspace((unsigned char)*end));
}

/* How many values follow; -1: a number that does not fit. */
static int read_count(const lines *l, const fleet_var *v, int room, char **at)
{
    const char *begin = *at;
    int64_t dims[FLEET_MAX_DIM];
    char expected[80];
    long n = strtol(begin, at, 10);
    int good = is_word(begin, *at);

    if (fleet_var_is_ragged(v)) {
        snprintf(expected, sizeof expected, "a count of values up to %d", room);
        return !good || n < 0 || n > room ? refuse(l, v, expected, begin)
                                          : (int)n;
    }
    if (fleet_var_shape(v, dims) != 2 || dims[1] > room)
        return refuse(l, v, "an input of one dimension", begin);
    snprintf(expected, sizeof expected, "the count %lld", (long long)dims[1]);
    return !good || n != dims[1] ? refuse(l, v, expected, begin) : (int)n;
}

/* One number, the sample's value `to`. */
static int read_value(const lines *l, const fleet_var *v, sample *s, int to,
                      char **at)
{
    int is_id = fleet_var_dtype(v) == FLEET_INT64;
    const char *begin = *at;
    int good;

    errno = 0;
    if (is_id) {
        s->integer[to] = (int64_t)strtoull(begin, at, 10);
        good = errno != ERANGE && isdigit((unsigned char)*skip_blanks(begin));
    } else {
        s->real[to] = strtof(begin, at);
        good = isfinite(s->real[to]);
    }
    if (good && is_word(begin, *at))
        return 0;
    return refuse(
        l, v, is_id ? "a whole number from 0 to 2^64 - 1" : "a finite number",
        begin);
}

/* Read one input from *at on; how many values were used up, -1 for bad text. */
static int read_input(const lines *l, const fleet_var *v, sample *s, int i,
                      int used, char **at)
{
    int n = read_count(l, v, MOST_VALUES - used, at);

    for (int j = 0; j < n; j++)
        if (read_value(l, v, s, used + j, at) != 0)
            return -1;
    s->feed[i] = (fleet_feed){.name = fleet_var_name(v),
                              .dtype = fleet_var_dtype(v),
                              .data = fleet_var_dtype(v) == FLEET_INT64
                                          ? (void *)&s->integer[used]
                                          : (void *)&s->real[used],
                              .dims = s->dims[i],
                              .n_dim = fleet_var_shape(v, s->dims[i])};
    s->dims[i][0] = 1; /* a batch of one sample */
    s->offsets[i][1] = n;
    if (fleet_var_is_ragged(v)) {
        s->feed[i].offsets = s->offsets[i];
        s->feed[i].n_dim = 1;
    }
    return n;
}

static int read_sample(const lines *l, fleet_predictor *p, sample *s)
{
    int n = fleet_predictor_input_num(p), used = 0;
    char *at = l->line;

    for (int i = 0; i < n; i++) {
        int more = read_input(l, fleet_predictor_input(p, i), s, i, used, &at);

        if (more < 0)
            return 1;
        used += more;
    }
    at += strspn(at, BLANKS);
    if (!*at)
        return 0;
    fprintf(stderr,
            "predict: %s:%ld: \"%.*s\" comes after the last of %d inputs\n",
            l->name, l->n, shown(at), at, n);
    return 1;
}

static int score(const lines *l, fleet_predictor *p, sample *s)
{
    int n = fleet_predictor_input_num(p);
    int64_t dims[FLEET_MAX_DIM];
    float out[1024];

    if (read_sample(l, p, s) != 0)
        return 1;
    if (fleet_predictor_run(p, s->feed, n, (void *[]){out},
                            (size_t[]){sizeof out}, 1) != FLEET_OK) {
        fprintf(stderr, "predict: %s:%ld: %s\n", l->name, l->n,
                fleet_last_error());
        return 1;
    }
    fleet_var_shape(fleet_predictor_output(p, 0), dims);
    for (int64_t i = 0; i < dims[1]; i++)
        printf("%s%.6g", i ? " " : "", (double)out[i]);
    putchar('\n');
    return 0;
}

static int score_all(lines *l, fleet_predictor *p)
{
    sample *s = calloc(1, sizeof *s);
    int failed = !s || fleet_predictor_input_num(p) > MOST_INPUTS;
    ssize_t n;

    if (failed)
        fprintf(stderr, "predict: %s\n",
                s ? "the model has more than 1000 inputs" : "out of memory");
    while (!failed && (n = getline(&l->line, &l->size, l->file)) > 0) {
        l->n++;
        failed = strlen(l->line) < (size_t)n;
        if (failed)
            fprintf(stderr, "predict: %s:%ld: the line has a byte 0\n", l->name,
                    l->n);
        else
            failed = score(l, p, s);
    }
    if (!failed && ferror(l->file)) {
        fprintf(stderr, "predict: %s: %s\n", l->name, strerror(errno));
        failed = 1;
    }
    free(l->line);
    free(s);
    return failed;
}

static const char usage[] = "usage: predict MODEL [LINES]\n";

int main(int argc, char **argv)
{
    lines l = {.name = "standard input", .file = stdin};
    int failed;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (argc != 2 && argc != 3)
        return fputs(usage, stderr), 1;
    if (argc == 3) {
        l.name = argv[2];
        l.file = fopen(argv[2], "r");
    }
    if (!l.file)
        return fprintf(stderr, "predict: %s: %s\n", l.name, strerror(errno)), 1;
    fleet_predictor *p = fleet_load_inference_model(argv[1]);
    if (!p)
        return fprintf(stderr, "predict: %s\n", fleet_last_error()), 1;
    failed = score_all(&l, p);
    fleet_predictor_destroy(p);
    return failed;
}
