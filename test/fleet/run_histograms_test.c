/* run_histograms_test.c - histograms and norms of weights and gradients in
 * event files: what is counted where, and that the numbers are the training's.
 */
#define SUITE run_histograms
#include "test.h"
#include "watch_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/watch/histogram.h"

/* --- buckets -------------------------------------------------------------- */

TEST(numbers_are_counted_where_they_lie)
{
    const float x[] = {0, 64, 1, 63.5f, 0.5f, NAN, -INFINITY};
    fl_histogram h;

    fl_histogram_of(&h, x, 7);
    CHECK_INT(h.n, 5);
    CHECK_INT(h.nonfinite, 2);
    CHECK(h.least == 0 && h.most == 64 && h.sum == 129);
    CHECK(h.squares == 64 * 64 + 1 + 63.5 * 63.5 + 0.25);
    CHECK_INT(h.count[0], 2);
    CHECK_INT(h.count[1], 1);
    CHECK_INT(h.count[FL_BUCKETS - 1], 2);
    CHECK(fl_histogram_limit(&h, 0) == 1 && fl_histogram_limit(&h, 63) == 64);
    fl_histogram_of(&h, x + 5, 2);
    CHECK(h.n == 0 && h.least == 0 && h.most == 0);
}

/* --- of a training -------------------------------------------------------- */

static const char *events(void)
{
    static char said[60000];
    const char *source = getenv("FLEET_SOURCE");
    char command[2000];

    if (!source)
        test_skip("set FLEET_SOURCE to the source folder");
    snprintf(command, sizeof command,
             "'%s/test/fleet/read_events.py' '%s' 2>&1", source,
             test_path("board"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK(strstr(said, "tensorboard: absent\n") ||
          strstr(said, "tensorboard: same\n"));
    return said;
}

typedef struct seen {
    double n, least, most, sum, squares, buckets, counted;
} seen;

static seen histogram_at(const char *all, int step, const char *tag)
{
    char words[200];
    const char *at;
    seen s = {0};

    snprintf(words, sizeof words, "\nhistogram %d %s ", step, tag);
    at = strstr(all, words);
    if (!at)
        test_fail(__FILE__, __LINE__, "no %s in: %s", words + 1, all);
    CHECK_INT(sscanf(at + strlen(words), "%lf %lf %lf %lf %lf %lf %lf", &s.n,
                     &s.least, &s.most, &s.sum, &s.squares, &s.buckets,
                     &s.counted),
              7);
    return s;
}

static double scalar_at(const char *all, int step, const char *tag)
{
    char words[200];
    const char *at;

    snprintf(words, sizeof words, "\nscalar %d %s ", step, tag);
    at = strstr(all, words);
    if (!at)
        test_fail(__FILE__, __LINE__, "no %s in: %s", words + 1, all);
    return atof(at + strlen(words));
}

/* Without another seed all trainings are the same. */
static char *train(const char *what, const char *more)
{
    const char *const set[] = {watch_path("metrics_log.tensorboard", "board"),
                               "optimizer={\"type\":\"sgd\","
                               "\"learning_rate\":0.5}",
                               "epochs=1",
                               what,
                               more,
                               NULL};

    return watch_train(set);
}

/* What SGD makes of the gradients is what the weights are a batch later. */
static void check_step(const char *all, int step, const char *name)
{
    char tag[2][100];
    seen before, after, gradient;

    snprintf(tag[0], 100, "weights/%s", name);
    snprintf(tag[1], 100, "gradients/%s", name);
    before = histogram_at(all, step - 1, tag[0]);
    after = histogram_at(all, step, tag[0]);
    gradient = histogram_at(all, step, tag[1]);
    CHECK(gradient.squares > 0 && gradient.n == after.n);
    CHECK(after.counted == after.n && gradient.counted == after.n);
    CHECK(fabs(after.sum - (before.sum - 0.5 * gradient.sum)) < 1e-5);
}

TEST(gradients_are_those_that_the_weights_were_updated_by)
{
    const char *all;
    double squares = 0;
    int n = 0;

    fleet_free(train("metrics_log.histogram_steps=1", NULL));
    all = events();
    for (int step = 2; step <= 4; step++) {
        check_step(all, step, "tower_out.w");
        check_step(all, step, "tower_out.b");
    }
    for (const char *at = strstr(all, "\nhistogram 4 gradients/"); at;
         at = strstr(at + 1, "\nhistogram 4 gradients/"), n++) {
        seen s;
        char tag[100];

        CHECK_INT(sscanf(at, "\nhistogram 4 %99s", tag), 1);
        s = histogram_at(all, 4, tag);
        squares += s.squares;
        CHECK(fabs(scalar_at(all, 4,
                             test_keep(strcat(strcpy((char[120]){0}, "norm/"),
                                              tag))) -
                   sqrt(s.squares)) < 1e-5);
    }
    CHECK(n >= 4);
    CHECK(fabs(scalar_at(all, 4, "norm/gradients") - sqrt(squares)) < 1e-5);
}

TEST(only_batches_that_are_asked_for_are_looked_at)
{
    const char *all;

    fleet_free(train("metrics_log.histogram_steps=3", NULL));
    all = events();
    CHECK(strstr(all, "histogram 3 weights/") != NULL);
    for (int step = 1; step <= 4; step++) {
        char words[40];

        snprintf(words, sizeof words, "histogram %d ", step);
        CHECK((strstr(all, words) != NULL) == (step == 3));
    }
}

/* Trainer threads have gradients of their own, each. */
TEST(trainer_threads_have_histograms_of_weights_alone)
{
    const char *all;

    fleet_free(
        train("metrics_log.histogram_steps=2", "trainer={\"thread\":2}"));
    all = events();
    CHECK(strstr(all, " weights/tower_out.w ") != NULL);
    CHECK(strstr(all, "gradients") == NULL);
}

/* Rounds of 3 batches: 3 and 4. */
TEST(a_round_that_passes_a_batch_that_is_asked_for_is_looked_at)
{
    const char *all;

    fleet_free(
        train("metrics_log.histogram_steps=2", "trainer={\"thread\":3}"));
    all = events();
    CHECK(strstr(all, "histogram 3 weights/") != NULL);
    CHECK(strstr(all, "histogram 4 weights/") != NULL);
}

TEST(a_training_that_is_looked_at_has_the_same_bits)
{
    char *plain = train("metrics_log.steps=100", NULL);
    char *seen_one = train("metrics_log.histogram_steps=1", NULL);

    CHECK_TEXT(test_json_value(seen_one, "\"params_hash\""),
               test_json_value(plain, "\"params_hash\""));
    fleet_free(plain);
    fleet_free(seen_one);
}

TEST(histograms_of_no_event_files_are_refused)
{
    watch_refuse("metrics_log={\"path\":\"m\",\"histogram_steps\":5}", NULL,
                 "metrics_log.histogram_steps: expected nothing: there is no "
                 "tensorboard");
    watch_refuse("metrics_log={\"tensorboard\":\"t\",\"histogram_steps\":0}",
                 NULL, "metrics_log.histogram_steps: expected an integer");
}
