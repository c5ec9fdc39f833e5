/* ctr.c - will a person earn more than 50,000 dollars? Click-through models on
 * the Adult census data.
 *
 *   bin/ctr [--async] [--hybrid] [--device gpu:0] [--servers NAME]...
 *           [--ranks NAME]... [MODEL [FOLDER [EPOCHS [SAVE]]]]
 *
 * MODEL is wide_deep, ctr_dnn or deepfm, FOLDER has adult.data.gz and
 * adult.test.first13025.gz; the default is libfleet's own copy. SAVE is where
 * the model goes for bin/predict. The same program is a worker or a server of a
 * job, as the environment says:
 *
 *   bin/fleetrun --server_num 2 --worker_num 2 bin/ctr wide_deep
 *   bin/fleetrun --nproc_per_node 2 bin/ctr wide_deep
 *   bin/fleetrun --server_num 1 --worker_num 2 --collective bin/ctr --hybrid
 *
 * Workers then take their steps together, with --async each for itself; with
 * --hybrid rows alone are on the servers, but for the parameters and tables
 * that --servers and --ranks name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "adult.h"

/* Leave the function with the first failure; its text is already there. */
#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

static const char usage[] =
    "usage: ctr [--async] [--hybrid] [--device gpu:0] [--servers NAME]...\n"
    "           [--ranks NAME]... [MODEL [FOLDER [EPOCHS [SAVE]]]]\n"
    "MODEL is wide_deep (the default), ctr_dnn or deepfm\n";

typedef struct scene {
    const char *name, *folder, *save, *device;
    int epochs, a_sync, hybrid;
    const char *const *keepers; /* "--ranks", "embedding", ... */
    int n_keeper;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_dataset *train, *test;
    fleet_executor *trainer, *tester;
} scene;

/* Who keeps what in a hybrid job, where the mode's choice is not meant. */
static fleet_status choose_keepers(scene *s)
{
    for (int i = 0; i < s->n_keeper; i += 2) {
        int ranks = strcmp(s->keepers[i], "--ranks") == 0;

        TRY(fleet_param_set_ps(s->program, s->keepers[i + 1],
                               ranks ? FLEET_PS_RANKS : FLEET_PS_SERVERS));
    }
    return FLEET_OK;
}

static fleet_status describe(scene *s)
{
    fleet_ctr_options options = {.label = "income",
                                 .dense =
                                     &(fleet_dense_slot){"dense", ADULT_DENSE},
                                 .n_dense = 1,
                                 .ids = adult_ids,
                                 .n_ids = ADULT_IDS,
                                 .embedding_dim = 8,
                                 .hidden = (int64_t[]){100, 50},
                                 .n_hidden = 2};

    s->program = fleet_program_create(s->fleet);
    if (strcmp(s->name, "deepfm") == 0)
        fleet_deepfm(s->program, &options, &s->model);
    else if (strcmp(s->name, "ctr_dnn") == 0)
        fleet_ctr_dnn(s->program, &options, &s->model);
    else if (strcmp(s->name, "wide_deep") == 0)
        fleet_wide_deep(s->program, &options, &s->model);
    else
        return fprintf(stderr, "ctr: no model %s\n%s", s->name, usage),
               FLEET_EINVAL;
    TRY(fleet_program_status(s->program));
    return choose_keepers(s);
}

/* Where it runs: on "gpu" alone each worker takes its own. Servers need none.
 */
static fleet_status place(scene *s)
{
    fleet_place where = FLEET_GPU(fleet_worker_gpu(s->fleet));

    if (strcmp(s->device, "gpu") != 0)
        TRY(fleet_place_parse(s->device, &where));
    return fleet_is_worker(s->fleet)
               ? fleet_program_place(s->program, where, NULL)
               : FLEET_OK;
}

static fleet_status minimize(scene *s)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *optimizer = fleet_adam(s->fleet, 1e-3f, NULL);

    strategy.a_sync = s->a_sync; /* it has an effect where servers are */
    strategy.is_collective = s->hybrid;
    optimizer = fleet_distributed_optimizer(s->fleet, optimizer, &strategy);
    return fleet_minimize(optimizer, s->model.loss);
}

static fleet_status open_data(scene *s)
{
    s->train = adult_dataset(s->fleet, s->folder, "adult.data.gz", 40000);
    if (!s->train)
        return FLEET_ENOENT;
    s->test = adult_dataset(s->fleet, s->folder, "adult.test.first13025.gz", 0);
    if (!s->test)
        return FLEET_ENOENT;
    return fleet_dataset_use_statistics_of(s->test, s->train);
}

static fleet_status train(scene *s, fleet_report *report)
{
    fleet_train_options options = {.fetch_list =
                                       (const fleet_var *[]){s->model.loss},
                                   .fetch_info = (const char *[]){"loss"},
                                   .n_fetch = 1};
    double seconds = 0, samples = 0;

    for (int epoch = 0; epoch < s->epochs; epoch++) {
        fleet_train_result r;

        TRY(fleet_train_from_dataset(s->trainer, s->train, &options, &r));
        seconds += r.seconds;
        samples += (double)r.samples;
        report->loss = r.loss;
    }
    report->samples_per_s = samples / seconds;
    return FLEET_OK;
}

static fleet_status run_worker(scene *s)
{
    fleet_executor_options for_test = {.for_test = 1};
    fleet_evaluation evaluation;
    fleet_report report = {.model = s->name, .evaluation = &evaluation};

    TRY(open_data(s));
    s->trainer = fleet_executor_create(s->program, NULL);
    s->tester = fleet_executor_create(s->program, &for_test);
    if (!s->trainer || !s->tester)
        return FLEET_ESTATE;
    TRY(fleet_init_worker(s->fleet));
    TRY(train(s, &report));
    if (fleet_is_first_worker(s->fleet)) {
        TRY(fleet_params_hash(s->fleet, &report.params_hash));
        TRY(fleet_evaluate(s->tester, s->test, &s->model, &evaluation));
        if (s->save)
            TRY(adult_save(s->fleet, s->program, s->model.prediction, s->save));
        char *line = fleet_report_line(s->fleet, &report);
        if (line)
            puts(line);
        fleet_free(line);
    }
    return fleet_stop_worker(s->fleet);
}

static fleet_status run(scene *s)
{
    TRY(fleet_init(&s->fleet, NULL));
    TRY(describe(s));
    TRY(place(s));
    TRY(minimize(s));
    if (!fleet_is_server(s->fleet))
        return run_worker(s);
    TRY(fleet_init_server(s->fleet, NULL));
    return fleet_run_server(s->fleet);
}

/* Is the first argument this word? Then it is taken away. */
static int take(int *argc, char ***argv, const char *word)
{
    int is = *argc > 1 && strcmp((*argv)[1], word) == 0;

    *argc -= is;
    *argv += is;
    return is;
}

/* So are pairs of --servers or --ranks and a name; how many words those are. */
static int take_keepers(int *argc, char ***argv)
{
    int n = 0;

    while (*argc > 2 && (strcmp((*argv)[1], "--servers") == 0 ||
                         strcmp((*argv)[1], "--ranks") == 0)) {
        *argc -= 2;
        *argv += 2;
        n += 2;
    }
    return n;
}

int main(int argc, char **argv)
{
    if (take(&argc, &argv, "--help"))
        return fputs(usage, stdout) < 0;
    int a_sync = take(&argc, &argv, "--async");
    int hybrid = take(&argc, &argv, "--hybrid");
    const char *device = "cpu";

    if (argc > 2 && take(&argc, &argv, "--device")) {
        device = argv[1];
        take(&argc, &argv, device);
    }
    const char *const *keepers = (const char *const *)argv + 1;
    int n_keeper = take_keepers(&argc, &argv);
    scene s = {.a_sync = a_sync,
               .hybrid = hybrid,
               .device = device,
               .keepers = keepers,
               .n_keeper = n_keeper,
               .name = argc > 1 ? argv[1] : "wide_deep",
               .folder = argc > 2 ? argv[2] : "samples/data/adult",
               .epochs = argc > 3 ? atoi(argv[3]) : 5,
               .save = argc > 4 ? argv[4] : NULL};
    fleet_status status = run(&s);

    if (status != FLEET_OK && *fleet_last_error())
        fprintf(stderr, "ctr: %s\n", fleet_last_error());
    fleet_executor_destroy(s.trainer);
    fleet_executor_destroy(s.tester);
    fleet_destroy(s.fleet);
    return status != FLEET_OK;
}
