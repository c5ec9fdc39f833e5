/* plateau_test.c - a learning rate that falls when a metric stops improving: as
 * PyTorch's ReduceLROnPlateau (schedule_ref.py), through checkpoints, in a
 * configuration; what is refused. */
#define SUITE plateau
#include "golden.h"
#include "model_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/config/config_internal.h"
#include "fleet/job/handle.h"
#include "runtime/optim/optimizer.h"

static fleet *handle(void)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    return f;
}

/* --- against PyTorch ------------------------------------------------------ */

static fleet_optimizer *optimizer_of(fleet *f, const char *how, bool maximize)
{
    fleet_optimizer *o;
    char text[600];
    fl_config c;

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": {\"type\": "
             "\"sgd\", \"learning_rate\": 0.1, \"plateau\": %s}, \"dataset\": "
             "{\"format\": \"criteo\", \"train\": [\"a\"]}}",
             how);
    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    c.optimizer.plateau.maximize = maximize;
    o = fl_config_make_optimizer(f, &c.optimizer);
    CHECK(o != NULL);
    fl_config_done(&c);
    return o;
}

static int check_case(const char *how, bool maximize, const char *metrics,
                      const char *rates)
{
    fleet *f = handle();
    fleet_optimizer *o = optimizer_of(f, how, maximize);
    int times = 0, n = 0;

    for (char *a, *b;; metrics = a, rates = b, n++) {
        double metric = strtod(metrics, &a), want = strtod(rates, &b);
        float before = o->learning_rate, got = 0;
        int reduced = 2;

        if (a == metrics)
            break;
        CHECK_OK(fleet_optimizer_report_metric(o, metric, &reduced));
        CHECK_OK(fleet_optimizer_get_learning_rate(o, &got));
        if (!(fabs((double)got - want) <= 1e-5 * want))
            test_fail(__FILE__, __LINE__, "%s: %g after report %d, not %g", how,
                      (double)got, n, want);
        CHECK_INT(reduced, got < before);
        times += reduced;
    }
    CHECK(n > 50);
    fleet_destroy(f);
    return times;
}

TEST(rates_fall_as_pytorchs_do)
{
    char *text = golden_read("schedules.txt"), *line;
    int n = 0;

    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *metrics;
        char mode[8];

        if (sscanf(line, "plateau 0.1 %7s", mode) != 1)
            continue;
        metrics = strtok(NULL, "\n");
        CHECK(check_case(strchr(line, '{'), strcmp(mode, "max") == 0, metrics,
                         strtok(NULL, "\n")) > 1);
        n++;
    }
    CHECK_INT(n, 5);
    fl_free(text);
}

/* --- with schedules ------------------------------------------------------- */

TEST(it_is_the_schedules_rate_that_falls)
{
    const fleet_plateau_options now = {.factor = 0.5f, .patience = -1};
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);
    float rate;

    CHECK_OK(fleet_optimizer_set_schedule(
        o, &(fleet_schedule){.warmup_steps = 4, .warmup_start = 0.5f}));
    CHECK_OK(fleet_optimizer_set_plateau(o, &now));
    CHECK_OK(fleet_optimizer_report_metric(o, 1, NULL));
    CHECK_OK(fleet_optimizer_report_metric(o, 1, NULL));
    CHECK_OK(fleet_optimizer_get_learning_rate(o, &rate));
    CHECK(rate == 0.125f);
    CHECK_OK(fleet_optimizer_set_learning_rate(o, 2));
    CHECK_OK(fleet_optimizer_report_metric(o, 1, NULL));
    CHECK_OK(fleet_optimizer_get_learning_rate(o, &rate));
    CHECK(rate == 0.5f);
    fleet_destroy(f);
}

/* --- through checkpoints -------------------------------------------------- */

static void open_falling(scene *s)
{
    scene_open(s, &(fleet_options){.seed = 5, .num_threads = 1}, "adam");
    scene_data(s, scene_file("a.txt", 100, 1), 32, 1, 0);
    CHECK_OK(fleet_optimizer_set_plateau(
        s->p->training.optimizer,
        &(fleet_plateau_options){.patience = 1, .cooldown = 1}));
}

static void report(scene *s, const double *metric, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(fleet_optimizer_report_metric(s->p->training.optimizer,
                                               metric[i], NULL));
        scene_train(s, 1);
    }
}

/* Reduced at the third, then one cools, and one is borne: each of them is in
 * the checkpoint. */
TEST(a_training_that_resumes_has_reported_what_was_reported)
{
    static const double metric[] = {2, 2, 2, 3, 2, 2, 2, 1, 1, 1, 1};
    enum { ALL = sizeof metric / sizeof *metric };
    uint64_t whole;
    scene s;

    open_falling(&s);
    report(&s, metric, ALL);
    whole = scene_hash(&s);
    scene_close(&s);
    for (int cut = 1; cut < ALL; cut += 2) {
        open_falling(&s);
        report(&s, metric, cut);
        CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
        scene_close(&s);
        open_falling(&s);
        s.e = fleet_executor_create(s.p, NULL);
        CHECK_OK(fleet_load_model(s.f, test_path("saved")));
        report(&s, metric + cut, ALL - cut);
        if (scene_hash(&s) != whole)
            test_fail(__FILE__, __LINE__, "cut after %d reports", cut);
        scene_close(&s);
    }
}

static float rate_of(const scene *s)
{
    float rate = 0;

    CHECK_OK(
        fleet_optimizer_get_learning_rate(s->p->training.optimizer, &rate));
    return rate;
}

/* The best metric of before, 1, would be better than each of these. */
TEST(a_save_from_before_the_first_report_has_none)
{
    scene s;
    float first;

    open_falling(&s);
    first = rate_of(&s);
    scene_train(&s, 1);
    CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
    report(&s, (double[]){1, 1, 1}, 3);
    CHECK(rate_of(&s) < first);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    CHECK(rate_of(&s) == first);
    report(&s, (double[]){2, 2}, 2);
    CHECK(rate_of(&s) == first);
    report(&s, (double[]){2}, 1);
    CHECK(rate_of(&s) < first);
    scene_close(&s);
}

/* Patience is 1: reduced behind two that are worse, whatever is unknown between
 * them. */
TEST(a_metric_that_is_not_known_counts_and_changes_nothing)
{
    fl_plateau *p;
    scene s;
    float first;

    open_falling(&s);
    first = rate_of(&s);
    p = &s.p->training.optimizer->plateau;
    fl_plateau_pass_by(p);
    scene_train(&s, 1);
    CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    CHECK_INT(p->seen.reports, 1);
    report(&s, (double[]){9, 9}, 2);
    CHECK(p->seen.best == 9);
    CHECK_INT(p->seen.bad, 1);
    fl_plateau_pass_by(p);
    CHECK_INT(p->seen.reports, 4);
    CHECK_INT(p->seen.bad, 1);
    CHECK(rate_of(&s) == first);
    report(&s, (double[]){9}, 1);
    CHECK(rate_of(&s) < first);
    scene_close(&s);
}

TEST(another_executor_leaves_what_was_reported)
{
    fleet_executor *other;
    scene s;
    float fallen;

    open_falling(&s);
    report(&s, (double[]){1, 1, 1}, 3);
    fallen = rate_of(&s);
    other = fleet_executor_create(s.p, NULL);
    CHECK(rate_of(&s) == fallen);
    CHECK_INT(s.p->training.optimizer->plateau.seen.reports, 3);
    fleet_executor_destroy(other);
    scene_close(&s);
}

TEST(an_optimizer_without_a_plateau_leaves_what_a_checkpoint_has_of_one)
{
    scene s;

    open_falling(&s);
    report(&s, (double[]){1, 1, 1}, 3);
    CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
    CHECK_OK(fleet_optimizer_set_plateau(s.p->training.optimizer, NULL));
    CHECK_OK(fleet_optimizer_set_learning_rate(s.p->training.optimizer, 0.5f));
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    CHECK(rate_of(&s) == 0.5f);
    scene_close(&s);
}

/* --- a configuration ------------------------------------------------------ */

static char said[4000];

static void hear(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(said);

    (void)user, (void)level;
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

/* No loss is ever better by so much. */
static char *train_epochs(int epochs, const char *save_every, int resume)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": %d, \"optimizer\": {\"type\": \"sgd\", "
        "\"learning_rate\": 0.5, \"plateau\": {\"patience\": 1, \"threshold\": "
        "1e9, \"absolute\": true, \"factor\": 0.25}}, \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"%s\"], \"batch_size\": 32}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
        "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": "
        "-1}]%s}";
    const fleet_config_options o = {
        .log = hear, .log_level = FLEET_LOG_INFO, .resume = resume};
    char all[3000], *line = NULL;

    snprintf(all, sizeof all, text, epochs, scene_file("train.txt", 100, 1),
             save_every);
    *said = 0;
    CHECK_OK(fleet_train_from_config(test_file("c.json", all), &o, &line));
    return line;
}

/* 4 batches a pass: checkpoints at the ends of passes are written before their
 * losses are reported, all but the one at the very end, with which it goes on
 * first, and then, as after a crash, without. */
TEST(a_configured_training_falls_and_resumes_where_it_was)
{
    char every[500], remove[500], out[500], *path, *whole, *resumed;

    whole = train_epochs(5, "", 0);
    CHECK_CONTAINS(said, "the loss of 2 passes has not improved: the learning "
                         "rate is 0.125");
    CHECK_CONTAINS(said, "the learning rate is 0.03125");
    for (int crash = 0; crash < 2; crash++) {
        snprintf(every, sizeof every,
                 ", \"save_every\": {\"folder\": \"%s\", \"steps\": 4}",
                 test_path(crash ? "crash" : "all"));
        fleet_free(train_epochs(3, every, 0));
        CHECK_OK(
            fleet_newest_checkpoint(test_path(crash ? "crash" : "all"), &path));
        snprintf(remove, sizeof remove, "rm -r %s", path);
        if (crash)
            CHECK_INT(test_shell(remove, out, sizeof out), 0);
        resumed = train_epochs(5, every, 1);
        CHECK_TEXT(test_json_value(resumed, "\"params_hash\""),
                   test_json_value(whole, "\"params_hash\""));
        CHECK(crash == (strstr(said, "the learning rate is 0.125") != NULL));
        fleet_free(resumed);
        fleet_free(path);
    }
    fleet_free(whole);
}

/* A training that begins anew with what another one has saved reports its own
 * losses from its first pass on. */
TEST(a_training_that_begins_with_a_save_falls_from_its_first_passes_on)
{
    char more[500];

    snprintf(more, sizeof more, ", \"save\": \"%s\"", test_path("first"));
    fleet_free(train_epochs(4, more, 0));
    CHECK_CONTAINS(said, "the learning rate is 0.125");
    snprintf(more, sizeof more, ", \"load\": \"%s\"", test_path("first"));
    fleet_free(train_epochs(3, more, 0));
    CHECK_CONTAINS(said, "the learning rate is 0.03125");
}

/* --- refused -------------------------------------------------------------- */

static void check_refused(const fleet_plateau_options *p, const char *words)
{
    fleet *f = handle();

    CHECK_FAILS(fleet_optimizer_set_plateau(fleet_sgd(f, 1), p), FLEET_EINVAL,
                words);
    fleet_destroy(f);
}

TEST(impossible_plateaus_are_refused)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 1), *own = fleet_sgd(f, 1);
    const fleet_plateau_options plain = {0};

    check_refused(&(fleet_plateau_options){.factor = 1},
                  "plateau: factor: 1 is out of range");
    check_refused(&(fleet_plateau_options){.factor = NAN}, "factor: nan");
    check_refused(&(fleet_plateau_options){.cooldown = -1}, "cooldown: -1");
    check_refused(&(fleet_plateau_options){.least = -1}, "least: -1");
    check_refused(&(fleet_plateau_options){.threshold = NAN}, "threshold: nan");
    CHECK_FAILS(fleet_optimizer_report_metric(o, 1, NULL), FLEET_ESTATE,
                "fleet_optimizer_set_plateau() was not called");
    CHECK_FAILS(fleet_optimizer_report_metric(NULL, 1, NULL), FLEET_EINVAL,
                "no optimizer");
    CHECK_OK(fleet_optimizer_set_plateau(o, &plain));
    CHECK_FAILS(fleet_optimizer_report_metric(o, NAN, NULL), FLEET_EINVAL,
                "the metric nan is not finite");
    CHECK_FAILS(fleet_optimizer_set_piecewise_decay(o, (int64_t[]){1},
                                                    (float[]){1, 2}, 1),
                FLEET_EINVAL, "plateau: the schedule is piecewise");
    CHECK_OK(fleet_optimizer_set_plateau(own, &plain));
    CHECK_FAILS(fleet_optimizer_set_table(o, "t", own), FLEET_EINVAL,
                "table \"t\": its optimizer has a plateau");
    CHECK_OK(fleet_optimizer_set_plateau(own, NULL));
    CHECK_OK(fleet_optimizer_set_table(o, "t", own));
    CHECK_FAILS(fleet_optimizer_set_plateau(own, &plain), FLEET_EINVAL,
                "a table's own optimizer stays as it was");
    fleet_destroy(f);
}
