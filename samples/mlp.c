/* mlp.c - a multi-layer perceptron on Fashion-MNIST, from the bare layers.
 *
 *   bin/mlp [--async] [--hybrid] [--device gpu:0] [FOLDER [EPOCHS]]
 *
 * FOLDER has the four .gz files of MNIST's kind; the default is that of
 * Debian's package dataset-fashion-mnist. The program stays as it is when
 * servers or other workers join: who it is comes from the environment.
 *
 *   bin/fleetrun --server_num 1 --worker_num 2 bin/mlp
 *   bin/fleetrun --nproc_per_node 2 bin/mlp
 *
 * Workers then take their steps together, with --async each for itself; with
 * --hybrid servers are left to tables, and there is none here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

enum { PIXELS = 28 * 28, CLASSES = 10, BATCH = 128 };

/* Leave the function with the first failure; its text is already there. */
#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

static const char usage[] = "usage: mlp [--async] [--hybrid] [--device gpu:0] "
                            "[FOLDER [EPOCHS]]\n";

typedef struct scene {
    int a_sync, hybrid;
    const char *device;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_dataset *train, *test;
    fleet_executor *trainer, *tester;
} scene;

static fleet_status describe(scene *s)
{
    fleet_program *p = s->program = fleet_program_create(s->fleet);
    fleet_fc_options relu = {.activation = FLEET_RELU};

    fleet_var *image =
        fleet_data(p, "image", FLEET_FLOAT32, (int64_t[]){-1, PIXELS}, 2);
    fleet_var *label =
        fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *h = fleet_fc(p, image, 128, &relu);
    h = fleet_fc(p, h, 64, &relu);
    fleet_var *logits = fleet_fc(p, h, CLASSES, NULL);
    fleet_var *cost = fleet_softmax_with_cross_entropy(p, logits, label,
                                                       &s->model.prediction);
    s->model.loss = fleet_mean(p, cost);
    s->model.label = label;
    return fleet_program_status(p); /* the first failure of all of the above */
}

/* Where it runs; servers need no GPU. */
static fleet_status place(scene *s)
{
    fleet_place where;

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

static fleet_dataset *open_data(scene *s, const char *folder, const char *part,
                                int64_t shuffle)
{
    fleet_dataset_options options = {.format = FLEET_IDX,
                                     .batch_size = BATCH,
                                     .thread_num = 1,
                                     .shuffle = shuffle};
    fleet_dataset *data = fleet_queue_dataset(s->fleet, &options);
    char images[4096], labels[4096];

    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte.gz", folder, part);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", folder, part);
    if (data && fleet_dataset_set_filelist(
                    data, (const char *[]){images, labels}, 2) != FLEET_OK)
        return NULL;
    return data;
}

static fleet_status train(scene *s, int epochs, fleet_report *report)
{
    fleet_train_options options = {.fetch_list =
                                       (const fleet_var *[]){s->model.loss},
                                   .fetch_info = (const char *[]){"loss"},
                                   .n_fetch = 1,
                                   .print_period = 400};
    double seconds = 0, samples = 0;

    for (int epoch = 0; epoch < epochs; epoch++) {
        fleet_train_result r;

        TRY(fleet_train_from_dataset(s->trainer, s->train, &options, &r));
        seconds += r.seconds;
        samples += (double)r.samples;
        report->loss = r.loss;
    }
    report->samples_per_s = samples / seconds;
    return FLEET_OK;
}

static fleet_status run_worker(scene *s, int epochs)
{
    fleet_executor_options for_test = {.for_test = 1};
    fleet_evaluation evaluation;
    fleet_report report = {.model = "mlp", .evaluation = &evaluation};

    s->trainer = fleet_executor_create(s->program, NULL);
    s->tester = fleet_executor_create(s->program, &for_test);
    if (!s->trainer || !s->tester)
        return FLEET_ESTATE;
    TRY(fleet_init_worker(s->fleet));
    TRY(train(s, epochs, &report));
    if (fleet_is_first_worker(s->fleet)) {
        TRY(fleet_params_hash(s->fleet, &report.params_hash));
        TRY(fleet_evaluate(s->tester, s->test, &s->model, &evaluation));
        char *line = fleet_report_line(s->fleet, &report);
        if (line)
            puts(line);
        fleet_free(line);
    }
    return fleet_stop_worker(s->fleet);
}

static fleet_status run(scene *s, const char *folder, int epochs)
{
    TRY(fleet_init(&s->fleet, NULL));
    TRY(describe(s));
    TRY(place(s));
    TRY(minimize(s));
    if (fleet_is_server(s->fleet)) {
        TRY(fleet_init_server(s->fleet, NULL));
        return fleet_run_server(s->fleet);
    }
    s->train = open_data(s, folder, "train", 60000);
    s->test = open_data(s, folder, "t10k", 0);
    return s->train && s->test ? run_worker(s, epochs) : FLEET_ENOENT;
}

/* Is the first argument this word? Then it is taken away. */
static int take(int *argc, char ***argv, const char *word)
{
    int is = *argc > 1 && strcmp((*argv)[1], word) == 0;

    *argc -= is;
    *argv += is;
    return is;
}

int main(int argc, char **argv)
{
    const char *folder = "/usr/share/datasets/fashion-mnist";
    if (take(&argc, &argv, "--help"))
        return fputs(usage, stdout) < 0;
    scene s = {.a_sync = take(&argc, &argv, "--async"), .device = "cpu"};

    s.hybrid = take(&argc, &argv, "--hybrid");
    if (argc > 2 && take(&argc, &argv, "--device")) {
        s.device = argv[1];
        take(&argc, &argv, s.device);
    }
    fleet_status status =
        run(&s, argc > 1 ? argv[1] : folder, argc > 2 ? atoi(argv[2]) : 10);

    if (status != FLEET_OK)
        fprintf(stderr, "mlp: %s\n", fleet_last_error());
    fleet_executor_destroy(s.trainer);
    fleet_executor_destroy(s.tester);
    fleet_destroy(s.fleet);
    return status != FLEET_OK;
}
