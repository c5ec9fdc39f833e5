/* mlp.c - a multi-layer perceptron on Fashion-MNIST, built from single layers.
 *
 *   bin/mlp [--async] [--hybrid] [--device gpu:0] [FOLDER [EPOCHS]]
 *
 * FOLDER has the four .gz files of an MNIST data set; the default is the folder
 * of Debian's package dataset-fashion-mnist. The same program is the only
 * process of a training, or a worker or a server of a job, as the environment
 * says:
 *
 *   bin/fleetrun --server_num 1 --worker_num 2 bin/mlp
 *   bin/fleetrun --nproc_per_node 2 bin/mlp
 *
 * On servers workers take their steps together, with --async each for itself.
 * With --hybrid servers hold tables alone, of which this model has none. */
#include "sample.h"

enum { PIXELS = 28 * 28, CLASSES = 10, BATCH = 128 };

static const char usage[] = "usage: mlp [--async] [--hybrid] [--device gpu:0] "
                            "[FOLDER [EPOCHS]]\n";

typedef struct training {
    sample_options options;
    const char *folder;
    int epochs;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_executor *trainer, *tester;
} training;

static fleet_status build_model(training *t)
{
    fleet_program *p = t->program = fleet_program_create(t->fleet);
    fleet_fc_options relu = {.activation = FLEET_RELU};

    fleet_var *image =
        fleet_data(p, "image", FLEET_FLOAT32, (int64_t[]){-1, PIXELS}, 2);
    fleet_var *label =
        fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *h = fleet_fc(p, image, 128, &relu);
    h = fleet_fc(p, h, 64, &relu);
    fleet_var *logits = fleet_fc(p, h, CLASSES, NULL);
    fleet_var *cost = fleet_softmax_with_cross_entropy(p, logits, label,
                                                       &t->model.prediction);
    t->model.loss = fleet_mean(p, cost);
    t->model.label = label;
    return fleet_program_status(p); /* the first failure of all of the above */
}

static fleet_status minimize_loss(training *t)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *optimizer = fleet_adam(t->fleet, 1e-3f, NULL);

    strategy.a_sync = t->options.a_sync; /* where servers are */
    strategy.is_collective = t->options.hybrid;
    optimizer = fleet_distributed_optimizer(t->fleet, optimizer, &strategy);
    return fleet_minimize(optimizer, t->model.loss);
}

static fleet_status open_data(training *t, const char *part, int64_t shuffle,
                              fleet_dataset **data)
{
    fleet_dataset_options options = {
        .format = FLEET_IDX, .batch_size = BATCH, .shuffle = shuffle};
    char images[4096], labels[4096];

    *data = fleet_queue_dataset(t->fleet, &options);
    if (!*data)
        return FLEET_EINVAL;
    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte.gz", t->folder,
             part);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", t->folder,
             part);
    return fleet_dataset_set_filelist(*data, (const char *[]){images, labels},
                                      2);
}

static fleet_status run_worker(training *t)
{
    const fleet_var *loss[] = {t->model.loss};
    fleet_train_options options = {.fetch_list = loss,
                                   .fetch_info = (const char *[]){"loss"},
                                   .n_fetch = 1,
                                   .print_period = 400};
    fleet_executor_options for_test = {.for_test = 1};
    fleet_evaluation evaluation;
    fleet_report report = {.model = "mlp", .evaluation = &evaluation};
    fleet_dataset *train, *test;
    double seconds = 0, samples = 0;

    TRY(open_data(t, "train", 60000, &train));
    TRY(open_data(t, "t10k", 0, &test));
    t->trainer = fleet_executor_create(t->program, NULL);
    t->tester = fleet_executor_create(t->program, &for_test);
    if (!t->trainer || !t->tester)
        return FLEET_ESTATE;
    TRY(fleet_init_worker(t->fleet));
    for (int epoch = 0; epoch < t->epochs; epoch++) {
        fleet_train_result r;

        TRY(fleet_train_from_dataset(t->trainer, train, &options, &r));
        seconds += r.seconds;
        samples += (double)r.samples;
        report.loss = r.loss;
    }
    report.samples_per_s = samples / seconds;
    if (fleet_is_first_worker(t->fleet)) {
        TRY(fleet_params_hash(t->fleet, &report.params_hash));
        TRY(fleet_evaluate(t->tester, test, &t->model, &evaluation));
        TRY(print_report(t->fleet, &report));
    }
    return fleet_stop_worker(t->fleet);
}

static fleet_status run(training *t)
{
    TRY(fleet_init(&t->fleet, NULL));
    TRY(build_model(t));
    TRY(place_program(&t->options, t->fleet, t->program));
    TRY(minimize_loss(t));
    if (!fleet_is_server(t->fleet))
        return run_worker(t);
    TRY(fleet_init_server(t->fleet, NULL));
    return fleet_run_server(t->fleet);
}

int main(int argc, char **argv)
{
    const char *word[] = {"/usr/share/datasets/fashion-mnist", "10"};
    training t = {0};

    read_options(&t.options, argc, argv, usage, word, 2);
    t.folder = word[0];
    t.epochs = read_epochs(word[1]);
    fleet_status status = run(&t);

    if (status != FLEET_OK)
        fprintf(stderr, "mlp: %s\n", fleet_last_error());
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.fleet);
    return status != FLEET_OK;
}
