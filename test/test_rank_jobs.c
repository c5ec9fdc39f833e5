/* test_rank_jobs.c - collective and hybrid jobs under fleetrun: real data, the
 * bits of other modes, and how such a job ends. */
#define _GNU_SOURCE
#define SUITE rank_jobs
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

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

TEST_LIMIT(adult_by_three_ranks_and_in_hybrid_without_waiting, 240)
{
    launch_need_mpirun();
    job_at_least(job_train("--nproc_per_node 3", job_adult("")), "auc", 0.900);
    job_at_least(job_train(HYBRID, job_adult("\"is_collective\": true")), "auc",
                 0.898);
}

TEST_LIMIT(fashion_mnist_by_ranks, 300)
{
    launch_need_mpirun();
    job_at_least(job_train("--nproc_per_node 2", job_fashion("")), "accuracy",
                 0.870);
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

/* So many epochs that it does not end by itself. */
static const char *endless(const char *config)
{
    const char *at = strstr(config, "\"epochs\": 5,");
    char text[9000];

    CHECK(at);
    snprintf(text, sizeof text, "%.*s\"epochs\": 100000%s", (int)(at - config),
             config, at + strlen("\"epochs\": 5"));
    return test_keep(text);
}

/* A rank of a job of 2, or of 2 and a server, is killed once it trains. */
static void check_kill(const char *flags, const char *strategy)
{
    char script[18000];
    const char *train = job_script(endless(job_adult(strategy)));
    const char *log = test_path("rank1.log");

    launch_need_mpirun();
    snprintf(script, sizeof script,
             "if [ \"$TRAINING_ROLE\" != PSERVER ] && [ $PADDLE_TRAINER_ID = 1 "
             "]; then (%s) 2>%s & until grep -q ', mode ' %s; do sleep 0.05; "
             "done; kill -9 $!; wait $!; exit $?; else %s; fi",
             train, log, log, train);
    launch_deadline_ms = 60000;
    CHECK(launch_run(flags, script) != 0);
    CHECK_CONTAINS(launch_err(), "the job has failed: worker 1 ");
    log = launch_log("workerlog.0");
    if (!strstr(log, "rank 1 ") && !strstr(log, "worker 1 "))
        test_fail(__FILE__, __LINE__, "rank 0 does not name rank 1: %s", log);
    fprintf(stderr, "%s", log);
}

TEST_LIMIT(a_rank_that_is_killed_ends_the_job_and_is_named, 120)
{
    check_kill("--nproc_per_node 2 --grace 30", "");
}

TEST_LIMIT(so_it_is_beside_servers, 120)
{
    check_kill(HYBRID " --grace 30", SYNC_ROWS);
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
