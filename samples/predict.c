/* predict.c - score with a saved model, as a server of advertisements does.
 * There is no training code and no handle; any number of threads may call one
 * predictor.
 *
 *   bin/predict MODEL [LINES]
 *
 * MODEL is what bin/ctr or fleet-train saved. LINES is a file, or else standard
 * input: a line per sample, "multislot.h"; ids are the numbers that the model
 * was trained on (fleet_hash_text() for text). Each gives a line of scores. One
 * that does not fit is reported with its number, and ends the program. */
#include <getopt.h>
#include <sys/types.h>

#include "multislot.h"

static const char usage[] = "usage: predict MODEL [LINES]\n";

static int score_line(fleet_predictor *p, sample *s, char *text)
{
    int64_t dims[FLEET_MAX_DIM];
    float score[1024];

    if (read_sample(s, text, p) != 0)
        return 1;
    if (fleet_predictor_run(p, s->feed, fleet_predictor_input_num(p),
                            (void *[]){score}, (size_t[]){sizeof score},
                            1) != FLEET_OK) {
        fprintf(stderr, "predict: %s:%ld: %s\n", s->file, s->line,
                fleet_last_error());
        return 1;
    }
    fleet_var_shape(fleet_predictor_output(p, 0), dims);
    for (int64_t i = 0; i < dims[1]; i++)
        printf("%s%.6g", i ? " " : "", (double)score[i]);
    putchar('\n');
    return 0;
}

static int score_file(fleet_predictor *p, const char *name, FILE *file)
{
    static sample s; /* large for a stack */
    char *text = NULL;
    size_t size = 0;
    ssize_t n;
    int failed = fleet_predictor_input_num(p) > MOST_INPUTS;

    s.file = name;
    if (failed)
        fprintf(stderr, "predict: the model has more than %d inputs\n",
                MOST_INPUTS);
    while (!failed && (n = getline(&text, &size, file)) > 0) {
        s.line++;
        failed = strlen(text) < (size_t)n;
        if (failed)
            fprintf(stderr, "predict: %s:%ld: the line has a byte 0\n", name,
                    s.line);
        else
            failed = score_line(p, &s, text);
    }
    if (!failed && ferror(file)) {
        fprintf(stderr, "predict: %s: %s\n", name, strerror(errno));
        failed = 1;
    }
    free(text);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"help", no_argument, NULL, 'h'},
                                          {0}};
    const int found = getopt_long(argc, argv, "", known, NULL);

    if (found == 'h')
        return fputs(usage, stdout) < 0;
    if (found != -1 || argc - optind < 1 || argc - optind > 2)
        return fputs(usage, stderr), 1;
    const char *model = argv[optind], *name = argv[optind + 1];
    FILE *file = name ? fopen(name, "r") : stdin;
    if (!file)
        return fprintf(stderr, "predict: %s: %s\n", name, strerror(errno)), 1;
    fleet_predictor *p = fleet_load_inference_model(model);
    if (!p)
        return fprintf(stderr, "predict: %s\n", fleet_last_error()), 1;
    int failed = score_file(p, name ? name : "standard input", file);
    fleet_predictor_destroy(p);
    return failed;
}
