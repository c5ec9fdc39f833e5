/* gpu_rank_jobs_test.c - collective and hybrid jobs on emulated GPUs under
 * fleetrun: real data, the same bits in every mode, and how such a job ends. */
#define SUITE gpu_rank_jobs
#include "device_kit.h"
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO       "--devices 0,1"
#define THREE     "--devices 0,1,2"
#define HYBRID    "--server_num 1 --worker_num 2 --collective --devices 0,1"
#define IN_ORDER  "\"deterministic\": true"
#define SYNC_ROWS "\"is_collective\": true, \"a_sync\": false, " IN_ORDER

/* Emulated kernels take seconds for Adult's five epochs: what is about bits has
 * enough of a part of the rows. */
#define PART 10

TEST_LIMIT(adult_has_the_same_bits_in_every_mode, 300)
{
    const char *line, *want;

    test_use_fraction(PART);
    job_use_gpus(2);
    line = job_train(TWO, job_on_gpus(job_adult(IN_ORDER)));
    CHECK_CONTAINS(line, "\"mode\":\"collective\"");
    CHECK_CONTAINS(line, "\"device\":\"cuda:");
    CHECK_CONTAINS(line, "\"workers\":2,\"servers\":0");
    want = job_hash(line);
    line = job_train(HYBRID, job_on_gpus(job_adult(SYNC_ROWS)));
    CHECK_CONTAINS(line, "\"mode\":\"hybrid\"");
    CHECK_CONTAINS(line, want);
}

/* GPUs and servers add up squares in orders of their own, in double: what is
 * rounded to a float of that is the same. */
TEST_LIMIT(so_it_has_clipped_and_by_layers_whoever_keeps_what, 300)
{
    static const char mixed[] =
        "\"tower_0\": true, \"wide.b\": true, \"embedding\": false";
    static const char rate[] = "\"learning_rate\": 0.001";
    const char *strategy = SYNC_ROWS ", \"lamb\": true", *want = NULL;

    test_use_fraction(PART);
    job_use_gpus(2);
    for (int i = 0; i < 3; i++) {
        const char *config = job_adult_kept(
            i ? strategy : IN_ORDER ", \"lamb\": true", i == 2 ? mixed : "");
        const char *at = strstr(config, rate);
        char text[9000];

        CHECK(at);
        snprintf(text, sizeof text, "%.*s\"clip_global_norm\": 0.2, %s",
                 (int)(at - config), config, at);
        want = want ? want : job_hash(job_train(TWO, job_on_gpus(text)));
        if (i > 0)
            CHECK_CONTAINS(job_train(HYBRID, job_on_gpus(text)), want);
    }
}

/* One rank sums with nobody; what servers keep lies in the host's memory. */
TEST_LIMIT(one_rank_beside_a_server_has_them_too, 200)
{
    const char *want, *alone;

    test_use_fraction(PART);
    job_use_gpus(1);
    alone = job_on_gpus(job_adult(""));
    want = job_hash(job_train("--worker_num 1", alone));
    CHECK_CONTAINS(job_train("--server_num 1 --worker_num 1 --collective",
                             job_on_gpus(job_adult(SYNC_ROWS))),
                   want);
}

TEST_LIMIT(adult_by_three_ranks_is_as_good_as_by_one, 300)
{
    job_use_gpus(3);
    job_at_least(job_train(THREE, job_on_gpus(job_adult(""))), "auc", 0.903);
}

TEST_LIMIT(adult_in_hybrid_without_waiting_is_as_good, 300)
{
    job_use_gpus(2);
    job_at_least(
        job_train(HYBRID, job_on_gpus(job_adult("\"is_collective\": true"))),
        "auc", 0.903);
}

/* The states that ranks share out are written by all of them. */
TEST_LIMIT(what_ranks_save_others_go_on_with, 300)
{
    const char *plain, *sharded, *want;
    const char *one = test_path("one"), *parts = test_path("parts");

    test_use_fraction(PART);
    plain = test_keep(job_on_gpus(job_adult(IN_ORDER)));
    sharded =
        test_keep(job_on_gpus(job_adult("\"sharding\": true, " IN_ORDER)));
    job_use_gpus(2);
    want = job_hash(job_train(TWO, job_with(plain, "save", one)));
    CHECK_CONTAINS(job_train(TWO, job_with(sharded, "save", parts)), want);
    want = job_hash(job_train(TWO, job_with(plain, "load", one)));
    CHECK_CONTAINS(job_train(TWO, job_with(plain, "load", parts)), want);
    CHECK_CONTAINS(job_train(TWO, job_with(sharded, "load", one)), want);
}

/* So are gradients, and weights: the sums of a fixed order have the same bits
 * by parts. */
TEST_LIMIT(gradients_and_weights_that_ranks_share_out_change_no_bit, 300)
{
    static const char parts[] =
        "\"sharding\": true, \"sharding_configs\": {\"stage\": %d}, "
        "\"fuse_all_reduce_ops\": false, " IN_ORDER;
    const char *want;
    char text[200];

    test_use_fraction(PART);
    job_use_gpus(2);
    want = job_hash(job_train(TWO, job_on_gpus(job_adult(IN_ORDER))));
    for (int stage = 2; stage <= 3; stage++) {
        snprintf(text, sizeof text, parts, stage);
        CHECK_CONTAINS(job_train(TWO, job_on_gpus(job_adult(text))), want);
    }
}

TEST_LIMIT(a_rank_that_is_killed_ends_the_job_and_is_named, 120)
{
    job_use_gpus(2);
    job_kill_rank(TWO " --grace 30", job_on_gpus(job_adult("")));
}

TEST_LIMIT(so_it_is_beside_servers, 120)
{
    job_use_gpus(2);
    job_kill_rank(HYBRID " --grace 30", job_on_gpus(job_adult(SYNC_ROWS)));
}

/* mpirun says who they are, fleetrun where rank 0 is. */
TEST_LIMIT(ranks_that_mpirun_has_started_meet_as_well, 120)
{
    const char *config;

    launch_need_mpirun();
    test_use_fraction(PART);
    config = job_on_gpus(job_adult(IN_ORDER));
    job_use_gpus(2);
    CHECK_CONTAINS(job_train("--nproc_per_node 2", config),
                   "\"mode\":\"collective\",\"device\":\"cuda:");
}

static void refused(const char *flags, const char *device, const char *words)
{
    const char *config = job_with(job_adult(""), "device", device);

    job_use_gpus(2);
    launch_deadline_ms = 60000;
    CHECK(launch_run(flags, job_script(config)) != 0);
    CHECK_CONTAINS(launch_log("workerlog.1"), words);
}

TEST_LIMIT(two_ranks_on_one_gpu_are_refused_by_its_name, 90)
{
    if (!device_kit_is_emulated())
        test_skip("an emulated GPU has the name that this test expects");
    refused(TWO, "gpu:0", "ranks 0 and 1 are both on GPU 0000:01:00.0");
}

/* From NCCL 2.30 on ranks may share a GPU, if NCCL is told so. */
TEST_LIMIT(two_ranks_share_a_gpu_if_nccl_can_and_is_told_so, 120)
{
    const char *config, *want;

    if (!device_kit_is_emulated())
        test_skip("all tests of ranks show it on a GPU that is shared");
    test_use_fraction(PART);
    config = test_keep(job_adult(IN_ORDER));
    job_use_gpus(2);
    want = job_hash(job_train(TWO, job_with(config, "device", "gpu")));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    refused(TWO, "gpu:0", "ranks 0 and 1 are both on GPU 0000:01:00.0");
    job_use_gpus(1);
    setenv("FLEET_NCCL_PATH", test_beside("nccl-new"), 1);
    CHECK_CONTAINS(job_train(TWO, job_with(config, "device", "gpu:0")), want);
}

TEST_LIMIT(ranks_with_gpus_that_the_program_does_not_use_are_told_so, 90)
{
    launch_need_mpirun(); /* its plug-in */
    refused(TWO, "cpu",
            "ranks of fleetrun --devices need no mpirun where the program is "
            "placed on a GPU");
}
