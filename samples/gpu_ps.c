/* gpu_ps.c - GPU-PS: wide&deep on the Adult census data, with tables at home in
 * the host's memory, and the rows of a pass in a GPU's.
 *
 *   bin/gpu_ps [--device gpu:0] [FOLDER [PASSES [BYTES]]]
 *
 * BYTES of the GPU's memory are what rows may take: a pass that needs more is
 * cut into parts, and a line says so. 0, the default: what the GPU has. The
 * bits do not depend on it: params_hash in the last line is the same. */
#include "adult.h"
#include "sample.h"

static const char usage[] =
    "usage: gpu_ps [--device gpu:0] [FOLDER [PASSES [BYTES]]]\n"
    "BYTES: what rows may take of the GPU's memory; 0: what it has\n";

typedef struct training {
    sample_options options;
    const char *folder;
    int passes;
    int64_t bytes;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_executor *trainer, *tester;
} training;

static fleet_status build_model(training *t)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *optimizer = fleet_adam(t->fleet, 1e-3f, NULL);
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
    TRY(place_program(&t->options, t->fleet, t->program));
    fleet_wide_deep(t->program, &options, &t->model);
    TRY(fleet_program_status(t->program));
    strategy.a_sync_configs.use_ps_gpu = 1;
    optimizer = fleet_distributed_optimizer(t->fleet, optimizer, &strategy);
    return fleet_minimize(optimizer, t->model.loss);
}

static fleet_status open_data(training *t, fleet_dataset **train,
                              fleet_dataset **test)
{
    fleet_dataset_options options = adult_options(0);
    char path[4096];

    *train = fleet_in_memory_dataset(t->fleet, &options);
    if (!*train)
        return FLEET_EINVAL;
    snprintf(path, sizeof path, "%s/adult.data.gz", t->folder);
    TRY(fleet_dataset_set_filelist(*train, (const char *[]){path}, 1));
    TRY(adult_open_file(t->fleet, t->folder, "adult.test.first13025.gz", 0,
                        test));
    return fleet_dataset_use_statistics_of(*test, *train);
}

static fleet_status train_passes(training *t, fleet_dataset *data,
                                 fleet_report *report)
{
    fleet_psgpu_options options = {.memory_bytes = t->bytes};
    fleet_psgpu *psgpu = fleet_psgpu_create(t->fleet, &options);
    double seconds = 0, samples = 0;

    if (!psgpu)
        return FLEET_ENOMEM;
    TRY(fleet_psgpu_init_gpu_ps(psgpu, (int[]){0}, 1));
    TRY(fleet_psgpu_set_dataset(psgpu, data));
    TRY(fleet_psgpu_load_into_memory(psgpu));
    for (int pass = 0; pass < t->passes; pass++) {
        const int follows = pass + 1 < t->passes; /* one more */
        fleet_train_result r;

        TRY(fleet_dataset_local_shuffle(data));
        TRY(fleet_psgpu_begin_pass(psgpu));
        if (follows) /* here of the same files */
            TRY(fleet_dataset_preload_into_memory(data));
        TRY(fleet_train_from_dataset(t->trainer, data, NULL, &r));
        TRY(fleet_psgpu_end_pass(psgpu));
        if (follows)
            TRY(fleet_dataset_wait_preload_done(data));
        seconds += r.seconds;
        samples += (double)r.samples;
        report->loss = r.loss;
    }
    report->samples_per_s = samples / seconds;
    return fleet_psgpu_finalize(psgpu);
}

static fleet_status run(training *t)
{
    fleet_executor_options for_test = {.for_test = 1};
    fleet_evaluation evaluation;
    fleet_report report = {.model = "wide_deep", .evaluation = &evaluation};
    fleet_dataset *train, *test;

    TRY(fleet_init(&t->fleet, NULL));
    TRY(build_model(t));
    TRY(open_data(t, &train, &test));
    t->trainer = fleet_executor_create(t->program, NULL);
    t->tester = fleet_executor_create(t->program, &for_test);
    if (!t->trainer || !t->tester)
        return FLEET_ESTATE;
    TRY(train_passes(t, train, &report));
    TRY(fleet_params_hash(t->fleet, &report.params_hash));
    TRY(fleet_evaluate(t->tester, test, &t->model, &evaluation));
    return print_report(t->fleet, &report);
}

int main(int argc, char **argv)
{
    const char *word[] = {"samples/data/adult", "2", "0"};
    training t = {0};

    read_options(&t.options, argc, argv, usage, word, 3);
    if (strcmp(t.options.device, "cpu") == 0)
        t.options.device = "gpu:0";
    t.folder = word[0];
    t.passes = read_epochs(word[1]);
    t.bytes = strtoll(word[2], NULL, 10);
    fleet_status status = run(&t);

    if (status != FLEET_OK)
        fprintf(stderr, "gpu_ps: %s\n", fleet_last_error());
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.fleet);
    return status != FLEET_OK;
}
