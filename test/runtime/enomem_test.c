/* enomem_test.c - memory that runs out: whichever allocation fails, the
 * training ends with FLEET_ENOMEM, and everything can be destroyed. Every third
 * is tried, with FLEET_EVERY_ALLOCATION each one. */
#define SUITE enomem
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "model_kit.h"

static void silent(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

/* Everything that a training does: configuration, model, data, steps,
 * evaluation, save. */
static const char *config(const char *saved)
{
    char text[4000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 3, "
             "\"hidden\": [9], \"wide_ids\": true}, \"optimizer\": {\"type\": "
             "\"adam\", \"clip_global_norm\": 1.0}, \"strategy\": "
             "{\"gradient_merge\": true, \"gradient_merge_configs\": "
             "{\"k_steps\": 2}}, \"epochs\": 2, \"dataset\": {\"format\": "
             "\"multislot\", \"train\": [\"%s\"], \"test\": [\"%s\"], "
             "\"batch_size\": 16, \"shuffle\": 10}, \"slots\": [{\"name\": "
             "\"label\", \"type\": \"float\", \"role\": \"label\"}, "
             "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
             "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", "
             "\"type\": \"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", "
             "\"dim\": -1}], \"save\": \"%s\"}",
             scene_file("train.txt", 60, 1), scene_file("test.txt", 40, 2),
             saved);
    return test_file("config.json", text);
}

static fleet_status train_once(const char *path)
{
    fleet_config_options o = {.log = silent};
    char *line = NULL;
    fleet_status status = fleet_train_from_config(path, &o, &line);

    CHECK((status == FLEET_OK) == (line != NULL));
    fleet_free(line);
    return status;
}

/* Let allocation n fail, and with sticky all that follow, for every n. Reader
 * threads may allocate a little more or less from run to run: the last few n
 * need not be reached. */
static void fail_at_every(const char *path, bool sticky, int64_t stride)
{
    int64_t made;

    fl_memory_fail_at(0, false);
    CHECK_OK(train_once(path));
    made = fl_memory_count();
    CHECK(made > 500); /* the injection is in the way of something */
    for (int64_t n = 1; n <= made; n += stride) {
        fleet_status status;

        fl_memory_fail_at(n, sticky);
        status = train_once(path);
        fl_memory_fail_at(0, false);
        if (status != FLEET_ENOMEM && n < made - 20)
            test_fail(__FILE__, __LINE__,
                      "allocation %lld of %lld failed: got %s (%s), not "
                      "FLEET_ENOMEM",
                      (long long)n, (long long)made, fleet_status_name(status),
                      fleet_last_error());
    }
    CHECK_OK(train_once(path));
}

TEST_LIMIT(one_allocation_that_fails_ends_a_training_cleanly, 240)
{
    char saved[4096];

    snprintf(saved, sizeof saved, "%s/saved", test_folder());
    fl_json_use_allocator();
    fail_at_every(config(saved), false,
                  getenv("FLEET_EVERY_ALLOCATION") ? 1
                  : test_fraction() > 1            ? 9
                                                   : 3);
}

TEST_LIMIT(memory_that_is_gone_for_good_ends_a_training_cleanly, 240)
{
    char saved[4096];

    snprintf(saved, sizeof saved, "%s/saved", test_folder());
    fl_json_use_allocator();
    fail_at_every(config(saved), true, 7);
}
