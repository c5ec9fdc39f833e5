/* predict_test.c - bin/predict: a line of scores for a line of values; what
 * does not fit is told with its file and number. */
#define _GNU_SOURCE
#define SUITE predict
#include "model_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* Inputs: three numbers, an id, an id, any number of ids. */
#define GOOD "3 0.5 -1 2 1 7 1 8 2 5 6\n"

static const char *model(void)
{
    scene s;
    fleet_var *feed[4];
    static const char *const name[] = {"dense", "u", "v", "w"};

    scene_trained(&s, NULL, 7);
    for (int i = 0; i < 4; i++)
        feed[i] = fleet_program_var(s.p, name[i]);
    CHECK_OK(fleet_save_inference_model(s.f, test_path("model"), feed, 4,
                                        &s.m.prediction, 1));
    scene_close(&s);
    return test_path("model");
}

/* Inputs of a model that pools: weights stand with their ids, and are inputs of
 * their own. */
static const char *pooled_model(void)
{
    static const char *const name[] = {"w.weights", "dense",  "u", "v",
                                       "w",         "prices", "x", "x.weights"};
    const scene_training how = {.pooled = true};
    fleet_var *feed[8];
    scene s;

    scene_open_as(&s, &(fleet_options){.num_threads = 1}, &how);
    scene_data(&s, scene_pooled_file("train.txt", 100, 1), 32, 1, 0);
    scene_train(&s, 1);
    for (int i = 0; i < 8; i++)
        feed[i] = fleet_program_var(s.p, name[i]);
    CHECK_OK(fleet_save_inference_model(s.f, test_path("pooled"), feed, 8,
                                        &s.m.prediction, 1));
    scene_close(&s);
    return test_path("pooled");
}

/* All that it says; how it ends. */
static int run(const char *arguments, char *said, size_t size)
{
    char command[9000];

    snprintf(command, sizeof command, "'%s' %s 2>&1", test_beside("predict"),
             arguments);
    return test_shell(command, said, size);
}

/* It scores the first line, and says that of the second one. */
static void check_second(const char *model_, const char *line, const char *want)
{
    char text[500], arguments[4000], said[2000], all[4500];
    const char *file;

    snprintf(text, sizeof text, GOOD "%s\n" GOOD, line);
    file = test_file("lines", text);
    snprintf(arguments, sizeof arguments, "'%s' '%s'", model_, file);
    CHECK_INT(run(arguments, said, sizeof said), 1);
    snprintf(all, sizeof all, "predict: %s:2: %s\n", file, want);
    CHECK_CONTAINS(said, all);
    snprintf(arguments, sizeof arguments, "'%s' <'%s'", model_, file);
    CHECK_INT(run(arguments, said, sizeof said), 1);
    snprintf(all, sizeof all, "predict: standard input:2: %s\n", want);
    CHECK_CONTAINS(said, all);
}

TEST(a_file_and_standard_input_are_scored_alike)
{
    const char *m = model(), *file = test_file("lines", GOOD GOOD);
    char arguments[4000], of_file[200], of_input[200];

    snprintf(arguments, sizeof arguments, "'%s' '%s'", m, file);
    CHECK_INT(run(arguments, of_file, sizeof of_file), 0);
    CHECK(strlen(of_file) > 6 && of_file[0] == '0');
    snprintf(arguments, sizeof arguments, "'%s' <'%s'", m, file);
    CHECK_INT(run(arguments, of_input, sizeof of_input), 0);
    CHECK_TEXT(of_file, of_input);
}

TEST(a_line_that_does_not_fit_is_told_with_file_number_and_input)
{
    const char *m = model();

    check_second(m, "4 0 0 0 0",
                 "input \"dense\": expected the count 3, got \"4\"");
    check_second(m, "3 0.5 x 2 1 7 1 8 0",
                 "input \"dense\": expected a finite number, got \"x\"");
    check_second(m, "3 0.5 1 2 1 7.5 1 8 0",
                 "input \"u\": expected a whole number from 0 to 2^64 - 1, got "
                 "\"7.5\"");
    check_second(m, "3 0.5 1 2 1 99999999999999999999 1 8 0",
                 "input \"u\": expected a whole number from 0 to 2^64 - 1, got "
                 "\"99999999999999999999\"");
    check_second(m, "3 0.5 1 2 1 7 1 8",
                 "input \"w\": expected a count of values up to 99995, but the "
                 "line ends");
    check_second(m, "3 0.5 1 2 1 7 1 8 -1",
                 "input \"w\": expected a count of values up to 99995, got "
                 "\"-1\"");
    check_second(m, "3 0.5 1 2 1 7 1 8 2 5",
                 "input \"w\": expected a whole number from 0 to 2^64 - 1, but "
                 "the line ends");
    check_second(m, "3 0.5 1 2 1 7 1 8 1 5 1",
                 "\"1\" comes after the last of 4 inputs");
}

TEST(weights_stand_behind_their_ids)
{
    static const char *const line[] = {
        "3 0.5 -1 2 1 7 1 8 2 5:0.5 6 0 1 9:-2\n",
        "3 0.5 -1 2 1 7 1 8 2 5:0.50 6:1 0 1 9:-2e0\n",
        "3 0.5 -1 2 1 7 1 8 2 5:0.25 6 0 1 9:-2\n"};
    static const char *const bad[] = {"5:", "5:x", "5:inf", ":1", "5:1:1"};
    const char *m = pooled_model(), *file;
    char arguments[4000], said[3][2000], text[200];

    for (int i = 0; i < 3; i++) {
        file = test_file("lines", line[i]);
        snprintf(arguments, sizeof arguments, "'%s' '%s'", m, file);
        CHECK_INT(run(arguments, said[i], sizeof said[i]), 0);
    }
    CHECK_TEXT(said[1], said[0]);
    CHECK(strcmp(said[2], said[0]) != 0);
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "3 0 0 0 1 7 1 8 1 %s 0 0\n", bad[i]);
        file = test_file("lines", text);
        snprintf(arguments, sizeof arguments, "'%s' '%s'", m, file);
        CHECK_INT(run(arguments, said[0], sizeof said[0]), 1);
        snprintf(text, sizeof text,
                 "perhaps with a colon and its weight, got \"%s\"", bad[i]);
        CHECK_CONTAINS(said[0], text);
    }
}

/* What a MultiSlot file would be refused for, too. */
TEST(what_only_begins_as_a_number_is_none)
{
    const char *m = model();

    check_second(m, "3.5 0.5 1 1 7 1 8 0",
                 "input \"dense\": expected the count 3, got \"3.5\"");
    check_second(m, "3 0.5 1 2 1 7 1 8 1.5 1",
                 "input \"w\": expected a count of values up to 99995, got "
                 "\"1.5\"");
    check_second(m, "3 0.5 nan 2 1 7 1 8 0",
                 "input \"dense\": expected a finite number, got \"nan\"");
    check_second(m, "3 0.5 1e39 2 1 7 1 8 0",
                 "input \"dense\": expected a finite number, got \"1e39\"");
    check_second(m, "3 0.5 1 2 1 -7 1 8 0",
                 "input \"u\": expected a whole number from 0 to 2^64 - 1, got "
                 "\"-7\"");
}

TEST(a_long_word_is_told_in_part)
{
    char line[200] = "3 0.5 1 2 1 ", want[200];
    const char *m = model();

    memset(line + 12, 'a', 100);
    snprintf(want, sizeof want,
             "input \"u\": expected a whole number from 0 to 2^64 - 1, got "
             "\"%.60s\"",
             line + 12);
    check_second(m, line, want);
}

TEST(a_byte_0_ends_no_line)
{
    char arguments[4000], said[2000], all[4000];
    const char *file = test_path("zero");
    FILE *f = fopen(file, "w");

    fputs(GOOD, f);
    fwrite("3 0 1 2 1 7 1 8 0\0 9\n", 1, 21, f);
    fclose(f);
    snprintf(arguments, sizeof arguments, "'%s' '%s'", model(), file);
    CHECK_INT(run(arguments, said, sizeof said), 1);
    snprintf(all, sizeof all, "predict: %s:2: the line has a byte 0\n", file);
    CHECK_CONTAINS(said, all);
}

TEST(files_that_are_not_there_are_named)
{
    char said[2000];

    CHECK_INT(run("/nowhere/model /nowhere/lines", said, sizeof said), 1);
    CHECK_CONTAINS(said, "predict: /nowhere/lines: No such file");
    CHECK_INT(run("/nowhere/model </dev/null", said, sizeof said), 1);
    CHECK_CONTAINS(said, "predict: ");
    CHECK_CONTAINS(said, "/nowhere/model");
}

TEST(an_unknown_option_or_a_third_word_gets_the_usage)
{
    static const char *const wrong[] = {"--threads 2 m", "", "m lines more"};
    char said[2000];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(run(wrong[i], said, sizeof said), 1);
        CHECK_CONTAINS(said, "usage: predict MODEL [LINES]\n");
    }
    CHECK_INT(run("--help", said, sizeof said), 0);
    CHECK_TEXT(said, "usage: predict MODEL [LINES]\n");
}
