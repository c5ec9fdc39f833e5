/* fleet_predict_test.c - fleet-predict: Adult scored from its csv as its
 * training evaluates it; words that it refuses. */
#define _GNU_SOURCE
#define SUITE fleet_predict
#include "lines_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADULT "samples/data/adult/adult.test.first13025.gz"

/* All that it says; how it ends. */
static int run(const char *arguments, char *said, size_t size)
{
    char command[9000];

    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>&1",
             getenv("FLEET_SOURCE"), test_beside("fleet-predict"), arguments);
    return test_shell(command, said, size);
}

static const char *train_adult(const char *rest)
{
    char command[4000], line[2000], *last;

    snprintf(command, sizeof command,
             "cd '%s' && '%s' samples/configs/adult-wide-deep.json "
             "dataset.train[0]=" ADULT " epochs=1 save='%s' %s 2>/dev/null",
             getenv("FLEET_SOURCE"), test_beside("fleet-train"),
             test_path("model"), rest);
    CHECK_INT(test_shell(command, line, sizeof line), 0);
    last = strchr(line, '{');
    CHECK(last != NULL);
    return test_keep(last);
}

/* The line of the evaluation has what the closing line has. */
TEST(adult_is_scored_from_its_csv_as_the_training_evaluates_it)
{
    static const char *const keys[] = {"\"auc\"", "\"logloss\"",
                                       "\"accuracy\""};
    const char *closing = train_adult("");
    char arguments[4000], said[2000], again[2000];
    static float score[13025];

    snprintf(arguments, sizeof arguments, "'%s' " ADULT " --evaluate -o '%s'",
             test_path("model"), test_path("scores"));
    CHECK_INT(run(arguments, said, sizeof said), 0);
    CHECK_CONTAINS(said, "{\"samples\":13025,");
    for (int i = 0; i < 3; i++)
        CHECK_TEXT(test_json_value(said, keys[i]),
                   test_json_value(closing, keys[i]));
    CHECK_INT(lines_scores(test_path("scores"), score, 13025), 13025);
    snprintf(arguments, sizeof arguments,
             "'%s' - --threads 1 --batch-size 100 --pipe-command 'gzip -dc' "
             "--evaluate <" ADULT,
             test_path("model"));
    CHECK_INT(run(arguments, again, sizeof again), 0);
    CHECK_TEXT(again, said);
}

TEST(scores_go_to_standard_output_and_lines_come_from_standard_input)
{
    char arguments[4000], said[2000];

    train_adult("");
    snprintf(arguments, sizeof arguments,
             "'%s' - -o - --header --no-label <<'END'\n"
             "25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, "
             "Own-child, Black, Male, 0, 0, 40, United-States\n"
             "END\n",
             test_path("model"));
    CHECK_INT(run(arguments, said, sizeof said), 0);
    CHECK_CONTAINS(said, "\n0.");
    snprintf(arguments, sizeof arguments, "'%s' - -o - <'%s'",
             test_path("model"), test_file("bad", "25, x\n"));
    CHECK_INT(run(arguments, said, sizeof said), 1);
    CHECK_CONTAINS(said,
                   "fleet-predict: -:1: expected 3 cells or more (2 here)");
}

TEST(slots_are_listed_by_what_the_model_has_from_them)
{
    char arguments[4000], said[4000], *at = said;
    double before = 1;
    int n = 0;

    train_adult("");
    snprintf(arguments, sizeof arguments,
             "'%s' " ADULT " --importance --seed 5", test_path("model"));
    CHECK_INT(run(arguments, said, sizeof said), 0);
    CHECK(strncmp(said, "{\"samples\":13025,", 17) == 0);
    while ((at = strstr(at, "\"auc_drop\":")) != NULL) {
        double x = strtod(at += 11, NULL);

        CHECK(x <= before);
        before = x;
        n++;
    }
    CHECK_INT(n, 9);
}

static void refuse(const char *arguments, int how, const char *words)
{
    char said[9000];

    CHECK_INT(run(arguments, said, sizeof said), how);
    CHECK_CONTAINS(said, words);
}

TEST(words_that_make_no_sense_get_the_usage)
{
    static const char usage[] = "usage: fleet-predict [OPTION]... MODEL";

    refuse("", 2, "expected MODEL and DATA");
    refuse("m -o x", 2, usage);
    refuse("m d", 2, "expected -o FILE, or --evaluate");
    refuse("m d -o - --evaluate", 2, "would both write to standard output");
    refuse("m d --evaluate --no-label", 2, "--evaluate needs the label");
    refuse("m d -o x --importance", 2, "--importance writes no scores");
    refuse("m d -o x --seed 1", 2, "--seed is for --importance");
    refuse("m d --importance --seed x", 2, usage);
    refuse("m d -o x --threads 0", 2, usage);
    refuse("m d -o x --threads 65", 2, usage);
    refuse("m d -o x --batch-size 1x", 2, usage);
    refuse("m d -o x --names ,", 2, usage);
    refuse("m d -o x --nonsense", 2, usage);
    refuse("/nowhere/model d -o x", 1, "fleet-predict: ");
    refuse("/nowhere/model d -o x", 1, "/nowhere/model");
}

TEST(help_and_version_end_well)
{
    char said[9000], want[100];

    CHECK_INT(run("--help", said, sizeof said), 0);
    CHECK_CONTAINS(said, "usage: fleet-predict [OPTION]... MODEL DATA...");
    CHECK_INT(run("--version", said, sizeof said), 0);
    snprintf(want, sizeof want, "fleet-predict %s\n", fleet_version());
    CHECK_TEXT(said, want);
}
