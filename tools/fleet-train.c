/* fleet-train.c - train what a JSON file describes; docs/fleet-train.md. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fleet/fleet.h>

static const char usage[] =
    "usage: fleet-train [OPTION] FILE.json [KEY=VALUE...] | --schema | --help "
    "| --version\n"
    "Trains the model that FILE.json describes, as the worker or "
    "server that the\nenvironment says. The first worker prints "
    "one line of JSON.\n"
    "  KEY=VALUE       put this into the configuration first: epochs=3,\n"
    "                  optimizer.learning_rate=0.01, dataset.train[0]=a.txt\n"
    "  --resume        go on from the newest checkpoint, if there is one\n"
    "  --evaluate      only evaluate what `load`, or with --resume the newest\n"
    "                  checkpoint, has on `dataset.test`\n"
    "  --dry-run       only try what comes before the training: files, the\n"
    "                  first batches, the model; print what there is\n"
    "  --print-config  only print the configuration, with each KEY=VALUE in "
    "it\n"
    "  --dump FORM     only print the model's program (text, dot, svg, json), "
    "or "
    "its\n"
    "                  plan for a batch (plan, plan-dot, plan-svg, stages); "
    "svg "
    "is\n"
    "                  drawn by Graphviz's dot\n"
    "  --schema        print the JSON Schema of configurations\n"
    "SIGINT and SIGTERM stop the training after its batch and save it; "
    "a second one\nends it at once.\n";

static volatile sig_atomic_t stop_signal;

static const int ends[] = {SIGINT, SIGTERM};
static volatile sig_atomic_t is_caught[2];

static void stop_on(int number)
{
    stop_signal = number;
    for (int i = 0; i < 2; i++)
        if (is_caught[i])
            signal(ends[i], SIG_DFL);
    fleet_train_stop();
    /* as libfleet does where nothing handles SIGTERM */
    fleet_stop_server_for(number == SIGTERM ? "it was sent SIGTERM"
                                            : "it was sent SIGINT");
}

/* Once: a second one, of either, ends the process. One that was ignored by who
 * has started the process stays ignored. */
static void catch_signals(void)
{
    const struct sigaction ours = {.sa_handler = stop_on,
                                   .sa_flags = SA_RESTART};
    struct sigaction now;

    for (int i = 0; i < 2; i++)
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
            is_caught[i] = 1;
            sigaction(ends[i], &ours, NULL);
        }
}

/* Of two classes the area under the curve is what one looks at. */
static void show_validation(const fleet_evaluation *e)
{
    if (e && isfinite(e->loss))
        fprintf(stderr, "  validation loss %.4f", e->loss);
    if (e && (isfinite(e->auc) || isfinite(e->accuracy)))
        fprintf(stderr, "  %s %.4f", isfinite(e->auc) ? "auc" : "accuracy",
                isfinite(e->auc) ? e->auc : e->accuracy);
    for (int i = 0; e && i < e->n_ranking; i++)
        fprintf(stderr, "  %s@%lld %.4f",
                e->ranking[i].kind == FLEET_RECALL_AT ? "recall" : "ndcg",
                (long long)e->ranking[i].k, e->ranking[i].value);
}

static void show_progress(void *user, const fleet_progress *p)
{
    char left[32] = "?", loss[32] = "-";

    (void)user;
    if (isfinite(p->seconds_left))
        snprintf(left, sizeof left, "%.0f s", p->seconds_left);
    if (isfinite(p->loss))
        snprintf(loss, sizeof loss, "%.4f", p->loss);
    fprintf(stderr,
            "%sepoch %lld/%lld  %lld samples  %.0f samples/s  loss %s  "
            "ETA %s",
            isatty(2) ? "\r\033[K" : "", (long long)p->epoch,
            (long long)p->epochs, (long long)p->samples, p->samples_per_s, loss,
            left);
    show_validation(p->validation);
    if (!isatty(2))
        fputc('\n', stderr);
}

static int print_schema(void)
{
    char *text = fleet_config_schema();

    if (!text)
        fprintf(stderr, "fleet-train: %s\n", fleet_last_error());
    if (!text || puts(text) < 0 || fflush(stdout) != 0)
        return 1;
    fleet_free(text);
    return 0;
}

/* --- programs and plans, drawn -------------------------------------------- */

typedef struct dump_form {
    const char *name;
    fleet_dump how;
    int is_drawn; /* by dot, of the text */
} dump_form;

static const dump_form *find_form(const char *name)
{
    static const dump_form forms[] = {{"text", FLEET_DUMP_TEXT, 0},
                                      {"dot", FLEET_DUMP_DOT, 0},
                                      {"svg", FLEET_DUMP_DOT, 1},
                                      {"plan", FLEET_DUMP_PLAN, 0},
                                      {"plan-dot", FLEET_DUMP_PLAN_DOT, 0},
                                      {"json", FLEET_DUMP_JSON, 0},
                                      {"plan-svg", FLEET_DUMP_PLAN_DOT, 1},
                                      {"stages", FLEET_DUMP_STAGES, 0},
                                      {0}};

    for (const dump_form *f = forms; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    fprintf(stderr,
            "fleet-train: --dump: expected text, dot, svg, json, plan, "
            "plan-dot, plan-svg or stages, got %s\n",
            name);
    return NULL;
}

/* What posix_spawnp() says of `dot -Tsvg` with this as its input. */
static int spawn_dot(FILE *text, pid_t *dot)
{
    static char *const command[] = {"dot", "-Tsvg", NULL};
    extern char **environ;
    posix_spawn_file_actions_t files;
    int error = posix_spawn_file_actions_init(&files);

    if (error != 0)
        return error;
    error = posix_spawn_file_actions_adddup2(&files, fileno(text), 0);
    if (error == 0)
        error = posix_spawnp(dot, command[0], &files, NULL, command, environ);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* A file, not a pipe: dot that ends early ends nobody else. */
static int draw(const char *text)
{
    FILE *input = tmpfile();
    int error = 0, status = -1;
    pid_t dot;

    if (!input || fputs(text, input) < 0 || fflush(input) != 0 ||
        fseek(input, 0, SEEK_SET) != 0)
        error = errno;
    if (error != 0)
        fprintf(stderr, "fleet-train: a temporary file: %s\n", strerror(error));
    else if ((error = spawn_dot(input, &dot)) != 0)
        fprintf(stderr,
                "fleet-train: dot, which draws svg, cannot be started: %s; it "
                "is of the package graphviz; --dump dot and plan-dot do "
                "without it\n",
                strerror(error));
    else if (waitpid(dot, &status, 0) != dot || status != 0)
        fprintf(stderr, "fleet-train: dot has failed\n");
    if (input)
        fclose(input);
    return status != 0;
}

static int print_line(const char *line)
{
    if (puts(line) < 0 || fflush(stdout) != 0)
        return perror("fleet-train: the closing line is lost"), 1;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"schema", no_argument, NULL, 's'},
        {"resume", no_argument, NULL, 'r'},
        {"evaluate", no_argument, NULL, FLEET_CONFIG_EVALUATE},
        {"dry-run", no_argument, NULL, FLEET_CONFIG_CHECK},
        {"print-config", no_argument, NULL, FLEET_CONFIG_PRINT},
        {"dump", required_argument, NULL, FLEET_CONFIG_DUMP},
        {0}};
    int found, stopped = 0;
    fleet_config_options options = {.on_progress = show_progress,
                                    .stopped = &stopped};
    const dump_form *form = NULL;
    fleet_status status;
    char *line;

    while ((found = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (found == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (found == 'v')
            return printf("fleet-train %s\n", fleet_version()) < 0 ||
                   fflush(stdout) != 0;
        if (found == 's')
            return print_schema();
        if (found == '?')
            return fputs(usage, stderr), 2;
        if (found == FLEET_CONFIG_DUMP && !(form = find_form(optarg)))
            return 2;
        if (found == 'r')
            options.resume = 1;
        else if (options.action == FLEET_CONFIG_TRAIN)
            options.action = (fleet_config_action)found;
        else
            return fputs(usage, stderr), 2;
    }
    if (argc == optind)
        return fputs(usage, stderr), 2;
    options.set = (const char *const *)argv + optind + 1;
    options.n_set = argc - optind - 1;
    options.dump = form ? form->how : FLEET_DUMP_TEXT;
    if (options.action == FLEET_CONFIG_TRAIN)
        catch_signals(); /* nothing else stops by itself */
    status = fleet_train_from_config(argv[optind], &options, &line);
    if (isatty(2))
        fprintf(stderr, "\n");
    if (status != FLEET_OK) {
        fprintf(stderr, "fleet-train: %s\n", fleet_last_error());
        return 1;
    }
    if (line && (form && form->is_drawn ? draw(line) : print_line(line)) != 0)
        return 1;
    fleet_free(line);
    /* a worker may stop because another one was told to */
    return stopped ? 128 + (stop_signal ? stop_signal : SIGTERM) : 0;
}
