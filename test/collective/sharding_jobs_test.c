/* sharding_jobs_test.c - strategy.sharding in jobs of processes: the bits of
 * jobs without it, and saves that go from each to each. */
#define SUITE sharding_jobs
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define HYBRID  "--server_num 1 --worker_num 2 --collective"
#define ROWS    "\"is_collective\": true, \"a_sync\": false"
#define SHARD   "\"sharding\": true"
#define PARTS   SHARD ", \"sharding_configs\": {\"stage\": 2}"
#define WEIGHTS SHARD ", \"sharding_configs\": {\"stage\": 3}"
#define ALONE   ", \"fuse_all_reduce_ops\": false"
#define MERGE                                                                  \
    ", \"gradient_merge\": true, \"gradient_merge_configs\": {\"k_steps\": 3}"

static const char *hash_of(const char *flags, const char *strategy)
{
    return job_hash(job_train(flags, job_adult(strategy)));
}

TEST_LIMIT(adult_has_the_bits_of_ranks_without_sharding, 300)
{
    const char *want;

    launch_need_mpirun();
    want = hash_of("--nproc_per_node 2", "");
    CHECK_TEXT(hash_of("--nproc_per_node 2", SHARD), want);
    CHECK_TEXT(hash_of(HYBRID, ROWS ", " SHARD), want);
    setenv("FLEET_MPI_WINDOW", "0", 1);
    CHECK_TEXT(hash_of("--nproc_per_node 2", SHARD ", \"deterministic\": true"),
               want);
    unsetenv("FLEET_MPI_WINDOW");
    want = hash_of("--nproc_per_node 3", "\"deterministic\": true" MERGE);
    CHECK_TEXT(hash_of("--nproc_per_node 3", SHARD MERGE), want);
}

TEST_LIMIT(fashion_mnist_has_the_bits_of_ranks_without_sharding, 300)
{
    const char *want;

    launch_need_mpirun();
    want = job_hash(job_train("--nproc_per_node 2", job_fashion("")));
    CHECK_TEXT(job_hash(job_train("--nproc_per_node 2", job_fashion(SHARD))),
               want);
}

/* Each parameter is a bucket: sums go on while others are computed. */
static void check_parts(const char *parts, const char *each)
{
    const char *path = test_path("parts"), *want;
    char beside[200], ordered[200];

    snprintf(beside, sizeof beside, ROWS ", %s", parts);
    snprintf(ordered, sizeof ordered, "%s, \"deterministic\": true", parts);
    launch_need_mpirun();
    test_use_fraction(4);
    want = hash_of("--nproc_per_node 3", "");
    CHECK_TEXT(hash_of("--nproc_per_node 3", each), want);
    setenv("FLEET_MPI_WINDOW", "0", 1);
    CHECK_TEXT(hash_of("--nproc_per_node 3", ordered), want);
    unsetenv("FLEET_MPI_WINDOW");
    want = hash_of(HYBRID, ROWS);
    CHECK_TEXT(hash_of(HYBRID, beside), want);
    job_train("--nproc_per_node 2",
              job_with(test_keep(job_adult(parts)), "save", path));
    want = test_keep(
        job_hash(job_train("--nproc_per_node 2",
                           job_with(test_keep(job_adult("")), "load", path))));
    CHECK_TEXT(job_hash(job_train(
                   "--nproc_per_node 2",
                   job_with(test_keep(job_adult(parts)), "load", path))),
               want);
}

TEST_LIMIT(adult_has_them_with_gradients_in_parts, 300)
{
    check_parts(PARTS, PARTS ALONE);
}

TEST_LIMIT(adult_has_them_with_weights_in_parts, 300)
{
    check_parts(WEIGHTS, WEIGHTS ALONE);
}

static const char *saved_by(const char *flags, const char *strategy,
                            const char *name)
{
    const char *path = test_path(name);

    job_train(flags, job_with(test_keep(job_adult(strategy)), "save", path));
    return path;
}

static const char *after(const char *path, const char *flags,
                         const char *strategy)
{
    return job_hash(job_train(
        flags, job_with(test_keep(job_adult(strategy)), "load", path)));
}

/* Whoever goes on with what sharded ranks saved ends as with what others
 * saved, and the other way round: states of Adam are part of both. */
TEST_LIMIT(what_sharded_ranks_save_and_load_is_what_others_do, 300)
{
    const char *whole, *shard, *both, *want;

    launch_need_mpirun();
    test_use_fraction(4);
    whole = saved_by("--nproc_per_node 2", "", "whole");
    shard = saved_by("--nproc_per_node 2", SHARD, "shard");
    both = saved_by(HYBRID, ROWS ", " SHARD, "both");
    want = after(whole, "--nproc_per_node 2", "");
    CHECK_TEXT(after(shard, "--nproc_per_node 2", ""), want);
    CHECK_TEXT(after(whole, "--nproc_per_node 2", SHARD), want);
    CHECK_TEXT(
        after(shard, "--server_num 1 --worker_num 2", "\"a_sync\": false"),
        want);
    CHECK_TEXT(after(shard, HYBRID, ROWS ", " SHARD), want);
    CHECK_TEXT(after(both, "--nproc_per_node 2", SHARD), want);
    CHECK_TEXT(after(shard, "--nproc_per_node 3", SHARD),
               after(whole, "--nproc_per_node 3", ""));
    CHECK_TEXT(
        after(both, "--server_num 1 --worker_num 1", "\"a_sync\": false"),
        after(whole, "--server_num 1 --worker_num 1", "\"a_sync\": false"));
}

#define GROUPS                                                                 \
    "\"use_hierarchical_allreduce\": true, "                                   \
    "\"hierarchical_allreduce_inter_nranks\": 2"

TEST_LIMIT(adult_by_groups_of_ranks, 240)
{
    const char *line;

    launch_need_mpirun();
    CHECK_TEXT(hash_of("--nproc_per_node 2", GROUPS),
               hash_of("--nproc_per_node 2", ""));
    line = test_keep(job_train("--nproc_per_node 4", job_adult(GROUPS)));
    job_at_least(line, "auc", 0.903);
    CHECK_TEXT(hash_of("--nproc_per_node 4", GROUPS ", " SHARD),
               job_hash(line));
}
