/* fleet-predict.c - score files of raw text with a saved model;
 * docs/predict.md. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

static const char usage[] =
    "usage: fleet-predict [OPTION]... MODEL DATA... -o FILE\n"
    "       fleet-predict [OPTION]... MODEL DATA... --evaluate [-o FILE]\n"
    "       fleet-predict [OPTION]... MODEL DATA... --importance\n"
    "       fleet-predict --help | --version\n"
    "Scores each line of DATA, as the lines that MODEL was trained on are "
    "read; "
    "\"-\"\nis standard input. MODEL is what fleet-train has saved.\n"
    "  -o, --output FILE    a line of scores for each sample, in their order; "
    "\"-\": standard\n"
    "                       output. A file appears once it is whole\n"
    "  --evaluate           compare the first output with the label, and print "
    "a line of\n"
    "                       JSON: samples, auc, logloss, accuracy\n"
    "  --importance         a line of JSON for each slot, the most important "
    "first: how\n"
    "                       much worse the first output is if its values are "
    "those of\n"
    "                       other samples; behind one as by --evaluate\n"
    "  --seed N             of these; 0\n"
    "  --no-label           the lines do not have the label\n"
    "  --names NAME,...     write these outputs alone, in this order\n"
    "  --header             a first line with the names of the outputs\n"
    "  --threads N          as many threads; by default all processors\n"
    "  --batch-size N       samples that are scored at once; 1024\n"
    "  --pipe-command TEXT  a shell pipeline that each file goes through\n";

enum { MOST_NAMES = 1000 };

typedef struct job {
    fleet_predict_options o;
    const char *name[MOST_NAMES];
    int evaluates, no_label, ranks, seeded;
    uint64_t seed;
} job;

/* From 1 to most, or -1. */
static long read_number(const char *text, long most)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && n >= 1 && n <= most ? n
                                                                         : -1;
}

static int read_seed(const char *text, job *j)
{
    char *end;

    errno = 0;
    j->seed = strtoull(text, &end, 10);
    j->seeded = 1;
    return errno == 0 && *text >= '0' && *text <= '9' && *end == 0 ? 0 : -1;
}

static int read_names(char *text, job *j)
{
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (j->o.n_name == MOST_NAMES)
            return -1;
        j->name[j->o.n_name++] = name;
    }
    j->o.names = j->name;
    return j->o.n_name > 0 ? 0 : -1;
}

static int read_option(int option, char *text, job *j)
{
    switch (option) {
    case 'o':
        j->o.output = text;
        return *text ? 0 : -1;
    case 'e':
        j->evaluates = 1;
        return 0;
    case 'l':
        j->no_label = 1;
        return 0;
    case 'n':
        return read_names(text, j);
    case 'H':
        j->o.header = 1;
        return 0;
    case 't':
        return (j->o.threads = (int)read_number(text, 64)) < 1 ? -1 : 0;
    case 'b':
        return (j->o.batch_size = read_number(text, 1 << 20)) < 1 ? -1 : 0;
    case 'i':
        j->ranks = 1;
        return 0;
    case 's':
        return read_seed(text, j);
    case 'p':
        j->o.pipe_command = text;
        return 0;
    default:
        return -1;
    }
}

static int check_job(job *j, int words)
{
    const char *wrong =
        words < 2 ? "expected MODEL and DATA"
        : j->ranks && (j->o.output || j->evaluates || j->no_label ||
                       j->o.n_name || j->o.header)
            ? "--importance writes no scores, and reads the label"
        : j->seeded && !j->ranks        ? "--seed is for --importance"
        : j->ranks                      ? NULL
        : !j->o.output && !j->evaluates ? "expected -o FILE, or --evaluate"
        : j->evaluates && j->no_label   ? "--evaluate needs the label"
        : !j->evaluates || !j->o.output ? NULL
        : strcmp(j->o.output, "-") == 0
            ? "-o - and --evaluate would both write to standard output"
            : NULL;

    if (wrong)
        fprintf(stderr, "fleet-predict: %s\n%s", wrong, usage);
    j->o.label = j->evaluates  ? FLEET_LABEL_READ
                 : j->no_label ? FLEET_LABEL_ABSENT
                               : FLEET_LABEL_UNREAD;
    return wrong ? -1 : 0;
}

static void print_number(const char *key, double x)
{
    if (isfinite(x))
        printf(",\"%s\":%.6g", key, x);
    else
        printf(",\"%s\":null", key);
}

static void print_evaluation(const fleet_evaluation *e)
{
    printf("{\"samples\":%lld", (long long)e->samples);
    print_number("auc", e->auc);
    print_number("logloss", e->logloss);
    print_number("accuracy", e->accuracy);
    puts("}");
}

/* A text as it stands in JSON. */
static void print_text(const char *text)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned)(unsigned char)*text);
        else
            putchar(*text);
}

static double weight_of(const fleet_importance *x)
{
    return isfinite(x->auc_drop) ? x->auc_drop : x->accuracy_drop;
}

static int compare(const void *a, const void *b)
{
    const double x = weight_of(a), y = weight_of(b);

    return (x < y) - (x > y);
}

static fleet_status rank(const job *j, fleet_predictor *p, char *const *data,
                         int n)
{
    const fleet_importance_options o = {.seed = j->seed,
                                        .batch_size = j->o.batch_size,
                                        .threads = j->o.threads,
                                        .pipe_command = j->o.pipe_command};
    const char *const *paths = (const char *const *)data;
    fleet_evaluation found;
    fleet_importance *x;
    fleet_status status;
    int n_slot;

    status = fleet_feature_importance(p, paths, n, &o, NULL, 0, &n_slot, NULL);
    if (status != FLEET_OK)
        return status;
    x = calloc((size_t)n_slot + 1, sizeof *x);
    if (!x)
        return FLEET_ENOMEM;
    status =
        fleet_feature_importance(p, paths, n, &o, x, n_slot, &n_slot, &found);
    if (status == FLEET_OK) {
        print_evaluation(&found);
        qsort(x, (size_t)n_slot, sizeof *x, compare);
    }
    for (int i = 0; status == FLEET_OK && i < n_slot; i++) {
        printf("{\"slot\":\"");
        print_text(x[i].slot);
        putchar('"');
        print_number("auc_drop", x[i].auc_drop);
        print_number("logloss_rise", x[i].logloss_rise);
        print_number("accuracy_drop", x[i].accuracy_drop);
        puts("}");
    }
    free(x);
    return status;
}

static int run(job *j, const char *path, char *const *data, int n)
{
    fleet_predictor *p = fleet_load_inference_model(path);
    fleet_predict_result r;
    fleet_status status = FLEET_OK;

    if (p)
        status = j->ranks ? rank(j, p, data, n)
                          : fleet_predict_files(p, (const char *const *)data, n,
                                                &j->o, &r);
    if (!p || status != FLEET_OK) {
        fprintf(stderr, "fleet-predict: %s\n", fleet_last_error());
        fleet_predictor_destroy(p);
        return 1;
    }
    fleet_predictor_destroy(p);
    if (j->evaluates)
        print_evaluation(&r.evaluation);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("fleet-predict: standard output");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"output", required_argument, NULL, 'o'},
        {"evaluate", no_argument, NULL, 'e'},
        {"no-label", no_argument, NULL, 'l'},
        {"importance", no_argument, NULL, 'i'},
        {"seed", required_argument, NULL, 's'},
        {"names", required_argument, NULL, 'n'},
        {"header", no_argument, NULL, 'H'},
        {"threads", required_argument, NULL, 't'},
        {"batch-size", required_argument, NULL, 'b'},
        {"pipe-command", required_argument, NULL, 'p'},
        {0}};
    static job j;
    int found;

    while ((found = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
        if (found == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (found == 'v')
            return printf("fleet-predict %s\n", fleet_version()) < 0 ||
                   fflush(stdout) != 0;
        if (read_option(found, optarg, &j) != 0)
            return fputs(usage, stderr), 2;
    }
    if (check_job(&j, argc - optind) != 0)
        return 2;
    return run(&j, argv[optind], argv + optind + 1, argc - optind - 1);
}
