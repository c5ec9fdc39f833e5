/* predict.c - score with a saved model: an ad server's first need. No training
 * code, no handle; the predictor may be called from any number of threads.
 *
 *   bin/predict MODEL < LINES
 *
 * MODEL is what bin/ctr or fleet-train saved. Each line has, for every input of
 * the model in its order, a count and that many values, as in Fleet's MultiSlot
 * text; ids are the numbers that the model was trained on (fleet_hash_text()
 * for text). One line of scores comes out for each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

enum { MOST_INPUTS = 1000, MOST_VALUES = 100000 };

/* One sample: memory for every input, and the feeds that point into it. */
typedef struct sample {
    fleet_feed feed[MOST_INPUTS];
    int64_t dims[MOST_INPUTS][FLEET_MAX_DIM], offsets[MOST_INPUTS][2];
    int64_t integer[MOST_VALUES];
    float real[MOST_VALUES];
} sample;

/* Read one input from *at on; how many values were used up, -1 for bad text. */
static int read_input(const fleet_var *v, sample *s, int i, int used, char **at)
{
    int64_t *dims = s->dims[i];
    int n_dim = fleet_var_shape(v, dims);
    long n = strtol(*at, at, 10);

    if (n < 0 || n > MOST_VALUES - used)
        return -1;
    for (long j = 0; j < n; j++) {
        char *begin = *at;

        if (fleet_var_dtype(v) == FLEET_INT64)
            s->integer[used + j] = (int64_t)strtoull(*at, at, 10);
        else
            s->real[used + j] = strtof(*at, at);
        if (*at == begin)
            return -1;
    }
    dims[0] = 1; /* a batch of one sample */
    s->offsets[i][1] = n;
    s->feed[i] = (fleet_feed){.name = fleet_var_name(v),
                              .dtype = fleet_var_dtype(v),
                              .data = fleet_var_dtype(v) == FLEET_INT64
                                          ? (void *)&s->integer[used]
                                          : (void *)&s->real[used],
                              .dims = dims,
                              .n_dim = n_dim};
    if (fleet_var_is_ragged(v)) {
        s->feed[i].offsets = s->offsets[i];
        s->feed[i].n_dim = 1;
    } else if (n_dim != 2 || dims[1] != n) {
        return -1;
    }
    return (int)n;
}

static int score(fleet_predictor *p, sample *s, char *line)
{
    int n = fleet_predictor_input_num(p), used = 0;
    float out[1024];

    for (int i = 0; i < n; i++) {
        int more = read_input(fleet_predictor_input(p, i), s, i, used, &line);

        if (more < 0) {
            fprintf(stderr, "predict: a line does not fit input \"%s\"\n",
                    fleet_var_name(fleet_predictor_input(p, i)));
            return 1;
        }
        used += more;
    }
    if (fleet_predictor_run(p, s->feed, n, (void *[]){out},
                            (size_t[]){sizeof out}, 1) != FLEET_OK) {
        fprintf(stderr, "predict: %s\n", fleet_last_error());
        return 1;
    }
    int64_t dims[FLEET_MAX_DIM];
    fleet_var_shape(fleet_predictor_output(p, 0), dims);
    for (int64_t i = 0; i < dims[1]; i++)
        printf("%s%.6g", i ? " " : "", (double)out[i]);
    putchar('\n');
    return 0;
}

static const char usage[] = "usage: predict MODEL < LINES\n";

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (argc != 2)
        return fputs(usage, stderr), 1;
    fleet_predictor *p = fleet_load_inference_model(argv[1]);
    sample *s = calloc(1, sizeof *s);
    char *line = NULL;
    size_t size = 0;
    int failed = 0;

    if (!p || !s || fleet_predictor_input_num(p) > MOST_INPUTS) {
        fprintf(stderr, "predict: %s\n", fleet_last_error());
        return 1;
    }
    while (!failed && getline(&line, &size, stdin) > 0)
        failed = score(p, s, line);
    free(line);
    free(s);
    fleet_predictor_destroy(p);
    return failed;
}
