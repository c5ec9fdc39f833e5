/* bad_lines_job_test.c - configurations with max_bad_lines and with cache: the
 * closing line has the number of bad lines, of all workers; a cached training
 * has the bits of one without. */
#define SUITE bad_lines_job
#include "test.h"

#include <fleet/fleet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { LINES = 400, MOST = 20000 };

/* `bad` of the lines, the 20th, 40th, ... */
static const char *write_lines(const char *name, int bad)
{
    static char text[LINES * 40];
    char *to = text;

    for (int i = 1; i <= LINES; i++)
        to += i % 20 == 0 && i / 20 <= bad
                  ? sprintf(to, "1 1 1 x\n")
                  : sprintf(to, "1 %d 1 %d\n", i % 2, i % 7);
    return test_file(name, text);
}

static const char *write_config(const char *data)
{
    char text[2000];

    snprintf(
        text, sizeof text,
        "{\"model\":{\"type\":\"wide_deep\",\"hidden\":[4],"
        "\"embedding_dim\":2},\"optimizer\":{\"type\":\"adam\"},"
        "\"epochs\":2,\"dataset\":{\"format\":\"multislot\","
        "\"batch_size\":16,\"shuffle\":50,\"train\":[\"%s\"]},"
        "\"slots\":[{\"name\":\"y\",\"type\":\"float\",\"role\":\"label\"},"
        "{\"name\":\"x\",\"type\":\"uint64\"}]}",
        data);
    return test_file("config.json", text);
}

static fleet_status train(const char *config, const char *set, char **line)
{
    const char *all[] = {set};
    const fleet_config_options o = {
        .set = all, .n_set = 1, .log_level = FLEET_LOG_ERROR};

    return fleet_train_from_config(config, &o, line);
}

static uint64_t hash_of(const char *line)
{
    return strtoull(strchr(test_json_value(line, "\"params_hash\""), ':') + 2,
                    NULL, 16);
}

TEST(the_closing_line_has_the_bad_lines_of_the_last_epoch)
{
    const char *config = write_config(write_lines("data", 7));
    char *line;

    CHECK_OK(train(config, "dataset.max_bad_lines=7", &line));
    CHECK_CONTAINS(line, "\"bad_lines\":7,");
    fleet_free(line);
    CHECK_FAILS(train(config, "dataset.max_bad_lines=6", &line), FLEET_EFORMAT,
                "7 bad lines, of which max_bad_lines lets 6 be left out");
    CHECK_FAILS(train(config, "dataset.thread_num=1", &line), FLEET_EFORMAT,
                "data:20: slot \"x\"");
    config = write_config(write_lines("data", 0));
    CHECK_OK(train(config, "dataset.max_bad_lines=6", &line));
    CHECK(!strstr(line, "bad_lines"));
    fleet_free(line);
}

TEST(workers_count_the_lines_of_their_shares)
{
    const char *config = write_config(write_lines("data", 7));
    char command[3000], said[MOST];

    snprintf(command, sizeof command,
             "'%s' --server_num 1 --worker_num 2 '%s' '%s' "
             "dataset.max_bad_lines=7 strategy.a_sync=false 2>/dev/null",
             test_beside("fleetrun"), test_beside("fleet-train"), config);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_CONTAINS(said, "\"workers\":2");
    CHECK_CONTAINS(said, "\"bad_lines\":7,");
}

TEST(a_training_from_caches_has_the_same_bits)
{
    const char *path = write_lines("data", 0), *config = write_config(path);
    char *text, *cached, name[2000];

    CHECK_OK(train(config, "dataset.cache=false", &text));
    CHECK_OK(train(config, "dataset.cache=true", &cached));
    CHECK(hash_of(text) == hash_of(cached));
    snprintf(name, sizeof name, "%s.fleetcache", path);
    CHECK(fl_file_exists(name));
    fleet_free(text);
    fleet_free(cached);
    CHECK_FAILS(train(config,
                      "dataset={\"format\":\"idx\",\"train\":"
                      "[\"a\",\"b\"],\"cache\":true}",
                      &text),
                FLEET_ECONFIG, "cache: not for idx files");
}
