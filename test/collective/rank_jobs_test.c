/* rank_jobs_test.c - collective and hybrid jobs under fleetrun: real data, the
 * bits of other modes, and how such a job ends. */
#define _GNU_SOURCE
#define SUITE rank_jobs
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HYBRID    "--server_num 1 --worker_num 2 --collective"
#define SYNC_ROWS "\"is_collective\": true, \"a_sync\": false"

TEST_LIMIT(adult_has_the_bits_of_servers_in_every_mode, 300)
{
    const char *config = job_adult("\"a_sync\": false"), *line;
    const char *want;

    launch_need_mpirun();
    want = job_hash(job_train("--server_num 1 --worker_num 2", config));
    line = job_train("--nproc_per_node 2", config);
    CHECK_CONTAINS(line, "\"mode\":\"collective\"");
    CHECK_CONTAINS(line, "\"workers\":2,\"servers\":0");
    job_at_least(line, "auc", 0.903);
    CHECK_CONTAINS(line, want);
    setenv("FLEET_MPI_WINDOW", "0", 1);
    CHECK_CONTAINS(
        job_train("--nproc_per_node 2", job_adult("\"deterministic\": true")),
        want);
    unsetenv("FLEET_MPI_WINDOW");
    line = job_train(HYBRID, job_adult(SYNC_ROWS));
    CHECK_CONTAINS(line, "\"mode\":\"hybrid\"");
    CHECK_CONTAINS(line, want);
}

static const char *grouped(const char *strategy)
{
    return test_keep(
        job_at_rate(job_adult(strategy),
                    "0.001, \"groups\": {\"tower_*\": {\"type\": \"momentum\", "
                    "\"learning_rate\": 0.02, \"l2_decay\": 0.001}, \"*.b\": "
                    "{\"type\": \"adagrad\", \"initial_accumulator\": 0.1}}"));
}

TEST_LIMIT(groups_have_the_bits_of_servers_in_every_mode, 240)
{
    const char *want;

    launch_need_mpirun();
    test_use_fraction(20);
    want = job_hash(job_train("--server_num 2 --worker_num 2",
                              grouped("\"a_sync\": false")));
    CHECK_CONTAINS(job_train("--nproc_per_node 2", grouped("")), want);
    CHECK_CONTAINS(
        job_train("--nproc_per_node 2", grouped("\"sharding\": true")), want);
    CHECK_CONTAINS(job_train(HYBRID, grouped(SYNC_ROWS)), want);
    CHECK(!strstr(job_train("--nproc_per_node 2", job_adult("")), want));
}

/* MPI adds 4 ranks up in pairs. */
TEST_LIMIT(deterministic_ranks_that_share_no_host_have_the_bits_of_servers, 240)
{
    const char *want;

    launch_need_mpirun();
    test_use_fraction(4);
    want = job_hash(job_train("--server_num 1 --worker_num 4",
                              job_adult("\"a_sync\": false")));
    setenv("FLEET_MPI_WINDOW", "0", 1);
    CHECK_CONTAINS(
        job_train("--nproc_per_node 4", job_adult("\"deterministic\": true")),
        want);
    unsetenv("FLEET_MPI_WINDOW");
}

TEST_LIMIT(adult_by_three_ranks_and_in_hybrid_without_waiting, 240)
{
    launch_need_mpirun();
    job_at_least(job_train("--nproc_per_node 3", job_adult("")), "auc", 0.903);
    job_at_least(job_train(HYBRID, job_adult("\"is_collective\": true")), "auc",
                 0.903);
    job_at_least(job_train("--server_num 1 --worker_num 3 --collective",
                           job_adult("\"is_collective\": true")),
                 "auc", 0.903);
}

TEST_LIMIT(fashion_mnist_by_2_ranks, 300)
{
    launch_need_mpirun();
    job_median_at_least("--nproc_per_node 2", job_fashion_of("", 10),
                        "accuracy", 0.875);
}

TEST_LIMIT(fashion_mnist_by_3_ranks, 300)
{
    launch_need_mpirun();
    job_median_at_least("--nproc_per_node 3", job_fashion_of("", 10),
                        "accuracy", 0.875);
}

TEST_LIMIT(fashion_mnist_in_hybrid, 300)
{
    launch_need_mpirun();
    job_median_at_least(HYBRID, job_fashion_of("\"is_collective\": true", 10),
                        "accuracy", 0.875);
}

TEST_LIMIT(what_one_job_saves_every_other_goes_on_with, 300)
{
    const char *ranks = test_path("ranks"), *both = test_path("both"), *want;
    const char *sync = test_keep(job_adult("\"a_sync\": false"));
    const char *hybrid = test_keep(job_adult(SYNC_ROWS));

    launch_need_mpirun();
    job_train("--nproc_per_node 2", job_with(sync, "save", ranks));
    job_train(HYBRID, job_with(hybrid, "save", both));
    want = job_hash(job_train("--server_num 2 --worker_num 2",
                              job_with(sync, "load", ranks)));
    CHECK_CONTAINS(
        job_train("--nproc_per_node 2", job_with(sync, "load", both)), want);
    CHECK_CONTAINS(
        job_train("--nproc_per_node 2", job_with(sync, "load", ranks)), want);
    CHECK_CONTAINS(job_train(HYBRID, job_with(hybrid, "load", ranks)), want);
    CHECK_CONTAINS(job_train(HYBRID, job_with(hybrid, "load", both)), want);
}

TEST_LIMIT(a_rank_that_is_killed_ends_the_job_and_is_named, 120)
{
    job_kill_rank("--nproc_per_node 2 --grace 30", job_adult(""));
}

TEST_LIMIT(so_it_is_beside_servers, 120)
{
    job_kill_rank(HYBRID " --grace 30", job_adult(SYNC_ROWS));
}

/* Giving up tells the others, and must not stand for what was wrong here. */
TEST_LIMIT(a_rank_says_itself_why_it_gives_up, 60)
{
    char config[2000];

    launch_need_mpirun();
    snprintf(config, sizeof config,
             "{'model': {'type': 'wide_deep', 'hidden': [4], 'embedding_dim': "
             "4}, 'optimizer': {'type': 'sgd', 'learning_rate': 0.01}, "
             "'epochs': 1, 'dataset': {'format': 'csv', 'train': ['%s'], "
             "'test': ['%s'], 'batch_size': 8}, 'slots': [{'name': 'y', "
             "'type': 'float', 'role': 'label', 'columns': [0]}, {'name': 'x', "
             "'type': 'float', 'dim': 1, 'columns': [1]}, {'name': 'id', "
             "'type': 'uint64', 'columns': [2], 'transform': 'hash'}]}",
             test_file("empty.csv", ""), test_file("one.csv", "1,0.5,a\n"));
    for (char *c = config; *c; c++)
        if (*c == '\'')
            *c = '"';
    CHECK(launch_run("--nproc_per_node 2", job_script(config)) != 0);
    for (int i = 0; i < 2; i++)
        CHECK_CONTAINS(launch_log(i ? "workerlog.1" : "workerlog.0"),
                       "the files have no sample for worker");
}

/* --- what a program of its own may do ------------------------------------- */

static fleet_status learn(fleet *f)
{
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *loss = fleet_mean(p, fleet_fc(p, x, 1, NULL));

    return fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), NULL), loss);
}

/* This program, once more: TEST_RANK says what rank 1 does once all have met;
 * the other waits for it. */
__attribute__((constructor)) static void be_a_rank(void)
{
    const char *what = getenv("TEST_RANK");
    fleet_status status;
    fleet *f = NULL;

    if (!what)
        return;
    status = fleet_init(&f, NULL);
    if (status == FLEET_OK)
        status = learn(f);
    if (status == FLEET_OK)
        status = fleet_init_worker(f);
    if (status == FLEET_OK && fleet_worker_index(f) == 1) {
        if (strcmp(what, "leave") == 0)
            exit(0);
        status = fleet_load_model(f, "nowhere");
    } else if (status == FLEET_OK) {
        status = fleet_barrier_worker(f);
    }
    fprintf(stderr, "%s\n", status == FLEET_OK ? "done" : fleet_last_error());
    fleet_destroy(f);
    exit(3);
}

static void run_ranks(const char *what)
{
    launch_need_mpirun();
    setenv("TEST_RANK", what, 1);
    setenv("SELF", test_program(), 1);
    launch_deadline_ms = 60000;
    CHECK_INT(launch_run("--nproc_per_node 2 --grace 50", "exec $SELF"), 3);
}

TEST_LIMIT(a_rank_that_leaves_without_a_word_keeps_nobody, 90)
{
    run_ranks("leave");
    CHECK_CONTAINS(launch_log("workerlog.0"), "rank 1");
}

/* Rank 1 does that before it knows of MPI; the job ends. */
static void run_without_rank_1(const char *what)
{
    char script[200];

    launch_need_mpirun();
    setenv("TEST_RANK", "wait", 1);
    setenv("SELF", test_program(), 1);
    setenv("FLEET_STEP_DEADLINE_MS", "2000", 1);
    launch_deadline_ms = 60000;
    snprintf(script, sizeof script, LAUNCH_WORKER(1) " && %s; exec $SELF",
             what);
    CHECK_INT(launch_run("--nproc_per_node 2 --grace 1", script), 3);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "mpi: not all ranks came to MPI_Init() within 2000 ms: one "
                   "has ended, or is stopped, or goes on without it");
    CHECK_CONTAINS(launch_err(), "worker 0 (pid ");
}

TEST_LIMIT(a_rank_that_ends_before_the_ranks_meet_keeps_nobody, 90)
{
    run_without_rank_1("exit 0");
}

TEST_LIMIT(a_rank_that_is_stopped_before_the_ranks_meet_is_ended, 90)
{
    run_without_rank_1("kill -STOP $$");
    CHECK_CONTAINS(launch_err(), "worker 1 (pid ");
    CHECK_CONTAINS(launch_err(), "has not ended within 1 s of the failure");
}

TEST_LIMIT(ranks_that_have_met_load_nothing, 90)
{
    run_ranks("load");
    CHECK_CONTAINS(
        launch_log("workerlog.1"),
        "rank 1 of 2: fleet_load_model: ranks load before fleet_init_worker()");
    CHECK_CONTAINS(
        launch_log("workerlog.0"),
        " of 2: fleet_load_model: ranks load before fleet_init_worker()");
}
