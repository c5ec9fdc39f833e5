/* fleet_replay_test.c - bin/fleet-replay: which updates are in a lane's log,
 * what they brought, and which of them was the first that is not finite; a log
 * that is damaged is refused. */
#define _GNU_SOURCE
#define SUITE fleet_replay
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ps/aggregate/lane_record.h"
#include "ps/journal/journal_writer.h"

enum { UPDATES = 9, NAN_FROM = 6, PASS_FROM = 7 };

/* Each of one row of table 1, key 100 + its number, and of one block. */
static void put_update(fl_journal_writer *w, uint64_t number)
{
    const float g[2] = {3, number >= NAN_FROM ? NAN : 4}, block[2] = {2, 0};
    const uint64_t key = 100 + number, at = 0;
    const fl_update_record u = {.version = number - 1,
                                .n_stream = 2,
                                .n_section = 2,
                                .n_batch = 2,
                                .clip = 0.5f};
    const fl_stream_record stream[2] = {
        {.stream = 0, .step = number, .n_batch = 1},
        {.stream = 3, .step = number + 7, .n_batch = 2}};
    const fl_section_record rows = {
        .table = 1, .op = FL_SECTION_ROWS, .n_key = 1, .n_float = 2};
    const fl_section_record dense = {
        .op = FL_SECTION_DENSE, .n_key = 1, .n_float = 1};

    CHECK_OK(fl_journal_put(w, FL_LANE_RECORD_UPDATE,
                            (fl_journal_part[]){{&u, sizeof u},
                                                {stream, sizeof stream},
                                                {&rows, sizeof rows},
                                                {&key, sizeof key},
                                                {g, sizeof g},
                                                {&dense, sizeof dense},
                                                {&at, sizeof at},
                                                {block, sizeof block}},
                            8));
}

static const char *write_log(void)
{
    const char *folder = test_path("lane-0");
    const fl_run_record run = {.run = 5};
    const fl_stream_record over[2] = {{.stream = 0}, {.stream = 3}};
    const fl_journal_part ends = {over, sizeof over};
    fl_journal_writer *w;

    CHECK(mkdir(folder, 0755) == 0);
    CHECK_OK(fl_journal_writer_create(
        &w, &(fl_journal_options){.folder = folder,
                                  .text = "{}",
                                  .first_file = 1,
                                  .first_lsn = 1,
                                  .roll_bytes = 4096}));
    CHECK_OK(fl_journal_put(w, FL_LANE_RECORD_RUN,
                            &(fl_journal_part){&run, sizeof run}, 1));
    for (uint64_t i = 1; i <= UPDATES; i++) {
        if (i == PASS_FROM)
            CHECK_OK(fl_journal_put(w, FL_LANE_RECORD_PASS, &ends, 1));
        put_update(w, i);
    }
    CHECK_OK(fl_journal_commit(w));
    fl_journal_writer_destroy(w);
    return folder;
}

/* All that it says; how it ends. */
static int run(const char *arguments, const char *folder, char said[4000])
{
    char command[9000];

    snprintf(command, sizeof command, "'%s' %s '%s' 2>&1",
             test_beside("fleet-replay"), arguments, folder);
    return test_shell(command, said, 4000);
}

TEST(each_record_has_a_line)
{
    char said[4000];
    int lines = 0;

    CHECK_INT(run("", write_log(), said), 0);
    CHECK_CONTAINS(said, "1 run, 8 bytes\n");
    CHECK_CONTAINS(said, "\n11 update 9, ");
    for (const char *at = said; (at = strchr(at, '\n')); at++)
        lines++;
    CHECK_INT(lines, UPDATES + 2);
}

TEST(an_update_is_shown_with_whose_it_is_and_what_it_brought)
{
    char said[4000];

    CHECK_INT(run("--update 2", write_log(), said), 0);
    CHECK_TEXT(said,
               "3 update 2, 168 bytes, 2 batches, clip 0.5, of worker 0 step "
               "2 (pass 1, batch 2), worker 3 step 9 (pass 1, batch 3 to 4)\n  "
               "table 1: 1 rows, norm 5\n  dense: 1 "
               "blocks, norm 2\n");
}

TEST(a_row_is_found_by_its_table_and_key)
{
    const char *log = write_log();
    char said[4000];

    CHECK_INT(run("--key 1:104", log, said), 0);
    CHECK_CONTAINS(said, "5 update 4, ");
    CHECK(strstr(said, "update 3") == NULL && strstr(said, "update 5") == NULL);
    CHECK_INT(run("--key 0:104", log, said), 0);
    CHECK_TEXT(said, "");
    CHECK_INT(run("--key 1:108", log, said), 0);
    CHECK_CONTAINS(said, "of worker 0 step 8 (pass 2, batch 2), worker 3 step "
                         "15 (pass 2, batch 3 to 4)\n");
}

TEST(the_first_update_that_is_not_finite_is_named)
{
    char said[4000];

    CHECK_INT(run("--until-nan", write_log(), said), 1);
    CHECK_CONTAINS(said, "7 update 6, ");
    CHECK(strstr(said, "update 7") == NULL);
    CHECK_CONTAINS(said, "table 1: 1 rows, norm nan");
}

TEST(what_is_damaged_or_no_log_is_refused)
{
    const char *folder = write_log();
    char path[5000], said[4000];
    FILE *f;

    snprintf(path, sizeof path, "%s/journal-00000001", folder);
    f = fopen(path, "r+");
    CHECK(f != NULL && fseek(f, 300, SEEK_SET) == 0 && fputc(0x5A, f) != EOF);
    fclose(f);
    CHECK_INT(run("", folder, said), 2);
    CHECK_CONTAINS(said, "journal-00000001");
    CHECK_INT(run("", test_path("nothing"), said), 2);
    CHECK_INT(run("--key 104", folder, said), 2);
    CHECK_CONTAINS(said, "usage: fleet-replay");
    CHECK_INT(run("--to-step 1", folder, said), 2);
    CHECK_CONTAINS(said, "usage: fleet-replay");
}

/* --- a job ---------------------------------------------------------------- */

/* A click model on lines of its own. */
static const char *write_config(void)
{
    char lines[2000], config[9000], *at = lines;
    const char *data;

    for (int i = 0; i < 64; i++)
        at += sprintf(at, "%d,%d,%d\n", i * 7 % 3 == 0, i % 10, i * 5 % 17);
    data = test_file("lines.csv", lines);
    snprintf(config, sizeof config,
             "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
             "\"hidden\": [4]}, \"epochs\": 2, \"strategy\": {\"a_sync\": "
             "false}, \"dataset\": {\"format\": \"csv\", \"train\": "
             "[\"%s\"], \"batch_size\": 4}, \"slots\": ["
             "{\"name\": \"y\", \"type\": \"float\", \"dim\": 1, "
             "\"role\": \"label\", \"columns\": [0]},"
             "{\"name\": \"x\", \"type\": \"float\", \"dim\": 1, "
             "\"columns\": [1]},"
             "{\"name\": \"u\", \"type\": \"uint64\", \"columns\": [2], "
             "\"transform\": \"hash\"}], \"save\": \"%s\"}",
             data, test_path("end"));
    return test_file("config.json", config);
}

/* Processes of fleetrun. The data is gone by then: a log needs none. */
TEST(a_job_of_fleet_train_is_made_again_from_its_logs)
{
    const char *config = write_config(), *again = test_path("again");
    char command[9000], arguments[4000], said[4000];
    const char *logs = test_path("logs");

    snprintf(command, sizeof command,
             "FLEET_LOG=process FLEET_LOG_FOLDER='%s' '%s' --server_num 2 "
             "--worker_num 2 --log_dir '%s' '%s' '%s' 2>&1",
             logs, test_beside("fleetrun"), test_path("log"),
             test_beside("fleet-train"), config);
    if (test_shell(command, said, sizeof said) != 0)
        test_fail(__FILE__, __LINE__, "the job: %s", said);
    CHECK(remove(test_path("lines.csv")) == 0);
    snprintf(arguments, sizeof arguments, "--config '%s' --save '%s'", config,
             again);
    CHECK_INT(run(arguments, logs, said), 0);
    CHECK_CONTAINS(said, "again: as of update 16\n");
    snprintf(command, sizeof command,
             "cd '%s' && n=0 && for f in part-*; do cmp $f '%s'/$f || exit; "
             "n=$((n+1)); done && echo $n parts",
             test_path("end"), again);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_CONTAINS(said, " parts\n");
    CHECK(strcmp(said, "0 parts\n") != 0);
    snprintf(arguments, sizeof arguments,
             "--config '%s' --to-step 5 --update 5", config);
    CHECK_INT(run(arguments, logs, said), 0);
    CHECK_CONTAINS(said, "lane 0, update 5: 2 batches, clip 1, of worker 0 "
                         "step 6, worker 1 step 6\n");
    snprintf(arguments, sizeof arguments, "--config '%s' --until-nan", config);
    CHECK_INT(run(arguments, logs, said), 0);
    CHECK_TEXT(said, "");
}
