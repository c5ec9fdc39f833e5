/* validation_test.c - a configuration's training is evaluated while it goes on:
 * when, with which weights, on which files; and goes on as without that. */
#define SUITE validation
#include "model_kit.h"
#include "test.h"
#include "watch_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

/* The steps of validations, as the log has them: " 5 10". */
static const char *steps_said(void)
{
    static char steps[400];

    *steps = 0;
    for (const char *at = watch_said;
         (at = strstr(at, "validation in epoch "));) {
        size_t n = strlen(steps);

        at = strstr(at, "step ") + 5;
        snprintf(steps + n, sizeof steps - n, " %ld", strtol(at, NULL, 10));
    }
    return steps;
}

/* --- when ----------------------------------------------------------------- */

static void check_steps(const char *a, const char *b, const char *steps)
{
    char *line = watch_train((const char *[]){a, b, NULL});

    CHECK_TEXT(steps_said(), steps);
    fleet_free(line);
}

TEST(each_so_many_batches_or_after_each_pass)
{
    check_steps("epochs=3", NULL, "");
    check_steps("validate_every={}", NULL, " 4 8 12");
    check_steps("validate_every.steps=5", NULL, " 5 10");
    check_steps("validate_every.steps=12", NULL, " 12");
    check_steps("validate_every.steps=13", NULL, "");
}

/* The sums of a group are of no update yet. */
TEST(in_no_merge_group)
{
    check_steps("validate_every.steps=3",
                "strategy={\"gradient_merge\":true,\"gradient_merge_configs\":"
                "{\"k_steps\":2}}",
                " 4 8 12");
}

TEST(once_in_a_round_of_trainer_threads)
{
    check_steps("validate_every.steps=1", "trainer.thread=2", " 2 4 6 8 10 12");
}

/* --- what ----------------------------------------------------------------- */

static const char *saves_text(const char *name)
{
    char text[400];

    snprintf(text, sizeof text, "save_every.folder=%s", test_path(name));
    return test_keep(text);
}

/* What a checkpoint of that batch gives. */
TEST(it_is_of_the_weights_of_then)
{
    char *line = watch_train((const char *[]){"validate_every.steps=5",
                                              "save_every.steps=5",
                                              saves_text("all"), NULL});
    fleet_evaluation first = watch_seen[0], second = watch_seen[1];

    CHECK_INT(watch_n_seen, 2);
    CHECK_INT(first.samples, 60);
    fleet_free(line);
    for (int i = 1; i <= 2; i++) {
        const fleet_evaluation *v = i == 1 ? &first : &second;
        char load[400], want[40];

        snprintf(load, sizeof load, "load=%s/checkpoint-%06d", test_path("all"),
                 i);
        CHECK_OK(watch_act(FLEET_CONFIG_EVALUATE, (const char *[]){load, NULL},
                           &line));
        snprintf(want, sizeof want, "\"auc\":%.6g", v->auc);
        CHECK_TEXT(test_json_value(line, "\"auc\""), want);
        snprintf(want, sizeof want, "\"logloss\":%.6g", v->logloss);
        CHECK_TEXT(test_json_value(line, "\"logloss\""), want);
        CHECK(fabs(v->loss - v->logloss) < 1e-3); /* whose epsilon is 1e-4 */
        fleet_free(line);
    }
}

TEST(a_training_that_is_watched_is_the_same_one)
{
    char *alone = watch_train(NULL);
    char *watched =
        watch_train((const char *[]){"validate_every.steps=1", NULL});

    CHECK_INT(watch_n_seen, 12);
    CHECK_TEXT(test_json_value(watched, "\"params_hash\""),
               test_json_value(alone, "\"params_hash\""));
    CHECK_TEXT(test_json_value(watched, "\"loss\""),
               test_json_value(alone, "\"loss\""));
    CHECK_TEXT(test_json_value(watched, "\"auc\""),
               test_json_value(alone, "\"auc\""));
    fleet_free(alone);
    fleet_free(watched);
}

TEST(files_of_its_own_come_before_those_of_the_test)
{
    char set[400];
    char *line;

    snprintf(set, sizeof set, "dataset.validation=[\"%s\"]",
             scene_file("held.txt", 40, 3));
    line = watch_train((const char *[]){"validate_every={}", set, NULL});
    CHECK_INT(watch_n_seen, 3);
    CHECK_INT(watch_seen[2].samples, 40);
    CHECK(fabs(watch_seen[2].auc - atof(test_json_value(line, "\"auc\"") + 6)) >
          1e-4);
    fleet_free(line);
}

/* --- what fails ----------------------------------------------------------- */

TEST(what_cannot_be_read_ends_the_training_by_name)
{
    char set[400];
    char *line;

    snprintf(set, sizeof set, "dataset.validation=[\"%s\"]",
             test_file("bad.txt", "1 1 3 0.1 0.2 0.3 1 5 1 x 0\n"));
    CHECK_FAILS(watch_act(FLEET_CONFIG_CHECK,
                          (const char *[]){"validate_every={}", set, NULL},
                          &line),
                FLEET_EFORMAT, "bad.txt:1");
    CHECK_FAILS(watch_act(FLEET_CONFIG_TRAIN,
                          (const char *[]){"validate_every.steps=2", set, NULL},
                          &line),
                FLEET_EFORMAT, "validate_every: ");
    CHECK_CONTAINS(fleet_last_error(), "bad.txt:1");
    CHECK(line == NULL);
}

TEST(what_would_do_nothing_is_refused)
{
    watch_refuse("dataset.validation=[\"a\"]", NULL,
                 "dataset.validation: expected nothing: there is no "
                 "`validate_every`");
    watch_refuse("validate_every={}",
                 "dataset={\"format\":\"multislot\",\"train\":[\"a\"]}",
                 "dataset.validation: expected files: `validate_every` "
                 "evaluates them, or those of `test`");
    watch_refuse("validate_every.steps=0", NULL,
                 "validate_every.steps: expected an integer from 1 to");
    watch_refuse("validate_every.step=1", NULL, "did you mean \"steps\"?");
    watch_refuse("validate_every=100", NULL,
                 "validate_every: expected an "
                 "object");
}
