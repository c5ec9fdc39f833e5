/* fleet_plot_test.c - bin/fleet-plot: which numbers of a metrics_log become
 * which marks and pixels, and what it says of files that are broken, empty, cut
 * off, or very long. */
#define SUITE fleet_plot
#include "test.h"
#include "watch_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[60000];

/* What it prints, errors too; how it ends. */
static int run(const char *arguments)
{
    char command[9000];

    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>&1", test_folder(),
             test_beside("fleet-plot"), arguments);
    return test_shell(command, said, sizeof said);
}

#define BEGIN "{\"run\":\"53f2ab9d01c7e6a5\",\"step\":0,\"time\":1000.5}\n"
#define STEP(step, loss)                                                       \
    "{\"step\":" #step ",\"samples\":1" #step ",\"loss\":" #loss               \
    ",\"time\":100" #step "}\n"

/* The n-th line that it has printed. */
static const char *line_at(int n)
{
    const char *at = said;
    char *line;

    while (n-- > 0 && (at = strchr(at, '\n')) != NULL)
        at++;
    if (!at)
        test_fail(__FILE__, __LINE__, "too few lines: %s", said);
    line = (char *)(size_t)test_keep(at);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* --- text ----------------------------------------------------------------- */

TEST(a_curve_goes_through_its_numbers)
{
    test_file("a.jsonl",
              BEGIN STEP(1, 4) STEP(2, 3) STEP(3, 2) STEP(4, 1) STEP(5, 0));
    CHECK_INT(run("--width 31 --height 5 a.jsonl"), 0);
    CHECK_TEXT(line_at(0), "loss");
    CHECK_TEXT(line_at(1), "       4 |***");
    CHECK_TEXT(line_at(2), "         |   *****");
    CHECK_TEXT(line_at(3), "       2 |        *****");
    CHECK_TEXT(line_at(4), "         |             *****");
    CHECK_TEXT(line_at(5), "       0 |                  ***");
    CHECK_TEXT(line_at(6), "         +---------------------");
    CHECK_CONTAINS(line_at(7), "step");
    CHECK_TEXT(line_at(8), "* a: 5 lines, loss 0");
    CHECK(strchr(said, '\x1b') == NULL);
}

TEST(braille_has_eight_dots_in_a_character)
{
    test_file("a.jsonl", BEGIN STEP(1, 1) STEP(2, 0));
    CHECK_INT(run("--unicode --width 30 --height 3 a.jsonl"), 0);
    /* from the upper left to the lower right one */
    CHECK_CONTAINS(line_at(1), "\u2502\u2809\u2812\u2812\u2824");
    CHECK_CONTAINS(line_at(3), "\u2812\u2824\u2824\u28c0");
    CHECK_CONTAINS(line_at(4), "\u2514\u2500\u2500");
}

TEST(runs_of_different_lengths_end_where_they_end)
{
    test_file("long.jsonl", BEGIN STEP(0, 1) STEP(8, 1));
    test_file("short.jsonl", BEGIN STEP(0, 0) STEP(4, 0));
    CHECK_INT(run("--width 31 --height 3 long.jsonl brief=short.jsonl"), 0);
    CHECK_TEXT(line_at(1), "       1 |*********************");
    CHECK_TEXT(line_at(3), "       0 |ooooooooooo");
    CHECK_CONTAINS(said, "o brief: 2 lines, loss 0\n");
}

TEST(losses_that_are_no_numbers_are_gaps_and_are_counted)
{
    test_file("nan.jsonl", BEGIN STEP(0, 1) STEP(5, null) STEP(9, 1));
    CHECK_INT(run("--width 31 --height 3 nan.jsonl"), 0);
    CHECK_TEXT(line_at(2), "     1.0 |*                   *");
    CHECK_CONTAINS(said, "* nan: 3 lines, loss 1; 1 without loss\n");
    test_file("all.jsonl", BEGIN STEP(0, null) STEP(5, null));
    CHECK_INT(run("all.jsonl"), 2);
    CHECK_CONTAINS(said, "there is nothing to draw yet");
}

/* --- what fleet-train writes ---------------------------------------------- */

#define SHOWN "--width 40 --height 4 --show loss,validation_auc,learning_rate"

TEST(json_and_csv_of_a_training_are_drawn_alike)
{
    const char *const both[] = {"metrics_log={\"path\":\"x\",\"steps\":1}",
                                "seed=3", "validate_every={}", NULL};
    const char *set[6] = {both[0], NULL, both[1], both[2], NULL};
    const char *json;

    set[1] = watch_path("metrics_log.path", "m.jsonl");
    fleet_free(watch_train(set));
    set[1] = watch_path("metrics_log.path", "m.csv");
    fleet_free(watch_train(set));
    CHECK_INT(run(SHOWN " m=m.jsonl"), 0);
    json = test_keep(said);
    CHECK_CONTAINS(json, "* m: 15 lines, loss ");
    CHECK_CONTAINS(json, "\nvalidation_auc\n");
    CHECK_CONTAINS(json, "; validations: a\n");
    CHECK_INT(run(SHOWN " m=m.csv"), 0);
    /* but for how fast it was */
    *strstr(strstr(said, "* m:"), "samples_per_s") = 0;
    *strstr(strstr(json, "* m:"), "samples_per_s") = 0;
    CHECK_TEXT(said, json);
}

TEST(the_last_run_of_a_file_is_drawn_or_each)
{
    test_file("two.jsonl",
              BEGIN STEP(1, 4)
                  STEP(2, 4) "{\"run\":\"beef000000000000\"}\n" STEP(1, 5)
                      STEP(2, 6) STEP(3, 7));
    CHECK_INT(run("--width 40 two.jsonl"), 0);
    CHECK_CONTAINS(said, "two.jsonl has 2 runs: the last one is drawn, --all");
    CHECK_CONTAINS(said, "* two: 3 lines, loss 7\n");
    CHECK_INT(run("--all two.jsonl"), 0);
    CHECK_CONTAINS(said, "* two 53f2: 2 lines, loss 4\n");
    CHECK_CONTAINS(said, "o two beef: 3 lines, loss 7\n");
}

TEST(curves_lie_over_steps_samples_or_seconds)
{
    test_file("a.jsonl", BEGIN STEP(1, 4) STEP(5, 3));
    CHECK_INT(run("--by samples a.jsonl"), 0);
    CHECK_CONTAINS(said, "15  samples\n");
    CHECK_INT(run("--by time a.jsonl"), 0);
    CHECK_CONTAINS(said, "4.5  seconds\n"); /* 1005 - 1000.5 */
    test_file("b.jsonl", BEGIN "{\"step\":1,\"loss\":3}\n");
    CHECK_INT(run("--by time b.jsonl"), 2);
    CHECK_CONTAINS(said, "b.jsonl:2: expected a number \"time\", got");
}

/* --- files that are no good ----------------------------------------------- */

TEST(a_line_that_is_being_written_is_left_out)
{
    test_file("half.jsonl", BEGIN STEP(1, 4) STEP(2, 3) "{\"step\":3,\"lo");
    CHECK_INT(run("half.jsonl"), 0);
    CHECK_CONTAINS(said, "half.jsonl: its last line is not whole: left out");
    CHECK_CONTAINS(said, "* half: 2 lines, loss 3\n");
}

static void check_refused(const char *name, const char *text, const char *words)
{
    test_file(name, text);
    CHECK_INT(run(name), 2);
    CHECK_CONTAINS(said, words);
}

#define HEAD                                                                   \
    "run,step,epoch,samples,samples_per_s,loss,learning_rate,"                 \
    "validation_loss,validation_auc,validation_logloss,validation_accuracy,"   \
    "validation_samples,time\n"

TEST(broken_files_are_refused_by_name_and_line)
{
    check_refused("e.jsonl", "", "e.jsonl is empty: expected lines of");
    check_refused("c.csv", HEAD, "c.csv is empty");
    check_refused("b.jsonl", BEGIN, "nothing to draw yet");
    check_refused("x.jsonl", BEGIN STEP(1, 4) "{\"step\":2,,}\n" STEP(3, 1),
                  "x.jsonl:3: expected a line of JSON, got \"{\"step\":2,,}\"");
    check_refused("t.jsonl", BEGIN "{\"step\":1,\"loss\":\"low\"}\n",
                  "t.jsonl:2: expected a number \"loss\", got");
    check_refused("s.jsonl", BEGIN "{\"loss\":1}\n",
                  "s.jsonl:2: expected a number \"step\"");
    check_refused("a.jsonl", BEGIN "[1,2]\n", "expected an object of JSON");
    check_refused("o.txt", "PK\x03\x04 zip\n",
                  "o.txt:1: expected a metrics_log");
    check_refused("r.csv", HEAD "53f2ab9d01c7e6a5,1,1\n",
                  "r.csv:2: expected a run and 12 numbers");
    check_refused("n.csv", HEAD "53f2ab9d01c7e6a5,1,1,9,,low,,,,,,,7\n",
                  "n.csv:2: expected a run and 12 numbers");
    CHECK_INT(run("none.jsonl"), 2);
    CHECK_CONTAINS(said, "cannot open none.jsonl: No such file");
    CHECK_INT(run("."), 2);
    CHECK_CONTAINS(said, "Is a directory");
}

TEST(a_line_without_an_end_and_a_zero_are_refused)
{
    static char text[80000];

    memset(text, 'x', sizeof text);
    memcpy(text, BEGIN, strlen(BEGIN));
    test_file_bytes("long.jsonl", text, sizeof text);
    CHECK_INT(run("long.jsonl"), 2);
    CHECK_CONTAINS(said, "long.jsonl:2: expected lines of at most 65,536");
    text[strlen(BEGIN) + 2] = 0;
    text[strlen(BEGIN) + 9] = '\n';
    test_file_bytes("zero.jsonl", text, 200);
    CHECK_INT(run("zero.jsonl"), 2);
    CHECK_CONTAINS(said, "zero.jsonl:2: expected text, got");
}

TEST(options_are_refused_by_name)
{
    test_file("a.jsonl", BEGIN STEP(1, 4));
    CHECK_INT(run("--show los a.jsonl"), 2);
    CHECK_CONTAINS(said, "got \"los\": did you mean \"loss\"?");
    CHECK_INT(run("--by epoch a.jsonl"), 2);
    CHECK_CONTAINS(said, "--by: expected one of step, samples, time, got");
    CHECK_INT(run("--width 0 a.jsonl"), 2);
    CHECK_CONTAINS(said, "--width: expected an integer from 1 to 10000");
    CHECK_INT(run(""), 2);
    CHECK_CONTAINS(said, "usage: fleet-plot");
    test_file("z.jsonl", BEGIN STEP(1, 0));
    CHECK_INT(run("--log z.jsonl"), 2);
    CHECK_CONTAINS(said, "--log: expected losses above 0");
}

/* What is wide by ten thousand lines stays: the one that is far away. */
TEST(a_very_long_file_keeps_its_extremes_in_little_memory)
{
    char command[900];

    snprintf(command, sizeof command,
             "cd '%s' && awk 'BEGIN { print \"{\\\"run\\\":\\\"7\\\"}\"; "
             "for (i = 1; i <= 70001; i++) print \"{\\\"step\\\":\" i "
             "\",\\\"loss\\\":\" (i == 33333 ? 9 : 1) \"}\" }' >big.jsonl",
             test_folder());
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(run("--width 80 --height 5 - <big.jsonl"), 0);
    CHECK_CONTAINS(line_at(1), "|                                 *");
    CHECK_CONTAINS(line_at(5), "**************************************");
    CHECK_CONTAINS(said, "* -: 70001 lines, loss 1\n");
}

/* --- pictures ------------------------------------------------------------- */

static void look(const char *file, const char *colours)
{
    const char *source = getenv("FLEET_SOURCE");
    char command[3000];

    if (!source || access("/usr/bin/python3", X_OK) != 0)
        test_skip("no FLEET_SOURCE, or no /usr/bin/python3");
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/test/tools/png_look.py' '%s/%s' %s 2>&1",
             source, test_folder(), file, colours);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
}

static void draw_png(const char *arguments)
{
    if (run(arguments) == 2 && strstr(said, "was built without libpng"))
        test_skip("fleet-plot was built without libpng");
    CHECK_CONTAINS(said, "lines, loss");
}

/* A panel of 400 x 160: from column 64 to 380, from row 56 to 152 or so. */
TEST(a_picture_has_each_curve_in_its_colour_at_its_place)
{
    int n, from, to, top, bottom;

    test_file("high.jsonl", BEGIN STEP(0, 1) STEP(8, 1));
    test_file("low.jsonl", BEGIN STEP(0, 0) STEP(4, 0));
    draw_png("--width 400 --height 160 -o a.png high.jsonl low.jsonl");
    look("a.png", "0072b2 d55e00 009e73");
    CHECK_TEXT(line_at(0), "400 x 200");
    CHECK_INT(sscanf(line_at(1), "0072b2 %d columns %d %d rows %d %d", &n,
                     &from, &to, &top, &bottom),
              5);
    CHECK(n > 300 && to > 375 && to < 385 && bottom < 70);
    CHECK_INT(sscanf(line_at(2), "d55e00 %d columns %d %d rows %d %d", &n,
                     &from, &to, &top, &bottom),
              5);
    CHECK(n > 150 && to > 215 && to < 225 && bottom > 140);
    CHECK_TEXT(line_at(3), "009e73 0 columns -1 -1 rows -1 -1");
}

TEST(a_gap_is_empty_in_a_picture_and_a_validation_is_dashed)
{
    int whole, gap, dashed, a, b, c, d;

    test_file("w.jsonl", BEGIN STEP(0, 1) STEP(4, 1) STEP(8, 1));
    draw_png("--width 400 --height 160 -o w.png w.jsonl");
    look("w.png", "0072b2");
    CHECK_INT(sscanf(line_at(1), "0072b2 %d columns %d %d rows %d %d", &whole,
                     &a, &b, &c, &d),
              5);
    test_file("g.jsonl", BEGIN STEP(0, 1) STEP(2, null) STEP(4, 1) STEP(8, 1));
    draw_png("--width 400 --height 160 -o g.png g.jsonl");
    look("g.png", "0072b2");
    CHECK_INT(sscanf(line_at(1), "0072b2 %d columns %d %d rows %d %d", &gap, &a,
                     &b, &c, &d),
              5);
    CHECK(gap > whole / 3 && gap < whole * 3 / 4);
    test_file("v.jsonl", BEGIN "{\"step\":0,\"validation_loss\":1}\n"
                               "{\"step\":8,\"validation_loss\":1}\n");
    CHECK_INT(run("--width 400 --height 160 -o v.png v.jsonl"), 0);
    look("v.png", "0072b2");
    CHECK_INT(sscanf(line_at(1), "0072b2 %d columns %d %d rows %d %d", &dashed,
                     &a, &b, &c, &d),
              5);
    CHECK(dashed > whole / 3 && dashed < whole * 3 / 4);
}

TEST(a_picture_that_cannot_be_written_is_named)
{
    test_file("a.jsonl", BEGIN STEP(1, 4));
    draw_png("-o a.png a.jsonl");
    CHECK_INT(run("-o none/a.png a.jsonl"), 2);
    CHECK_CONTAINS(said, "cannot make none/a.png: No such file");
    if (access("/dev/full", W_OK) == 0) {
        CHECK_INT(run("-o /dev/full a.jsonl"), 2);
        CHECK_CONTAINS(said, "cannot write /dev/full: No space left");
        CHECK(access("/dev/full", W_OK) == 0);
    }
}

/* As /dev/stdout is one, which would be gone for all. */
TEST(a_link_stays_where_a_picture_cannot_be_written)
{
    char command[3000], to[20];

    test_file("a.jsonl", BEGIN STEP(1, 4));
    draw_png("-o a.png a.jsonl");
    CHECK_INT(symlink("there.png", test_path("link.png")), 0);
    snprintf(command, sizeof command,
             "cd '%s' && trap '' XFSZ && ulimit -f 1 && '%s' -o link.png "
             "a.jsonl 2>&1",
             test_folder(), test_beside("fleet-plot"));
    CHECK_INT(test_shell(command, said, sizeof said), 2);
    CHECK_CONTAINS(said, "cannot write link.png: File too large");
    CHECK_INT(readlink(test_path("link.png"), to, sizeof to), 9);
}

TEST(numbers_that_are_too_large_to_draw_are_missing)
{
    test_file("a.jsonl", BEGIN STEP(1, 1e308) STEP(2, -1e308) STEP(3, 2));
    draw_png("-o a.png a.jsonl");
    CHECK_CONTAINS(said, "3 lines, loss 2; 2 without loss");
    test_file("a.jsonl", "{\"run\":\"a\",\"time\":null}\n" STEP(1, 2));
    draw_png("--by time -o a.png a.jsonl");
}
