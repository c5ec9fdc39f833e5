/* global_shuffle_test.c - samples of all workers in one order, in real jobs:
 * beside servers, with keys, and of ranks; to the bits of one process that
 * merges their batches. */
#define SUITE global_shuffle
#include "job_kit.h"
#include "launch_kit.h"
#include "model_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <fleet/fleet.h>

/* 2 epochs of batches of 16, merged by one process as two workers do. */
static const char *config(int files, const char *shuffle, const char *strategy)
{
    const char *a = scene_file("a.txt", 150, 1);
    const char *b = scene_file("b.txt", 90, 2);
    char text[4000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
             "\"hidden\": [8]}, \"epochs\": 2, \"seed\": 3, \"dataset\": "
             "{\"format\": \"multislot\", \"train\": [\"%s%s%s\"], "
             "\"batch_size\": 16, \"in_memory\": true, \"memory_shuffle\": "
             "\"%s\"}, \"strategy\": {%s}, \"slots\": "
             "[{\"name\": \"y\", \"type\": \"float\", \"role\": \"label\"}, "
             "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
             "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", "
             "\"type\": \"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", "
             "\"dim\": -1}]}",
             a, files > 1 ? "\", \"" : "", files > 1 ? b : "", shuffle,
             strategy);
    return test_keep(text);
}

#define SYNC "\"a_sync\": false"
#define MERGE                                                                  \
    "\"gradient_merge\": true, \"gradient_merge_configs\": {\"k_steps\": 2}"

static const char *hash_of_one(int files)
{
    return job_hash(
        job_train("--nproc_per_node 1", config(files, "local", MERGE)));
}

/* With fewer files than workers each has every second batch; the whole is what
 * one process reads. */
TEST(two_workers_beside_a_server_have_the_bits_of_one_process)
{
    const char *want = hash_of_one(1);
    const char *line =
        job_train("--server_num 1 --worker_num 2", config(1, "global", SYNC));

    CHECK_CONTAINS(line, "\"workers\":2");
    CHECK_TEXT(job_hash(line), want);
}

/* Each has a file of its own, and gets half of all. */
TEST(so_have_workers_with_files_of_their_own)
{
    CHECK_TEXT(job_hash(job_train("--server_num 1 --worker_num 2",
                                  config(2, "global", SYNC))),
               hash_of_one(2));
}

TEST(so_have_ranks)
{
    launch_need_mpirun();
    CHECK_TEXT(
        job_hash(job_train("--nproc_per_node 2", config(2, "global", ""))),
        hash_of_one(2));
}
