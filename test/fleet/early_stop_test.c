/* early_stop_test.c - a training that ends as its validations improve no more,
 * the best of them kept; through checkpoints, and in a job. */
#define SUITE early_stop
#include "launch_kit.h"
#include "model_kit.h"
#include "test.h"
#include "watch_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

/* --- as a reference does -------------------------------------------------- */

enum { ALL = 12 }; /* batches of three passes */

static fleet_evaluation every[ALL]; /* validation after each of them */

/* So fast that it does not only get better. */
#define FAST "optimizer.learning_rate=0.2"

static const struct {
    const char *name;
    size_t at;
    int sign; /* 1: larger is better */
} metrics[] = {{"loss", offsetof(fleet_evaluation, loss), -1},
               {"logloss", offsetof(fleet_evaluation, logloss), -1},
               {"auc", offsetof(fleet_evaluation, auc), 1},
               {"accuracy", offsetof(fleet_evaluation, accuracy), 1}};

static double number_of(const fleet_evaluation *e, int metric)
{
    double x;

    memcpy(&x, (const char *)e + metrics[metric].at, sizeof x);
    return x * metrics[metric].sign;
}

/* The step that it stops at; *best: the last one that was better than all
 * before it. Keras's EarlyStopping, and its ModelCheckpoint. */
static int expected(int metric, int patience, double delta, int *best)
{
    double beats = -INFINITY, most = -INFINITY;
    int bad = 0;

    for (int i = 0; i < ALL; i++) {
        double x = number_of(&every[i], metric);

        if (x > most) {
            most = x;
            *best = i;
        }
        bad = x > beats + delta ? 0 : bad + 1;
        if (bad == 0)
            beats = x;
        if (bad == patience)
            return i + 1;
    }
    return ALL;
}

static int last_step(void)
{
    const char *at = watch_said, *last = NULL;

    while ((at = strstr(at, "validation in epoch ")))
        last = at++;
    CHECK(last != NULL);
    return atoi(strstr(last, "step ") + 5);
}

static void read_all(void)
{
    fleet_free(
        watch_train((const char *[]){"validate_every.steps=1", FAST, NULL}));
    CHECK_INT(watch_n_seen, ALL);
    memcpy(every, watch_seen, sizeof every);
}

static int check_case(int metric, int patience, double delta)
{
    char how[600], want[40], load[400];
    int best = 0, stop = expected(metric, patience, delta, &best);
    char *closing;

    snprintf(how, sizeof how,
             "validate_every={\"steps\":1,\"metric\":\"%s\",\"patience\":%d,"
             "\"min_delta\":%g,\"save_best\":\"%s\"}",
             metrics[metric].name, patience, delta, test_path("best"));
    closing = watch_train((const char *[]){how, FAST, NULL});
    CHECK_INT(last_step(), stop);
    CHECK_INT(strstr(watch_said, "stopped early in epoch") != NULL, stop < ALL);
    CHECK(test_json_value(closing, "\"auc\"") != NULL);
    fleet_free(closing);
    snprintf(load, sizeof load, "load=%s", test_path("best"));
    CHECK_OK(watch_act(FLEET_CONFIG_EVALUATE,
                       (const char *[]){load, FAST, NULL}, &closing));
    snprintf(want, sizeof want, "\"auc\":%.6g", every[best].auc);
    CHECK_TEXT(test_json_value(closing, "\"auc\""), want);
    fleet_free(closing);
    return stop;
}

TEST(it_stops_and_keeps_the_best_as_a_reference_does)
{
    int early = 0;

    read_all();
    for (int metric = 0; metric < 4; metric++) {
        early += check_case(metric, 1, 0) < ALL;
        early += check_case(metric, 2, metric == 3 ? 0.02 : 0.005) < ALL;
    }
    CHECK(early > 3);
    CHECK(check_case(2, 12, 1) == ALL); /* the best is by less than that */
}

/* --- where it stops ------------------------------------------------------- */

/* No number is ever better by so much: the first one is, and `patience` more
 * are not. */
#define NEVER "validate_every.min_delta=1e9"

TEST(it_ends_with_its_evaluation_and_its_save)
{
    char *closing = watch_train(
        (const char *[]){"validate_every.steps=3", "validate_every.patience=1",
                         NEVER, watch_path("save", "end"), NULL});

    CHECK_INT(last_step(), 6);
    CHECK_CONTAINS(watch_said, "stopped early in epoch 2, step 6: in 1 "
                               "validations in a row loss was no better than "
                               "0.");
    CHECK(strstr(watch_said, "--resume goes on from") == NULL);
    CHECK(access(test_path("end/manifest.json"), F_OK) == 0);
    CHECK_INT(closing[0], '{');
    fleet_free(closing);
}

TEST(after_passes_it_stops_between_two)
{
    char *closing =
        watch_train((const char *[]){"validate_every.patience=1", NEVER,
                                     watch_path("metrics_log", "m"), NULL});
    char *short_one = watch_train((const char *[]){"epochs=2", NULL});

    CHECK_TEXT(test_json_value(closing, "\"params_hash\""),
               test_json_value(short_one, "\"params_hash\""));
    CHECK_TEXT(test_json_value(closing, "\"loss\""),
               test_json_value(short_one, "\"loss\""));
    fleet_free(closing);
    fleet_free(short_one);
}

/* --- through checkpoints -------------------------------------------------- */

static char *train_saved(const char *patience, const char *metric)
{
    return watch_train((const char *[]){
        "validate_every.steps=2", NEVER, watch_path("save_every.folder", "all"),
        "save_every.steps=1", "save_every.keep=100", patience, metric, NULL});
}

/* At 2 the first validation, at 4, 6 and 8 no better ones. */
TEST(what_it_has_borne_is_in_checkpoints)
{
    char *want = train_saved("validate_every.patience=3", NULL), *line;
    const char *hash = test_keep(test_json_value(want, "\"params_hash\""));

    CHECK_INT(last_step(), 8);
    watch_resumes = 1;
    line = train_saved("validate_every.patience=3", NULL); /* it is over */
    CHECK(strstr(watch_said, "validation in epoch") == NULL);
    CHECK_TEXT(test_json_value(line, "\"params_hash\""), hash);
    CHECK_TEXT(test_json_value(line, "\"loss\""),
               test_json_value(want, "\"loss\""));
    fleet_free(line);
    watch_forget(5);
    line = train_saved("validate_every.patience=3", NULL);
    CHECK_INT(last_step(), 8);
    CHECK_TEXT(test_json_value(line, "\"params_hash\""), hash);
    fleet_free(line);
    line = train_saved("validate_every.patience=4", NULL); /* one more */
    CHECK_INT(last_step(), 10);
    fleet_free(line);
    watch_forget(7);
    line =
        train_saved("validate_every.patience=2",
                    "validate_every.metric=auc"); /* of which none is known */
    CHECK_INT(last_step(), 12);
    fleet_free(line);
    fleet_free(want);
}

/* As after a process that was started again in the middle of a job. */
TEST(a_best_save_stays_until_a_better_one_where_nothing_else_is_known)
{
    const char *best = watch_path("validate_every.save_best", "best");
    const char *all = watch_path("save_every.folder", "all");
    char *old, *now;
    size_t n, m;

    fleet_free(watch_train(
        (const char *[]){"validate_every.metric=loss", best, "epochs=8",
                         "optimizer.learning_rate=0.02", NULL}));
    fleet_free(watch_train(
        (const char *[]){all, "save_every.steps=4", "epochs=1", NULL}));
    CHECK_OK(fl_file_read(test_path("best/manifest.json"), &old, &n));
    watch_resumes = 1;
    fleet_free(watch_train(
        (const char *[]){all, "save_every.steps=4", best, "epochs=2", NULL}));
    CHECK_CONTAINS(watch_said, "validation in epoch 2");
    CHECK_OK(fl_file_read(test_path("best/manifest.json"), &now, &m));
    CHECK(n == m && memcmp(old, now, n) == 0);
    fl_free(old);
    fl_free(now);
}

static char *train_watched(const char *a, const char *b, const char *c)
{
    return watch_train((const char *[]){watch_path("save_every.folder", "all"),
                                        "save_every.steps=1",
                                        "save_every.keep=100", a, b, c, NULL});
}

/* So fast that nothing is better from there on. */
TEST(a_folder_that_is_not_there_gets_the_next_one)
{
    fleet_free(train_watched("epochs=1", "validate_every.patience=9", NULL));
    watch_resumes = 1;
    fleet_free(train_watched("optimizer.learning_rate=3",
                             "validate_every.patience=9",
                             watch_path("validate_every.save_best", "best")));
    CHECK(access(test_path("best/manifest.json"), F_OK) == 0);
}

/* A worker that is started again makes the calls again that the process before
 * it has made at the end of the pass. */
TEST(the_best_save_of_a_pass_that_ends_again_is_made_again)
{
    const char *best = watch_path("validate_every.save_best", "best");

    fleet_free(watch_train((const char *[]){"epochs=1", best, NULL}));
    fleet_free(train_watched("epochs=1", NULL, NULL));
    watch_forget(4);
    watch_resumes = 1;
    fleet_free(train_watched("epochs=1", best, NULL));
    CHECK_CONTAINS(watch_said, "validation in epoch 1");
    CHECK_CONTAINS(watch_said, "the best one so far is saved");
}

TEST(a_training_that_begins_anew_has_borne_nothing)
{
    fleet_free(
        watch_train((const char *[]){"validate_every.patience=1", NEVER,
                                     watch_path("save", "first"), NULL}));
    CHECK_CONTAINS(watch_said, "stopped early");
    fleet_free(train_watched("epochs=1", watch_path("load", "first"), NULL));
    watch_resumes = 1;
    fleet_free(train_watched("epochs=2", "validate_every.patience=1", NEVER));
    CHECK_CONTAINS(watch_said, "validation in epoch 2");
}

/* --- refused -------------------------------------------------------------- */

TEST(what_would_do_nothing_is_refused)
{
    watch_refuse("validate_every.metric=auc", NULL,
                 "validate_every.metric: expected nothing: there is no "
                 "patience or save_best");
    watch_refuse("validate_every.min_delta=0.1", NULL,
                 "validate_every.min_delta: expected nothing: there is no "
                 "patience");
    watch_refuse("save=a", "validate_every.save_best=a",
                 "validate_every.save_best: expected another folder than "
                 "that of `save`");
    watch_refuse("save_every.folder=a", "validate_every.save_best=a",
                 "validate_every.save_best: expected another folder than "
                 "that of the checkpoints of `save_every`");
    watch_refuse("save=a", "save_every.folder=a",
                 "save_every.folder: expected another folder than that of "
                 "`save`");
    watch_refuse("validate_every.patience=0", NULL,
                 "validate_every.patience: expected an integer from 1 to");
    watch_refuse("validate_every={\"patience\":1,\"metric\":\"recall\"}", NULL,
                 "validate_every.metric: expected one of \"loss\", \"auc\", "
                 "\"logloss\", \"accuracy\"");
}

TEST(a_metric_of_two_classes_is_refused_for_more)
{
    static const char text[] =
        "{\"model\": {\"type\": \"mlp\", \"classes\": 5}, \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"%s\"], \"test\": "
        "[\"%s\"]}, \"slots\": [{\"name\": \"x\", \"type\": \"float\", "
        "\"dim\": 2}, {\"name\": \"y\", \"type\": \"uint64\", \"role\": "
        "\"label\"}], \"validate_every\": {\"patience\": 1, \"metric\": "
        "\"%s\"}}";
    const char *data = test_file("d.txt", "2 0.1 0.2 1 4\n2 0.3 0.1 1 2\n");
    static const char *const name[] = {"auc", "logloss", "accuracy", "loss"};
    const fleet_config_options o = {.action = FLEET_CONFIG_CHECK};
    char all[2000], want[100];
    char *line;

    for (int i = 0; i < 4; i++) {
        snprintf(all, sizeof all, text, data, data, name[i]);
        snprintf(want, sizeof want, "\"accuracy\" of 5 classes, got \"%s\"",
                 name[i]);
        if (i < 2)
            CHECK_FAILS(
                fleet_train_from_config(test_file("c.json", all), &o, &line),
                FLEET_ECONFIG, want);
        else
            CHECK_OK(
                fleet_train_from_config(test_file("c.json", all), &o, &line));
        fleet_free(line);
    }
}

/* --- a job ---------------------------------------------------------------- */

static const char *job_config(void)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 4, \"strategy\": {\"a_sync\": false}, "
        "\"dataset\": {\"format\": \"multislot\", \"train\": [\"%s\"], "
        "\"test\": [\"%s\"], \"batch_size\": 16}, \"slots\": [{\"name\": "
        "\"y\", \"type\": \"float\", \"role\": \"label\"}, {\"name\": "
        "\"dense\", \"type\": \"float\", \"dim\": 3}, {\"name\": \"u\", "
        "\"type\": \"uint64\"}, {\"name\": \"v\", \"type\": \"uint64\"}, "
        "{\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}], "
        "\"validate_every\": {\"steps\": 5, \"patience\": 1, \"min_delta\": "
        "1e9, \"save_best\": \"%s\"}, \"save\": \"%s\"}";
    char all[4000];

    snprintf(all, sizeof all, text, scene_file("train.txt", SCENE_LINES, 1),
             scene_file("test.txt", 60, 2), test_path("best"),
             test_path("model"));
    return test_file("config.json", all);
}

static const char *run_job(const char *option)
{
    char script[5000];

    snprintf(script, sizeof script, "exec '%s' %s '%s'",
             test_beside("fleet-train"), option, job_config());
    if (launch_run("--server_num 1 --worker_num 2", script) != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_err());
    return test_keep(launch_out());
}

/* Both with the update behind the second validation, or the one that is under
 * way then; and it is over for both. */
TEST(workers_in_sync_stop_after_the_same_update)
{
    const char *line, *again, *at;
    char both[100];

    line = run_job("");
    at = strstr(launch_log("workerlog.1"), "stopped early in epoch ");
    CHECK(at != NULL);
    snprintf(both, sizeof both, "%.*s", (int)strcspn(at, ","), at);
    at = strstr(at, "step ");
    CHECK(atoi(at + 5) == 11);
    CHECK_CONTAINS(launch_log("workerlog.0"), both);
    CHECK_CONTAINS(launch_log("workerlog.0"), "step 11: in 1 validations");
    CHECK(access(test_path("best/manifest.json"), F_OK) == 0);
    CHECK(access(test_path("model/manifest.json"), F_OK) == 0);
    again = run_job("--resume");
    CHECK_TEXT(test_json_value(again, "\"params_hash\""),
               test_json_value(line, "\"params_hash\""));
    CHECK_TEXT(test_json_value(again, "\"loss\""), "\"loss\":null");
    CHECK(strstr(launch_log("workerlog.0"), "validation in epoch") == NULL);
}
