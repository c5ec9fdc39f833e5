/* heter_async_test.c - async jobs of two and of three stages under fleetrun:
 * each batch of each worker is one update of each stage, whoever was faster;
 * passes end for all; what is not trained so is refused by name. */
#define SUITE heter_async
#include "launch_kit.h"
#include "stage_process_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/error.h"
#include "base/text.h"

enum { KEYS = 13, ROWS = 150, PASSES = 2 };

/* --- a process of a job --------------------------------------------------- */

/* The row of an id is part of the loss: by rate 1 each step takes 1 from it,
 * in whatever order they come. One table is in each stage, and behind them a
 * number, which is in a third one. */
static fleet_var *build(fleet_program *p, fleet_var **id)
{
    fleet_sparse_embedding_options zero = {
        .table = "early", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_var *sum;

    *id = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    (void)fleet_device_guard(p, "cpu");
    sum = fleet_sparse_embedding(p, *id, 1, &zero);
    (void)fleet_device_guard(p, "gpu");
    zero.table = "late";
    sum = fleet_add(p, sum, fleet_sparse_embedding(p, *id, 1, &zero));
    if (getenv("HETER_THREE"))
        (void)fleet_device_guard(p, "cpu");
    return fleet_mean(
        p, fleet_add(p, sum,
                     fleet_parameter(
                         p, (int64_t[]){1, 1}, 2,
                         &(fleet_param_attr){
                             .name = "last",
                             .initializer = {FLEET_INIT_CONSTANT, 0, 0}})));
}

static fleet_status print_rows(fleet *f, const char *table)
{
    uint64_t key[KEYS];
    float row[KEYS];

    for (int i = 0; i < KEYS; i++)
        key[i] = (uint64_t)i;
    FL_TRY(fleet_table_get(f, table, key, KEYS, 1, row, NULL, NULL));
    for (int i = 0; i < KEYS; i++)
        printf("%s%d=%g\n", table, i, row[i]);
    return FLEET_OK;
}

static fleet_status train(fleet *f, fleet_executor *e, fleet_dataset *d)
{
    float last;

    for (int pass = 0; pass < PASSES; pass++) {
        FL_TRY(fleet_train_from_dataset(e, d, NULL, NULL));
        FL_TRY(fleet_barrier_worker(f));
    }
    if (fleet_worker_index(f) == 0) {
        FL_TRY(print_rows(f, "early"));
        FL_TRY(print_rows(f, "late"));
        FL_TRY(fleet_parameter_get(f, "last", &last, 1));
        printf("last=%g\n", (double)last);
    }
    return fleet_stop_worker(f);
}

static fleet_status run_process(fleet **f)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_program *p;
    fleet_var *id, *loss;

    FL_TRY(fleet_init(f, NULL));
    p = fleet_program_create(*f);
    loss = build(p, &id);
    s.a_sync = 1;
    s.a_sync_configs.max_staleness = getenv("HETER_BOUND") ? 2 : -1;
    s.pipeline = getenv("HETER_FLIGHT") != NULL;
    s.a_sync_configs.vocab_cache_size = getenv("HETER_CACHE") ? 1 << 20 : 0;
    s.pipeline_configs.accumulate_steps = s.pipeline ? 3 : 1;
    FL_TRY(fleet_minimize(
        fleet_distributed_optimizer(*f, fleet_sgd(*f, 1.0f), &s), loss));
    return stage_process_work(
        *f, p,
        &(fleet_dataset_options){
            .format = FLEET_MULTISLOT, .use_var = &id, .n_use_var = 1},
        getenv("HETER_SUMS"), train);
}

__attribute__((constructor)) static void be_of_a_job(void)
{
    stage_process_main("HETER_SUMS", run_process);
}

/* --- the tests ------------------------------------------------------------ */

static int run_job(const char *flags)
{
    fl_text text = {0};
    char script[400];

    for (int i = 0; i < ROWS; i++)
        fl_text_add(&text, "1 %d\n", i * i % KEYS);
    CHECK_OK(text.status);
    test_file("data", fl_text_chars(&text));
    fl_text_done(&text);
    snprintf(script, sizeof script, "HETER_SUMS=%s exec %s", test_path("data"),
             test_program());
    return launch_run(flags, script);
}

static void check_rows(const char *table)
{
    int want[KEYS] = {0};

    for (int i = 0; i < ROWS; i++)
        want[i * i % KEYS] -= PASSES;
    for (int i = 0; i < KEYS; i++) {
        char name[20];

        snprintf(name, sizeof name, "%s%d", table, i);
        CHECK_INT(atoi(launch_value("workerlog.0", name)), want[i]);
    }
}

static void check_job(const char *flags)
{
    CHECK_INT(run_job(flags), 0);
    check_rows("early");
    check_rows("late");
    CHECK_INT(atoi(launch_value("workerlog.0", "last")), -ROWS * PASSES);
}

/* Sums below 2^24 are exact, in whatever order they come. */
TEST(each_batch_is_one_update_of_each_stage)
{
    check_job("--server_num 2 --worker_num 3 --heter_worker_num 2");
    setenv("HETER_FLIGHT", "1", 1);
    check_job("--server_num 2 --worker_num 3 --heter_worker_num 2");
}

TEST(each_batch_is_one_update_of_each_of_three_stages)
{
    setenv("HETER_THREE", "1", 1);
    check_job("--server_num 1 --worker_num 3 --heter_worker_num 2;1");
    setenv("HETER_FLIGHT", "1", 1);
    check_job("--server_num 1 --worker_num 3 --heter_worker_num 1;2");
}

TEST(refuses_batches_in_flight_without_stages)
{
    setenv("HETER_FLIGHT", "1", 1);
    CHECK(run_job("--server_num 1 --worker_num 1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "fleet_minimize: strategy.pipeline: batches are in flight "
                   "between stages, and the job has no heter workers");
}

TEST(refuses_what_it_does_not_train)
{
    setenv("HETER_BOUND", "1", 1);
    CHECK(run_job("--server_num 1 --worker_num 1 --heter_worker_num 1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "fleet_minimize: a_sync_configs.max_staleness: this version "
                   "does not train it in stages");
    unsetenv("HETER_BOUND");
    setenv("HETER_CACHE", "1", 1);
    setenv("HETER_FLIGHT", "1", 1);
    CHECK(run_job("--server_num 1 --worker_num 1 --heter_worker_num 1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "fleet_minimize: a_sync_configs.vocab_cache_size with "
                   "pipeline: this version does not train it in stages");
    unsetenv("HETER_CACHE");
    unsetenv("HETER_FLIGHT");
    CHECK(run_job("--server_num 1 --worker_num 1 --heter_worker_num 1 "
                  "--supervise") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "fleet_minimize: strategy.log in ps-async: this version");
}
