/* fleet-plot.c - curves of trainings; docs/plot.md. */
#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet-plot/picture.h"
#include "fleet-plot/png_file.h"
#include "fleet-plot/terminal.h"

static const char usage[] =
    "usage: fleet-plot [OPTIONS] [LABEL=]RUN...\n"
    "\n"
    "Draws the curves of metrics_log files, JSON lines or CSV, up to 16 of "
    "them; \"-\" is\nstandard input. Without -o as text, with colours where "
    "that goes to a terminal.\n"
    "  -o FILE.png      as a picture\n"
    "  --show NAME,...  of loss, validation_loss, validation_auc, "
    "validation_logloss,\n"
    "                   validation_accuracy, learning_rate, samples_per_s; "
    "default: loss,\n"
    "                   learning_rate, samples_per_s, and validation_auc, or "
    "else _accuracy\n"
    "  --by NAME        over step (default), samples or time\n"
    "  --log            the loss over a scale of logarithms\n"
    "  --all            each run of a file, not its last one alone\n"
    "  --ascii          text of ASCII alone\n"
    "  --unicode        text with Braille's dots, where it is no terminal, "
    "too\n"
    "  --width N, --height N\n"
    "                   characters of a panel, or pixels: of the picture, of "
    "a panel\n";

typedef struct request {
    const char *output;
    bool show[N_COLUMN], chosen, log, all, ascii, unicode;
    axis by;
    int width, height; /* 0: not given */
} request;

static fleet_status refuse_name(const char *option, const char *word,
                                const char *const *names)
{
    const char *near = fl_text_nearest(word, names);
    fl_text list = {0};

    for (int i = 0; names[i]; i++)
        fl_text_add(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    fl_fail(FLEET_EINVAL, "%s: expected one of %s, got \"%.60s\"%s%s%s", option,
            fl_text_chars(&list), word, near ? ": did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    fl_text_done(&list);
    return FLEET_EINVAL;
}

static int index_of(const char *word, const char *const *names)
{
    int i = 0;

    while (names[i] && strcmp(names[i], word) != 0)
        i++;
    return names[i] ? i : -1;
}

static fleet_status read_show(char *text, request *q)
{
    q->chosen = true;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        const int i = index_of(word, column_name);

        if (i < 0)
            return refuse_name("--show", word, column_name);
        q->show[i] = true;
    }
    return FLEET_OK;
}

static fleet_status read_by(const char *text, request *q)
{
    const int i = index_of(text, axis_name);

    if (i < 0)
        return refuse_name("--by", text, axis_name);
    q->by = (axis)i;
    return FLEET_OK;
}

static fleet_status read_size(const char *option, const char *text, int *size)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end || n < 1 || n > 10000)
        return fl_fail(FLEET_EINVAL,
                       "%s: expected an integer from 1 to 10000, got \"%.60s\"",
                       option, text);
    *size = (int)n;
    return FLEET_OK;
}

static fleet_status read_option(int option, char *text, request *q)
{
    switch (option) {
    case 'o':
        q->output = text;
        return FLEET_OK;
    case 's':
        return read_show(text, q);
    case 'b':
        return read_by(text, q);
    case 'l':
        q->log = true;
        return FLEET_OK;
    case 'a':
        q->all = true;
        return FLEET_OK;
    case 'A':
        q->ascii = true;
        return FLEET_OK;
    case 'U':
        q->unicode = true;
        return FLEET_OK;
    case 'w':
        return read_size("--width", text, &q->width);
    case 'h':
        return read_size("--height", text, &q->height);
    default:
        return FLEET_EINVAL; /* getopt has said it */
    }
}

/* --- runs ----------------------------------------------------------------- */

/* LABEL=PATH, unless there is a file whose name has that in it. The label of a
 * path alone is its name without the end. */
static fleet_status read_run(const request *q, const char *text, run_list *l)
{
    const char *equals = strchr(text, '='), *slash = strrchr(text, '/');
    const bool labelled = equals && equals > text && !fl_file_exists(text);
    const char *path = labelled ? equals + 1 : text;
    const char *name = labelled ? text : slash ? slash + 1 : text;
    const char *dot = strrchr(name, '.');
    const size_t n = labelled            ? (size_t)(equals - text)
                     : dot && dot > name ? (size_t)(dot - name)
                                         : strlen(name);
    char *label = fl_strndup(name, n);
    fleet_status status = label ? FLEET_OK : FLEET_ENOMEM;

    if (status == FLEET_OK)
        status = runs_read(l, path, label, q->by, q->all);
    fl_free(label);
    if (status == FLEET_OK && l->n > MOST_RUNS)
        return fl_fail(FLEET_EINVAL, "expected at most %d runs, got more",
                       MOST_RUNS);
    return status;
}

static void choose_columns(request *q, const run_list *l)
{
    bool has_auc = false;

    if (q->chosen)
        return;
    for (size_t i = 0; i < l->n; i++)
        has_auc = has_auc || l->run[i].of[VALIDATION_AUC].n > 0;
    q->show[LOSS] = q->show[LEARNING_RATE] = q->show[SAMPLES_PER_S] = true;
    q->show[has_auc ? VALIDATION_AUC : VALIDATION_ACCURACY] = true;
}

/* --- the drawing ---------------------------------------------------------- */

static int within(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

static terminal terminal_of(const request *q)
{
    const bool is_terminal = isatty(STDOUT_FILENO),
               utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    struct winsize size = {0};
    terminal t = {.height = q->height ? within(q->height, 3, 200) : 12};

    if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        size.ws_col = 0;
    t.width = q->width ? q->width : size.ws_col > 0 ? size.ws_col - 1 : 79;
    t.width = within(t.width, 30, 500);
    t.braille = q->unicode || (is_terminal && utf8 && !q->ascii);
    t.colours = is_terminal && !getenv("NO_COLOR");
    return t;
}

static fleet_status draw_picture(const request *q, chart *c)
{
    canvas to = {0};
    fleet_status status =
        picture_draw(c, q->width ? within(q->width, 200, 10000) : 960,
                     q->height ? within(q->height, 100, 4000) : 260, &to);

    if (status == FLEET_OK)
        status = png_file_write(&to, q->output);
    canvas_done(&to);
    return status;
}

static fleet_status draw(const request *q, chart *c)
{
    const terminal t = terminal_of(q);

    FL_TRY(q->output ? draw_picture(q, c) : terminal_draw(&t, c, stdout));
    return terminal_summary(&t, c, stdout);
}

static fleet_status plot(request *q, char **paths)
{
    static chart c;
    run_list l = {0};
    fleet_status status = FLEET_OK;

    for (; *paths && status == FLEET_OK; paths++)
        status = read_run(q, *paths, &l);
    if (status == FLEET_OK) {
        choose_columns(q, &l);
        status = chart_make(&l, q->by, q->show, q->log, &c);
    }
    if (status == FLEET_OK)
        status = draw(q, &c);
    runs_done(&l);
    return status;
}

static const struct option known[] = {{"help", no_argument, NULL, 'H'},
                                      {"output", required_argument, NULL, 'o'},
                                      {"show", required_argument, NULL, 's'},
                                      {"by", required_argument, NULL, 'b'},
                                      {"log", no_argument, NULL, 'l'},
                                      {"all", no_argument, NULL, 'a'},
                                      {"ascii", no_argument, NULL, 'A'},
                                      {"unicode", no_argument, NULL, 'U'},
                                      {"width", required_argument, NULL, 'w'},
                                      {"height", required_argument, NULL, 'h'},
                                      {0}};

int main(int argc, char **argv)
{
    static request q;
    int option;

    setlocale(LC_CTYPE, "");
    while ((option = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
        if (option == 'H')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (option == '?')
            return fputs(usage, stderr), 2;
        if (read_option(option, optarg, &q) != FLEET_OK) {
            fprintf(stderr, "fleet-plot: %s\n", fleet_last_error());
            return 2;
        }
    }
    if (optind == argc || (q.ascii && q.unicode))
        return fputs(usage, stderr), 2;
    if (plot(&q, argv + optind) != FLEET_OK) {
        fflush(stdout);
        fprintf(stderr, "fleet-plot: %s\n", fleet_last_error());
        return 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("fleet-plot: standard output");
        return 2;
    }
    return 0;
}
