/* schedule_test.c - schedules of the learning rate: the rates of PyTorch's own
 * schedulers over 100 updates (schedule_ref.py), by C and by a configuration;
 * what they do at their ends; a training that resumes; what is refused; the
 * rate that is set and read. */
#define SUITE schedule
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

static float rate_after(const fleet_optimizer *o, int64_t done)
{
    fl_update u;

    fl_optimizer_update(o, done, 1, &u);
    return u.lr;
}

/* --- against PyTorch ------------------------------------------------------ */

enum { N_RATE = 100 };

/* "LR JSON": by a configuration, whose schedule C sets, too. */
static void check_case(const char *head, const char *rates)
{
    fleet *f = handle();
    fleet_optimizer *read, *set;
    char text[600], *rest;
    fl_config c;

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": {\"type\": "
             "\"sgd\", \"learning_rate\": %.*s, \"decay\": %s}, \"dataset\": "
             "{\"format\": \"criteo\", \"train\": [\"a\"]}}",
             (int)strcspn(head, " "), head, strchr(head, ' '));
    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    read = fl_config_make_optimizer(f, &c.optimizer);
    CHECK(read != NULL);
    set = fleet_sgd(f, strtof(head, NULL));
    CHECK_OK(fleet_optimizer_set_schedule(set, &c.optimizer.schedule));
    for (int i = 0; i < N_RATE; i++) {
        double want = strtod(rates, &rest);
        double got = (double)rate_after(read, i);

        CHECK(rest != rates);
        rates = rest;
        if (!(fabs(got - want) <= 1e-6 * want + 1e-9))
            test_fail(__FILE__, __LINE__, "%s: update %d has %.9g, not %.9g",
                      head, i, got, want);
        CHECK(rate_after(set, i) == rate_after(read, i));
    }
    fl_config_done(&c);
    fleet_destroy(f);
}

TEST(each_gives_pytorchs_rates_over_a_hundred_updates)
{
    static const char word[] = "case ";
    bool seen[FL_N_SCHEDULE] = {false};
    char *text = golden_read("schedules.txt"), *line;
    int n = 0;

    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, word, strlen(word)) != 0)
            break; /* plateaus are plateau_test.c's */
        for (int k = 0; k < FL_N_SCHEDULE; k++) {
            char quoted[60];

            snprintf(quoted, sizeof quoted, "\"type\": \"%s\"",
                     fl_schedule_name((fleet_schedule_kind)k));
            seen[k] |= strstr(line, quoted) != NULL;
        }
        check_case(line + strlen(word), strtok(NULL, "\n"));
        n++;
    }
    for (int k = 0; k < FL_N_SCHEDULE; k++)
        CHECK(seen[k]);
    CHECK(n > FL_N_SCHEDULE);
    fl_free(text);
}

/* --- at their ends -------------------------------------------------------- */

/* A training that goes on beyond what was planned. */
TEST(what_ends_stays_where_it_ended)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);
    const int64_t far = INT64_C(1) << 52;

    CHECK_OK(fleet_optimizer_set_schedule(
        o, &(fleet_schedule){
               .kind = FLEET_SCHEDULE_COSINE, .steps = 10, .end = 0.125f}));
    CHECK(rate_after(o, 9) > 0.125f);
    CHECK(rate_after(o, 10) == 0.125f && rate_after(o, far) == 0.125f);
    CHECK_OK(fleet_optimizer_set_schedule(
        o, &(fleet_schedule){
               .kind = FLEET_SCHEDULE_POLYNOMIAL, .steps = 10, .end = 0.125f}));
    CHECK(rate_after(o, 9) > 0.125f);
    CHECK(rate_after(o, 10) == 0.125f && rate_after(o, far) == 0.125f);
    CHECK_OK(fleet_optimizer_set_schedule(
        o, &(fleet_schedule){.kind = FLEET_SCHEDULE_ONE_CYCLE,
                             .steps = 10,
                             .start_divisor = 2,
                             .end_divisor = 4}));
    CHECK(rate_after(o, 8) > 0.0625f);
    CHECK(rate_after(o, 9) == 0.0625f && rate_after(o, far) == 0.0625f);
    fleet_destroy(f);
}

TEST(no_schedule_is_a_constant_rate)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);

    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.5f, 1, 0));
    CHECK(rate_after(o, 1) == 0.25f);
    CHECK_OK(fleet_optimizer_set_schedule(o, NULL));
    CHECK(rate_after(o, 1) == 0.5f);
    fleet_destroy(f);
}

/* --- a training that resumes ---------------------------------------------- */

static void open_warmed(scene *s)
{
    fleet_optimizer *o;

    scene_open(s, &(fleet_options){.seed = 5, .num_threads = 1}, "adam");
    scene_data(s, scene_file("a.txt", 200, 1), 32, 1, 0);
    o = s->p->training.optimizer;
    CHECK_OK(fleet_optimizer_set_schedule(
        o, &(fleet_schedule){.kind = FLEET_SCHEDULE_COSINE,
                             .steps = 20,
                             .end = 1e-4f,
                             .warmup_steps = 9}));
}

static float next_rate(const scene *s)
{
    float rate = 0;

    CHECK_OK(
        fleet_optimizer_get_learning_rate(s->p->training.optimizer, &rate));
    return rate;
}

/* 7 updates a pass: the save is within the warm-up. */
TEST(a_training_that_resumes_has_the_rates_of_one_that_does_not)
{
    const char *path = test_path("checkpoint");
    uint64_t whole, resumed;
    scene s;

    open_warmed(&s);
    scene_train(&s, 1);
    CHECK_OK(fleet_save_persistables(s.f, path));
    CHECK(next_rate(&s) == rate_after(s.p->training.optimizer, 7));
    scene_train(&s, 2);
    whole = scene_hash(&s);
    scene_close(&s);
    open_warmed(&s);
    CHECK(next_rate(&s) == rate_after(s.p->training.optimizer, 0));
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_load_model(s.f, path));
    CHECK(next_rate(&s) == rate_after(s.p->training.optimizer, 7));
    scene_train(&s, 2);
    resumed = scene_hash(&s);
    scene_close(&s);
    CHECK(whole == resumed);
}

/* --- set and read --------------------------------------------------------- */

TEST(what_is_set_is_the_rate_of_the_next_update)
{
    scene s;
    float rate;

    scene_open(&s, &(fleet_options){.seed = 5, .num_threads = 1}, "sgd");
    scene_data(&s, scene_file("a.txt", 100, 1), 32, 1, 0);
    scene_train(&s, 1);
    rate = next_rate(&s);
    CHECK_OK(
        fleet_optimizer_set_learning_rate(s.p->training.optimizer, rate / 2));
    CHECK(next_rate(&s) == rate / 2);
    CHECK_OK(fleet_optimizer_set_exponential_decay(s.p->training.optimizer,
                                                   0.5f, 4, 1));
    CHECK(next_rate(&s) == rate / 4); /* after 4 updates */
    CHECK_OK(
        fleet_optimizer_set_learning_rate(s.p->training.optimizer, 8 * rate));
    CHECK(next_rate(&s) == 4 * rate);
    scene_close(&s);
}

typedef struct watch {
    const fleet_optimizer *o;
    float rate[8];
    int calls;
} watch;

static int look(void *user, int64_t batches, int64_t samples)
{
    watch *w = user;

    (void)batches, (void)samples;
    CHECK(w->calls < 8);
    CHECK_OK(fleet_optimizer_get_learning_rate(w->o, &w->rate[w->calls++]));
    return 0;
}

TEST(callbacks_read_the_rate_of_each_update)
{
    watch w = {0};
    fleet_train_options callback = {.on_batch = look, .user = &w};
    scene s;

    open_warmed(&s);
    w.o = s.p->training.optimizer;
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &callback, NULL));
    CHECK_INT(w.calls, 7);
    for (int i = 0; i < w.calls; i++)
        CHECK(w.rate[i] == rate_after(w.o, i + 1));
    scene_close(&s);
}

/* --- refused -------------------------------------------------------------- */

static void check_refused(const fleet_schedule *s, const char *words)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);

    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.5f, 1, 0));
    CHECK_FAILS(fleet_optimizer_set_schedule(o, s), FLEET_EINVAL, words);
    CHECK(rate_after(o, 1) == 0.25f); /* as it was */
    fleet_destroy(f);
}

#define REFUSED(words, ...)                                                    \
    check_refused(&(fleet_schedule){.kind = FLEET_SCHEDULE_##__VA_ARGS__},     \
                  words)

TEST(impossible_schedules_are_refused_by_their_members)
{
    static const int64_t one[] = {3}, falls[] = {3, 2};
    static const float rates[] = {1, 0.5f};

    check_refused(&(fleet_schedule){.kind = (fleet_schedule_kind)11},
                  "there is no kind 11");
    check_refused(&(fleet_schedule){.kind = (fleet_schedule_kind)-1},
                  "there is no kind -1");
    REFUSED("cosine: steps: 0 is out of range", COSINE);
    REFUSED("cosine: end: -1 is out", COSINE, .steps = 5, .end = -1);
    REFUSED("polynomial: power: nan", POLYNOMIAL, .steps = 5, .power = NAN);
    REFUSED("step: rate: 1.5 is out", STEP, .steps = 5, .rate = 1.5f);
    REFUSED("natural_exponential: rate: 0 is", NATURAL_EXPONENTIAL);
    REFUSED("one_cycle: rise: 1 is out", ONE_CYCLE, .steps = 9, .rise = 1);
    REFUSED("noam: width: 0 is out", NOAM, .steps = 9);
    REFUSED("multi_step: no boundaries", MULTI_STEP, .n = 1);
    REFUSED("multi_step: boundary 1 does not grow", MULTI_STEP,
            .boundaries = falls, .n = 2);
    REFUSED("multi_step: values: it has none", MULTI_STEP, .boundaries = one,
            .values = rates, .n = 1);
    REFUSED("cosine: rate: it has none", COSINE, .steps = 5, .rate = 0.5f);
    REFUSED("step: boundaries: it has none", STEP, .steps = 5,
            .boundaries = one, .n = 1);
    REFUSED("constant: cycle: it has none", CONSTANT, .cycle = 1);
    REFUSED("constant: warmup_steps: -1 is out", CONSTANT, .warmup_steps = -1);
    REFUSED("warmup_start 0.5: there are no warmup_steps", CONSTANT,
            .warmup_start = 0.5f);
    REFUSED("constant: warmup_start: 2 is out", CONSTANT, .warmup_steps = 1,
            .warmup_start = 2);
}

/* Bounds are in decimal, and floats are next to them, on either side. */
TEST(a_number_may_be_its_bound)
{
    static const fleet_schedule bounds[] = {
        {.kind = FLEET_SCHEDULE_EXPONENTIAL, .rate = 1e-9f, .steps = 1},
        {.kind = FLEET_SCHEDULE_EXPONENTIAL, .rate = 1e-45f, .steps = 1},
        {.kind = FLEET_SCHEDULE_STEP, .rate = 1e-45f, .steps = 1},
        {.kind = FLEET_SCHEDULE_INVERSE_TIME, .rate = 1e-12f},
        {.kind = FLEET_SCHEDULE_ONE_CYCLE, .steps = 9, .rise = 1e-6f},
        {.kind = FLEET_SCHEDULE_ONE_CYCLE, .steps = 9, .rise = 0.999999f},
        {.warmup_steps = 1, .warmup_start = 1e-9f}};
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);

    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        CHECK_OK(fleet_optimizer_set_schedule(o, &bounds[i]));
    CHECK_OK(fleet_optimizer_set_schedule(o, NULL));
    CHECK_OK(fleet_optimizer_set_plateau(
        o, &(fleet_plateau_options){.factor = 1e-6f}));
    fleet_destroy(f);
}

/* Over many updates it is a factor near 1 in each. */
TEST(a_rate_may_be_any_number_above_0)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);

    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 1e-12f, 1000000, 0));
    CHECK(rate_after(o, 1000000) == 0.5f * 1e-12f);
    CHECK_NEAR((double)rate_after(o, 1000), 0.5 * pow(1e-12, 1e-3), 1e-6);
    fleet_destroy(f);
}

TEST(ftrl_needs_a_rate_that_is_not_zero)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_ftrl(f, 0.5f, NULL);
    fleet_schedule s = {.kind = FLEET_SCHEDULE_COSINE, .steps = 5};

    CHECK_FAILS(fleet_optimizer_set_schedule(o, &s), FLEET_EINVAL,
                "cosine: end: ftrl divides by the learning rate");
    s.end = 0.1f;
    CHECK_OK(fleet_optimizer_set_schedule(o, &s));
    fleet_destroy(f);
}

/* Of the batches 1, 2 ... the one that cannot be trained; another schedule then
 * finds weights that are finite. */
static void check_underflow(const fleet_schedule *falls, int thread,
                            const char *words)
{
    fleet_train_options how = {.thread = thread, .hogwild = thread > 1};
    scene s;

    scene_open(&s, &(fleet_options){.seed = 5, .num_threads = 2}, "ftrl");
    scene_data(&s, scene_file("a.txt", 200, 1), 32, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_optimizer_set_schedule(s.p->training.optimizer, falls));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &how, NULL),
                FLEET_ENUMERIC, words);
    CHECK_OK(fleet_optimizer_set_schedule(s.p->training.optimizer, NULL));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &how, NULL));
    scene_close(&s);
}

TEST(ftrl_makes_no_update_with_a_rate_that_has_fallen_to_zero)
{
    static const int64_t at[] = {2};
    static const char third[] = "ftrl: the learning rate of update 3, by which "
                                "it divides, is ";

    check_underflow(&(fleet_schedule){.kind = FLEET_SCHEDULE_EXPONENTIAL,
                                      .rate = 1e-45f,
                                      .steps = 2,
                                      .staircase = 1},
                    1, third);
    check_underflow(&(fleet_schedule){.kind = FLEET_SCHEDULE_MULTI_STEP,
                                      .rate = 1e-40f,
                                      .boundaries = at,
                                      .n = 1},
                    1, third);
    check_underflow(
        &(fleet_schedule){.kind = FLEET_SCHEDULE_NATURAL_EXPONENTIAL,
                          .rate = 200,
                          .staircase = 1},
        2, "ftrl: the learning rate of update 2");
}

TEST(a_table_of_ftrls_makes_no_update_with_a_rate_of_zero)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f), *own = fleet_ftrl(f, 0.5f, NULL);

    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 1e-45f, 1, 0));
    CHECK_OK(fleet_optimizer_set_exponential_decay(own, 1e-20f, 1, 0));
    CHECK_OK(fleet_optimizer_set_table(o, "t", own));
    CHECK_OK(fl_optimizer_check_rates(o, 1));
    CHECK_FAILS(fl_optimizer_check_rates(o, 2), FLEET_ENUMERIC,
                "ftrl: the learning rate of update 3");
    fleet_destroy(f);
}

TEST(impossible_rates_are_refused)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.5f);
    float rate = 0;

    CHECK_FAILS(fleet_optimizer_set_learning_rate(o, 0), FLEET_EINVAL,
                "fleet_optimizer_set_learning_rate: the learning rate 0 is");
    CHECK_FAILS(fleet_optimizer_set_learning_rate(o, NAN), FLEET_EINVAL, "nan");
    CHECK_FAILS(fleet_optimizer_set_learning_rate(NULL, 1), FLEET_EINVAL,
                "no optimizer");
    CHECK_FAILS(fleet_optimizer_get_learning_rate(NULL, &rate), FLEET_EINVAL,
                "no optimizer");
    CHECK_FAILS(fleet_optimizer_get_learning_rate(o, NULL), FLEET_EINVAL,
                "no learning_rate");
    CHECK_OK(fleet_optimizer_set_piecewise_decay(o, (int64_t[]){1},
                                                 (float[]){1, 2}, 1));
    CHECK_FAILS(fleet_optimizer_set_learning_rate(o, 1), FLEET_ESTATE,
                "the schedule is piecewise");
    CHECK_OK(fleet_optimizer_get_learning_rate(o, &rate));
    CHECK(rate == 1);
    fleet_destroy(f);
}

static void check_config(const char *decay, const char *words)
{
    fl_config c;
    char text[400];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": {\"type\": "
             "\"sgd\", \"decay\": %s}, \"dataset\": {\"format\": \"criteo\", "
             "\"train\": [\"a\"]}}",
             decay);
    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                words);
    fl_config_done(&c);
}

TEST(a_configuration_names_what_is_wrong_with_a_schedule)
{
    check_config("{\"type\": \"cosinus\"}", "optimizer.decay.type: expected");
    check_config("{\"type\": \"cosine\"}", "optimizer.decay.steps");
    check_config("{\"type\": \"cosine\", \"steps\": 0}",
                 "optimizer.decay.steps: expected an integer from 1");
    check_config("{\"type\": \"cosine\", \"steps\": 9, \"rate\": 1}",
                 "optimizer.decay.rate");
    check_config("{\"type\": \"one_cycle\", \"steps\": 9, \"rise\": 0}",
                 "optimizer.decay.rise: expected a number from 1e-06");
    check_config("{\"type\": \"multi_step\"}", "optimizer.decay.boundaries");
    check_config("{\"type\": \"constant\", \"warmup_start\": 0, "
                 "\"warmup_steps\": 3}",
                 "optimizer.decay.warmup_start: expected a number from 1e-09");
}
