/* ctr.c - will a person earn more than 50,000 dollars? Click-through models on
 * the Adult census data.
 *
 *   bin/ctr [--async] [--hybrid] [--device gpu:0]
 *           [MODEL [FOLDER [EPOCHS [SAVE]]]]
 *
 * MODEL is wide_deep, ctr_dnn or deepfm, FOLDER has adult.data.gz and
 * adult.test.first13025.gz; the default is libfleet's own copy. SAVE is where
 * the model goes for bin/predict. The same program is the only process of a
 * training, or a worker or a server of a job, as the environment says:
 *
 *   bin/fleetrun --server_num 2 --worker_num 2 bin/ctr wide_deep
 *   bin/fleetrun --nproc_per_node 2 bin/ctr wide_deep
 *   bin/fleetrun --server_num 1 --worker_num 2 --collective bin/ctr --hybrid
 *   bin/fleetrun --server_num 1 --worker_num 2 --heter_worker_num 1 bin/ctr
 *   bin/fleetrun --server_num 1 --worker_num 2 --heter_worker_num "2;1" bin/ctr
 *
 * On servers workers take their steps together, with --async each for itself.
 * With --hybrid servers hold the tables, and ranks sum all other gradients.
 * Where heter workers are, they do the layers behind the embeddings; a third
 * stage has those behind the first of them. */
#include "adult.h"
#include "sample.h"

static const char usage[] =
    "usage: ctr [--async] [--hybrid] [--device gpu:0]\n"
    "           [MODEL [FOLDER [EPOCHS [SAVE]]]]\n"
    "MODEL is wide_deep (the default), ctr_dnn or deepfm\n";

typedef struct training {
    sample_options options;
    const char *model_name, *folder, *save;
    int epochs;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_executor *trainer, *tester;
} training;

/* Heter workers, if the job has some, do what is behind the embeddings. */
static fleet_status guard_layers(training *t)
{
    TRY(fleet_program_status(t->program));
    if (fleet_heter_worker_num(t->fleet) == 0)
        return FLEET_OK;
    TRY(fleet_device_guard_from(t->program, "concat_0.tmp", "cpu"));
    TRY(fleet_device_guard_from(t->program, "fc_0.tmp", "gpu"));
    return fleet_stage_num(t->fleet) < 3
               ? FLEET_OK
               : fleet_device_guard_from(t->program, "fc_1.tmp", "cpu");
}

static fleet_status build_model(training *t)
{
    fleet_ctr_options options = {
        .label = "income",
        .dense = &(fleet_dense_slot){.name = "dense", .dim = ADULT_DENSE},
        .n_dense = 1,
        .ids = adult_ids,
        .n_ids = ADULT_IDS,
        .embedding_dim = 8,
        .hidden = (int64_t[]){100, 50},
        .n_hidden = 2};

    t->program = fleet_program_create(t->fleet);
    if (strcmp(t->model_name, "deepfm") == 0)
        fleet_deepfm(t->program, &options, &t->model);
    else if (strcmp(t->model_name, "ctr_dnn") == 0)
        fleet_ctr_dnn(t->program, &options, &t->model);
    else if (strcmp(t->model_name, "wide_deep") == 0)
        fleet_wide_deep(t->program, &options, &t->model);
    else
        return fprintf(stderr, "ctr: no model %s\n%s", t->model_name, usage),
               FLEET_EINVAL;
    return guard_layers(t);
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

static fleet_status run_worker(training *t)
{
    const fleet_var *loss[] = {t->model.loss};
    fleet_train_options options = {.fetch_list = loss,
                                   .fetch_info = (const char *[]){"loss"},
                                   .n_fetch = 1};
    fleet_executor_options for_test = {.for_test = 1};
    fleet_evaluation evaluation;
    fleet_report report = {.model = t->model_name, .evaluation = &evaluation};
    fleet_dataset *train, *test;
    double seconds = 0, samples = 0;

    if (fleet_is_heter_worker(t->fleet)) {
        TRY(fleet_init_worker(t->fleet));
        return fleet_run_heter_worker(t->fleet);
    }
    TRY(adult_open(t->fleet, t->folder, &train, &test));
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
        if (t->save)
            TRY(adult_save(t->fleet, t->program, t->model.prediction, t->save));
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
    const char *word[] = {"wide_deep", "samples/data/adult", "5", NULL};
    training t = {0};

    read_options(&t.options, argc, argv, usage, word, 4);
    t.model_name = word[0];
    t.folder = word[1];
    t.epochs = read_epochs(word[2]);
    t.save = word[3];
    fleet_status status = run(&t);

    if (status != FLEET_OK && *fleet_last_error())
        fprintf(stderr, "ctr: %s\n", fleet_last_error());
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.fleet);
    return status != FLEET_OK;
}
