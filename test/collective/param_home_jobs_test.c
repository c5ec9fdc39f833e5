/* param_home_jobs_test.c - hybrid jobs in which servers and ranks keep tables
 * and dense parameters, under fleetrun with real data: the bits of other modes,
 * saves, and how such a job ends. */
#define _GNU_SOURCE
#define SUITE param_home_jobs
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define HYBRID  "--server_num 1 --worker_num 2 --collective"
#define SERVERS "--server_num 1 --worker_num 2"
#define SYNC    "\"a_sync\": false"
#define BOTH    "\"is_collective\": true, \"a_sync\": false"
#define MERGE                                                                  \
    ", \"gradient_merge\": true, \"gradient_merge_configs\": "                 \
    "{\"k_steps\": 4}"

/* Of both kinds something on either side. */
#define MIXED "\"tower_0\": true, \"wide.b\": true, \"embedding\": false"

static const char *hybrid_hash(const char *flags, const char *strategy,
                               const char *ps)
{
    const char *line;

    launch_need_mpirun();
    line = job_train(flags, job_adult_kept(strategy, ps));
    CHECK_CONTAINS(line, "\"mode\":\"hybrid\"");
    return job_hash(line);
}

TEST_LIMIT(keepers_change_no_bit, 300)
{
    const char *want = job_hash(job_train(SERVERS, job_adult_kept(SYNC, "")));

    CHECK_TEXT(hybrid_hash(HYBRID, BOTH, "\"embedding\": false"), want);
    CHECK_TEXT(hybrid_hash(HYBRID, BOTH, "\"tower_0.w\": true"), want);
    CHECK_TEXT(hybrid_hash(HYBRID, BOTH, MIXED), want);
    CHECK_TEXT(hybrid_hash("--server_num 2 --worker_num 2 --collective", BOTH,
                           MIXED ", \"wide.w\": false"),
               want);
    CHECK_TEXT(hybrid_hash(HYBRID, BOTH,
                           "\"tower_0\": true, \"tower_1\": true, "
                           "\"tower_out\": true, \"wide\": true"),
               want);
}

/* 509 batches: the ranks' last groups are of unequal size. */
TEST_LIMIT(so_it_is_of_merged_batches_and_three_ranks, 300)
{
    const char *servers = "--server_num 1 --worker_num 3";
    const char *ranks = "--server_num 1 --worker_num 3 --collective";
    const char *want =
        job_hash(job_train(servers, job_adult_kept(SYNC MERGE, "")));

    CHECK_TEXT(hybrid_hash(ranks, BOTH MERGE, ""), want);
    CHECK_TEXT(hybrid_hash(ranks, BOTH MERGE, MIXED), want);
}

/* A rate by layer is the same on a lane, in a rank and in one process. */
TEST_LIMIT(so_it_is_of_rates_by_layer, 300)
{
    const char *lamb = ", \"lamb\": true, \"lamb_configs\": "
                       "{\"lamb_weight_decay\": 0.02}";
    const char *want, *alone;
    char sync[200], both[200], merged[300];

    snprintf(sync, sizeof sync, SYNC "%s", lamb);
    snprintf(both, sizeof both, BOTH "%s", lamb);
    snprintf(merged, sizeof merged,
             "\"gradient_merge\": true, \"gradient_merge_configs\": "
             "{\"k_steps\": 2}%s",
             lamb);
    want = job_hash(
        job_train("--server_num 2 --worker_num 2", job_adult_kept(sync, "")));
    alone = job_hash(job_train("--nproc_per_node 1", job_adult(merged)));
    CHECK_TEXT(alone, want);
    CHECK_TEXT(hybrid_hash(HYBRID, both, ""), want);
    CHECK_TEXT(hybrid_hash(HYBRID, both, MIXED), want);
}

/* Rows and parameters on servers are divided by what ranks divide by. */
TEST_LIMIT(so_it_is_of_sums_over_ranks, 200)
{
    const char *sum = "\"gradient_scale_sum\": true, " BOTH, *want;

    launch_need_mpirun();
    want = job_hash(job_train("--nproc_per_node 2", job_adult_kept(sum, "")));
    CHECK_TEXT(hybrid_hash(HYBRID, sum, ""), want);
    CHECK_TEXT(hybrid_hash(HYBRID, sum, MIXED), want);
}

TEST_LIMIT(both_without_waiting_for_servers, 200)
{
    launch_need_mpirun();
    job_at_least(
        job_train(HYBRID, job_adult_kept("\"is_collective\": true", MIXED)),
        "auc", 0.903);
}

/* Worker 1 has another configuration: its own words are in its log. */
static void check_odd(const char *flags, const char *config, const char *other,
                      const char *words)
{
    const char *script = job_script(config), *odd;
    char both[20000], quick[200];

    launch_need_mpirun();
    config = test_file("other.json", other);
    odd = strstr(script, "config.json");
    CHECK(odd);
    snprintf(both, sizeof both,
             "if ! " LAUNCH_SERVER
             " && " LAUNCH_WORKER(1) "; then %.*sother.json'; else %s; fi",
             (int)(odd - script), script, script);
    launch_deadline_ms = 60000;
    snprintf(quick, sizeof quick, "%s --grace 2", flags);
    CHECK(launch_run(quick, both) != 0);
    CHECK_CONTAINS(launch_log("workerlog.1"), words);
}

TEST_LIMIT(a_save_of_both_is_one_that_every_job_goes_on_with, 300)
{
    const char *save = test_path("save"), *sync = job_adult_kept(SYNC, ""),
               *want;
    const char *mixed = job_adult_kept(BOTH, MIXED);

    launch_need_mpirun();
    job_train(HYBRID, job_with(mixed, "save", save));
    want = job_hash(job_train(SERVERS, job_with(sync, "load", save)));
    CHECK_CONTAINS(
        job_train("--nproc_per_node 2", job_with(sync, "load", save)), want);
    CHECK_CONTAINS(job_train(HYBRID, job_with(mixed, "load", save)), want);
    CHECK_CONTAINS(
        job_train(HYBRID, job_with(job_adult_kept(BOTH, "\"tower_1\": true"),
                                   "load", save)),
        want);
}

TEST_LIMIT(where_ranks_have_tables_each_of_them_loads, 120)
{
    const char *save = test_path("save"), *mixed = job_adult_kept(BOTH, MIXED);

    launch_need_mpirun();
    job_train(HYBRID, job_with(mixed, "save", save));
    check_odd(
        HYBRID, job_with(mixed, "load", save), mixed,
        "1 of 2 ranks called fleet_load_model() before it, and not rank 1: "
        "each loads its own rows");
}

TEST_LIMIT(a_rank_whose_save_cannot_be_loaded_says_which_it_is, 120)
{
    const char *mixed = job_adult_kept(BOTH, MIXED);

    launch_need_mpirun();
    check_odd(HYBRID " --grace 2", mixed,
              job_with(mixed, "load", "/nowhere/save"), "rank 1 of 2: ");
    CHECK_CONTAINS(launch_log("workerlog.1"), "/nowhere/save");
}

TEST_LIMIT(a_rank_that_is_killed_is_named, 120)
{
    job_kill_rank(HYBRID " --grace 30", job_adult_kept(BOTH, MIXED));
}

TEST_LIMIT(a_server_that_is_killed_is_named, 120)
{
    job_kill_server(HYBRID " --grace 30", job_adult_kept(BOTH, MIXED));
}

TEST_LIMIT(who_keeps_what_is_the_same_for_all, 120)
{
    check_odd(HYBRID, job_adult_kept(BOTH, MIXED),
              job_adult_kept(BOTH, "\"tower_0\": true, \"embedding\": false"),
              "the programs differ: parameter \"wide.b\": keeper is servers in "
              "the server, ranks in the worker");
    check_odd("--nproc_per_node 2", job_adult_kept("", ""),
              job_adult_kept("", "\"embedding\": false"),
              "the programs differ from rank 0's: table \"embedding\": keeper "
              "is ranks in this rank, default in rank 0");
}

TEST_LIMIT(ranks_divide_their_sum_or_all_leave_it, 120)
{
    check_odd("--nproc_per_node 2", job_adult_kept("", ""),
              job_adult_kept("\"gradient_scale_sum\": true", ""),
              "this rank trains in mode collective, gradient_scale_sum 1, "
              "rank 0 in collective: all ranks have one strategy");
}

/* Or the ranks' calls would differ, and servers would wait for who does not. */
TEST_LIMIT(buckets_order_and_waiting_are_the_same_for_all, 240)
{
    check_odd("--nproc_per_node 2", job_adult_kept("", ""),
              job_adult_kept("\"fuse_grad_size_in_MB\": 8", ""),
              "this rank trains in mode collective, fuse_grad_size_in_MB 8, "
              "rank 0 in collective: all ranks have one strategy");
    check_odd("--nproc_per_node 2",
              job_adult_kept("\"deterministic\": true", ""),
              job_adult_kept("\"fuse_all_reduce_ops\": false", ""),
              "this rank trains in mode collective, fuse_all_reduce_ops 0, "
              "rank 0 in collective, deterministic 1");
    check_odd(HYBRID, job_adult_kept(BOTH, ""),
              job_adult_kept("\"is_collective\": true", ""),
              "the worker trains in mode hybrid, this server in hybrid, a_sync "
              "0: all processes must have the same strategy");
}
