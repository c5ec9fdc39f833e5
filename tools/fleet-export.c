/* fleet-export.c - a saved model as a file of ONNX; docs/onnx.md. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

static const char usage[] =
    "usage: fleet-export [OPTION]... MODEL -o FILE\n"
    "       fleet-export --help | --version\n"
    "Writes an inference model as a file of ONNX.\n"
    "  -o, --output FILE    it appears once it is whole; \"-\": standard "
    "output\n"
    "  --fresh [TABLE=]zeros, --fresh [TABLE=]row:ID\n"
    "                       what ids without a row read as, in that table or "
    "in all:\n"
    "                       zeros, or the row of that id. By default as the "
    "model says\n"
    "  --external-data      tensors of 1,024 bytes and more go into "
    "FILE.data, so that\n"
    "                       FILE may stand for more than 2 GB\n";

enum { MOST_TABLES = 100 };

typedef struct fresh_choice {
    char *table; /* NULL: all */
    fleet_fresh fresh;
    int64_t id;
} fresh_choice;

typedef struct job {
    const char *output;
    fleet_onnx_options o;
    fresh_choice choice[MOST_TABLES];
    int n_choice;
} job;

static int read_fresh(char *text, job *j)
{
    fresh_choice *c = &j->choice[j->n_choice];
    char *what = strrchr(text, '='), *end;

    if (j->n_choice == MOST_TABLES)
        return -1;
    if (what) {
        *what++ = 0;
        c->table = text;
    } else {
        what = text;
    }
    j->n_choice++;
    c->fresh = FLEET_FRESH_ZEROS;
    if (strcmp(what, "zeros") == 0)
        return 0;
    if (strncmp(what, "row:", 4) != 0)
        return -1;
    c->fresh = FLEET_FRESH_ROW;
    errno = 0;
    c->id = strtoll(what + 4, &end, 10);
    return errno == 0 && end != what + 4 && *end == 0 ? 0 : -1;
}

static int read_option(int option, char *text, job *j)
{
    switch (option) {
    case 'o':
        j->output = text;
        return *text ? 0 : -1;
    case 'f':
        return read_fresh(text, j);
    case 'x':
        j->o.external_data = 1;
        return 0;
    default:
        return -1;
    }
}

static fleet_status export_model(const job *j, const char *path)
{
    fleet_predictor *p = fleet_load_inference_model(path);
    fleet_status status = p ? FLEET_OK : fleet_last_status();

    for (int i = 0; status == FLEET_OK && i < j->n_choice; i++)
        status = fleet_predictor_set_fresh(p, j->choice[i].table,
                                           j->choice[i].fresh, j->choice[i].id);
    if (status == FLEET_OK)
        status = fleet_export_onnx(p, j->output, &j->o);
    if (status != FLEET_OK)
        fprintf(stderr, "fleet-export: %s\n", fleet_last_error());
    fleet_predictor_destroy(p);
    return status;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"output", required_argument, NULL, 'o'},
        {"fresh", required_argument, NULL, 'f'},
        {"external-data", no_argument, NULL, 'x'},
        {0}};
    static job j;
    int found;

    while ((found = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
        if (found == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (found == 'v')
            return printf("fleet-export %s\n", fleet_version()) < 0 ||
                   fflush(stdout) != 0;
        if (read_option(found, optarg, &j) != 0)
            return fputs(usage, stderr), 2;
    }
    if (argc - optind != 1 || !j.output)
        return fputs(usage, stderr), 2;
    return export_model(&j, argv[optind]) == FLEET_OK ? 0 : 1;
}
