/* resume_over_test.c - jobs of fleet-train that are resumed where a pass, or
 * all of them, are over, and what workers say of a server that got SIGTERM. */
#define _GNU_SOURCE
#define SUITE resume_over
#include "launch_kit.h"
#include "model_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/save/save.h"

static const char flags[] = "--server_num 1 --worker_num 2";

enum { LINES = 160, BATCH = 16 }; /* 5 batches for each of two workers */

static const char *write_config(const char *a_sync, const char *command)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 2, \"seed\": 5, "
        "\"optimizer\": {\"plateau\": {}}, "
        "\"strategy\": {\"a_sync\": %s}, "
        "\"dataset\": {\"format\": \"multislot\", \"train\": [\"%s\"], "
        "\"batch_size\": %d, \"shuffle\": 50, \"pipe_command\": \"%s\"}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
        "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}], "
        "\"save\": \"%s\", \"save_every\": {\"steps\": 5, \"keep\": 9}}";
    char all[4000];

    snprintf(all, sizeof all, text, a_sync, scene_file("train.txt", LINES, 1),
             BATCH, command, test_path("model"));
    return test_file("config.json", all);
}

static const char *run_job(const char *config)
{
    char script[5000];

    snprintf(script, sizeof script, "exec '%s' --resume '%s'",
             test_beside("fleet-train"), config);
    if (launch_run(flags, script) != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_err());
    return test_keep(launch_out());
}

static const char *checkpoint(int number, const char *file)
{
    char name[80];

    snprintf(name, sizeof name, "model.checkpoints/checkpoint-%06d%s", number,
             file);
    return test_path(name);
}

/* What the plateau has seen by the end: two losses, or one and none. */
static void check_reports(void)
{
    char *manifest;
    size_t size;

    CHECK_OK(fl_file_read(checkpoint(3, "/manifest.json"), &manifest, &size));
    CHECK_CONTAINS(manifest, "\"reports\":\t2");
    CHECK_CONTAINS(manifest, "\"bad\":\t0");
    fl_free(manifest);
}

/* "save_every.steps" divides the pass: checkpoints 1 and 2 are of the last
 * batches of passes 0 and 1, and 3 is that of the end. The loss of a pass is
 * not known to a job that goes on behind its last batch. */
TEST(a_job_goes_on_after_the_last_batch_of_a_pass)
{
    const char *config = write_config("false", "cat"), *whole, *later;

    whole = run_job(config);
    CHECK(access(checkpoint(3, "/manifest.json"), F_OK) == 0);
    CHECK(access(checkpoint(4, ""), F_OK) != 0);
    fl_save_remove(checkpoint(3, ""));
    later = run_job(config); /* of the last pass */
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "goes on in pass 1 after batch 5");
    CHECK_CONTAINS(launch_log("workerlog.1"),
                   "the loss of pass 2 is not known, as the job goes on behind "
                   "its last batch: the plateau does without it");
    check_reports();
    CHECK_TEXT(test_json_value(later, "\"params_hash\""),
               test_json_value(whole, "\"params_hash\""));
    CHECK_TEXT(test_json_value(later, "\"loss\""), "\"loss\":null");

    fl_save_remove(checkpoint(3, ""));
    fl_save_remove(checkpoint(2, ""));
    later = run_job(config);
    CHECK_CONTAINS(launch_log("workerlog.1"),
                   "goes on in pass 0 after batch 5");
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "the loss of pass 1 is not known");
    check_reports();
    CHECK_TEXT(test_json_value(later, "\"params_hash\""),
               test_json_value(whole, "\"params_hash\""));
    CHECK_TEXT(test_json_value(later, "\"loss\""),
               test_json_value(whole, "\"loss\""));
}

TEST(an_async_job_that_is_over_trains_nothing_more)
{
    const char *config = write_config("true", "cat"), *whole, *later;

    whole = run_job(config);
    later = run_job(config);
    CHECK_CONTAINS(later, "\"samples_per_s\":0,");
    CHECK_TEXT(test_json_value(later, "\"params_hash\""),
               test_json_value(whole, "\"params_hash\""));
    CHECK_TEXT(test_json_value(later, "\"loss\""),
               test_json_value(whole, "\"loss\""));
}

TEST(workers_say_that_their_server_was_sent_sigterm)
{
    const char *there = test_path("there"), *config;
    char command[500], script[6000];

    snprintf(command, sizeof command, "cat; touch '%s'; sleep 1000", there);
    config = write_config("false", command);
    snprintf(script, sizeof script,
             LAUNCH_SERVER
             " || exec '%s' '%s'; '%s' '%s' & p=$!;"
             "while [ ! -e '%s' ]; do sleep 0.01; done; kill -TERM $p; wait $p",
             test_beside("fleet-train"), config, test_beside("fleet-train"),
             config, there);
    CHECK_INT(launch_run(flags, script), 1);
    CHECK_CONTAINS(launch_log("workerlog.1"),
                   "server 0 has ended: it was sent SIGTERM");
}
