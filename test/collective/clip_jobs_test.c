/* clip_jobs_test.c - clip by global norm in jobs of processes: one norm over
 * dense gradients and rows, whoever has them. */
#define SUITE clip_jobs
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HYBRID "--server_num 1 --worker_num 2 --collective"
#define ROWS   "\"is_collective\": true, \"a_sync\": false"
#define MERGE                                                                  \
    ", \"gradient_merge\": true, \"gradient_merge_configs\": {\"k_steps\": 2}"

/* The configuration with more behind one of its keys. */
static const char *with(const char *config, const char *key, const char *more)
{
    const char *at = strstr(config, key);
    char text[9000];

    CHECK(at);
    snprintf(text, sizeof text, "%.*s%s, %s%s", (int)(at - config), config, key,
             more, at + strlen(key));
    return test_keep(text);
}

static const char *with_clip(const char *config)
{
    return with(config, "\"learning_rate\": 0.001",
                "\"clip_global_norm\": 0.2");
}

static const char *clipped_kept(const char *flags, const char *strategy,
                                const char *ps)
{
    return job_train(flags, with_clip(job_adult_kept(strategy, ps)));
}

/* Of two tables: embedding, embedding_wide. */
static const char *clipped_tables(const char *flags, const char *strategy,
                                  const char *ps)
{
    const char *config = with_clip(job_adult_kept(strategy, ps));

    return job_train(
        flags, with(config, "\"embedding_dim\": 8", "\"wide_ids\": true"));
}

static const char *clipped(const char *flags, const char *strategy)
{
    return clipped_kept(flags, strategy, "");
}

static void check_modes(const char *also)
{
    char sync[200], rows[200];
    const char *want;

    snprintf(sync, sizeof sync, "\"a_sync\": false%s", also);
    snprintf(rows, sizeof rows, ROWS "%s", also);
    want = job_hash(clipped("--server_num 1 --worker_num 2", sync));
    CHECK_TEXT(job_hash(clipped("--nproc_per_node 2", sync)), want);
    CHECK_TEXT(job_hash(clipped(HYBRID, rows)), want);
}

TEST_LIMIT(adult_clipped_has_the_bits_of_servers_in_every_mode, 300)
{
    const char *none;

    launch_need_mpirun();
    check_modes("");
    check_modes(MERGE);
    none = job_hash(job_train("--nproc_per_node 2", job_adult("")));
    CHECK(strcmp(job_hash(clipped("--nproc_per_node 2", "")), none) != 0);
}

TEST_LIMIT(adult_clipped_by_sharded_ranks_and_two_servers, 300)
{
    const char *want;

    launch_need_mpirun();
    want = job_hash(clipped("--nproc_per_node 2", ""));
    CHECK_TEXT(job_hash(clipped("--nproc_per_node 2", "\"sharding\": true")),
               want);
    CHECK_TEXT(job_hash(clipped("--server_num 2 --worker_num 2 --collective",
                                ROWS ", \"sharding\": true")),
               want);
}

/* Servers keep nothing then, and nobody waits for them. */
TEST_LIMIT(adult_clipped_in_hybrid_with_tables_of_ranks_alone, 300)
{
    const char *want;

    launch_need_mpirun();
    want = job_hash(clipped("--nproc_per_node 2", ""));
    CHECK_TEXT(job_hash(clipped_kept(HYBRID, ROWS, "\"embedding\": false")),
               want);
    CHECK_TEXT(job_hash(clipped_kept(HYBRID, "\"is_collective\": true",
                                     "\"embedding\": false")),
               want);
}

/* Dense parameters on both sides. */
#define MIXED "\"tower_0\": true, \"wide.b\": true, \"embedding\": false"
#define ALL_ON_SERVERS                                                         \
    "\"tower_0\": true, \"tower_1\": true, \"tower_out\": true, "              \
    "\"wide\": true"

TEST_LIMIT(adult_clipped_whoever_keeps_what, 300)
{
    const char *want;

    launch_need_mpirun();
    want = job_hash(clipped("--nproc_per_node 2", ""));
    CHECK_TEXT(job_hash(clipped_kept(HYBRID, ROWS, MIXED)), want);
    CHECK_TEXT(job_hash(clipped_kept(HYBRID, ROWS, ALL_ON_SERVERS)), want);
    CHECK_TEXT(job_hash(clipped_kept(HYBRID, ROWS, "\"wide.w\": false")), want);
    CHECK_TEXT(
        job_hash(clipped_kept("--server_num 2 --worker_num 2 --collective",
                              ROWS ", \"sharding\": true", MIXED)),
        want);
}

TEST_LIMIT(adult_clipped_with_a_table_on_either_side, 200)
{
    const char *want;

    launch_need_mpirun();
    want = job_hash(clipped_tables("--nproc_per_node 2", "", ""));
    CHECK_TEXT(job_hash(clipped_tables(HYBRID, ROWS, MIXED)), want);
    CHECK_TEXT(
        job_hash(clipped_tables("--server_num 2 --worker_num 2 --collective",
                                ROWS, "\"embedding_wide\": false")),
        want);
    job_at_least(clipped_tables(HYBRID, "\"is_collective\": true", MIXED),
                 "auc", 0.898);
}

/* Sums over ranks, rates by layer, and groups that end unequally. */
TEST_LIMIT(adult_clipped_with_more_whoever_keeps_what, 300)
{
    static const char *const more[] = {", \"gradient_scale_sum\": true",
                                       ", \"lamb\": true"};
    char rows[300];

    launch_need_mpirun();
    for (int i = 0; i < 2; i++) {
        const char *want = job_hash(clipped("--nproc_per_node 2", more[i] + 2));

        snprintf(rows, sizeof rows, ROWS "%s", more[i]);
        CHECK_TEXT(job_hash(clipped_kept(HYBRID, rows, MIXED)), want);
    }
    CHECK_TEXT(
        job_hash(clipped_kept("--server_num 1 --worker_num 3 --collective",
                              ROWS MERGE, MIXED)),
        job_hash(clipped("--server_num 1 --worker_num 3",
                         "\"a_sync\": false" MERGE)));
}

TEST_LIMIT(adult_clipped_without_waiting_whoever_keeps_what, 240)
{
    const char *async = "\"is_collective\": true";

    launch_need_mpirun();
    job_at_least(clipped_kept(HYBRID, async, MIXED), "auc", 0.898);
    job_at_least(clipped_kept(HYBRID, async, ALL_ON_SERVERS), "auc", 0.898);
}

/* The norm is that of the dense mean and of the ranks' own rows. */
TEST_LIMIT(adult_clipped_in_hybrid_without_waiting, 240)
{
    launch_need_mpirun();
    job_at_least(clipped(HYBRID, "\"is_collective\": true"), "auc", 0.903);
}
