/* importance_test.c - what a model has from a slot: a lot from the one that its
 * labels were made of, nothing from noise. Threads change no number. */
#define SUITE importance
#include "lines_kit.h"
#include "model_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { MOST = 40 };

static fleet_importance found[MOST];
static int n_found;

static void rank(fleet_predictor *p, const char *path,
                 const fleet_importance_options *o, fleet_evaluation *e)
{
    CHECK_OK(
        fleet_feature_importance(p, &path, 1, o, found, MOST, &n_found, e));
}

static const fleet_importance *of(const char *slot)
{
    for (int i = 0; i < n_found; i++)
        if (strcmp(found[i].slot, slot) == 0)
            return &found[i];
    test_fail(__FILE__, __LINE__, "no slot %s", slot);
}

/* The label of a csv is whether x is above 9. */
TEST(the_slot_that_made_the_labels_is_the_most_important)
{
    lines_scene s;
    fleet_predictor *p;
    fleet_evaluation e;

    lines_open(&s, LINES_CSV);
    lines_train(&s, 30);
    p = lines_predictor(&s);
    rank(p, s.path, &(fleet_importance_options){.batch_size = 64}, &e);
    CHECK_INT(n_found, 3);
    CHECK_TEXT(found[0].slot, "numbers");
    CHECK_TEXT(found[1].slot, "color");
    CHECK_TEXT(found[2].slot, "word");
    CHECK_INT(e.samples, LINES_N);
    CHECK(e.auc == s.found.auc);
    CHECK(of("numbers")->auc_drop > 0.1);
    CHECK(of("numbers")->logloss_rise > 0.01);
    CHECK(fabs(of("word")->auc_drop) < of("numbers")->auc_drop / 2);
    CHECK(fabs(of("color")->auc_drop) < of("numbers")->auc_drop / 2);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

static void same_numbers(const fleet_importance *want)
{
    for (int i = 0; i < n_found; i++) {
        CHECK(found[i].auc_drop == want[i].auc_drop);
        CHECK(found[i].logloss_rise == want[i].logloss_rise);
        CHECK(found[i].accuracy_drop == want[i].accuracy_drop);
    }
}

TEST(numbers_follow_from_the_seed_and_not_from_threads)
{
    fleet_importance_options o = {.seed = 3, .threads = 1, .batch_size = 40};
    fleet_importance want[MOST];
    lines_scene s;
    fleet_predictor *p;

    lines_open(&s, LINES_CRITEO);
    p = lines_predictor(&s);
    rank(p, s.path, &o, NULL);
    CHECK_INT(n_found, 27);
    memcpy(want, found, sizeof want);
    o.threads = 4;
    rank(p, s.path, &o, NULL);
    same_numbers(want);
    o.seed = 4;
    rank(p, s.path, &o, NULL);
    CHECK(found[0].logloss_rise != want[0].logloss_rise);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

/* A batch of one sample has none to exchange with. */
TEST(nothing_is_lost_where_nothing_is_exchanged)
{
    lines_scene s;
    fleet_predictor *p;

    lines_open(&s, LINES_MULTISLOT);
    p = lines_predictor(&s);
    rank(p, s.path, &(fleet_importance_options){.batch_size = 1}, NULL);
    CHECK_INT(n_found, 3);
    for (int i = 0; i < n_found; i++)
        CHECK(found[i].auc_drop == 0 && found[i].logloss_rise == 0 &&
              found[i].accuracy_drop == 0);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

/* Lines differ in w alone, and have one label: whoever has whose ids, all
 * together they cost the same. */
TEST(ids_are_exchanged_with_their_weights_and_none_is_lost)
{
    static const char *const name[] = {"w.weights", "dense",  "u", "v",
                                       "w",         "prices", "x", "x.weights"};
    const scene_training how = {.pooled = true};
    const char *path =
        test_file("same", "1 1 3 1 1 1 1 7 1 8 2 3:1 4:0.5 0 1 9:2\n"
                          "1 1 3 1 1 1 1 7 1 8 1 5:-1 0 1 9:2\n"
                          "1 1 3 1 1 1 1 7 1 8 3 3:2 4:1 6:-3 0 1 9:2\n"
                          "1 1 3 1 1 1 1 7 1 8 1 5:0.25 0 1 9:2\n");
    fleet_var *feed[8];
    fleet_predictor *p;
    scene s;

    scene_open_as(&s, &(fleet_options){.num_threads = 1}, &how);
    scene_data(&s, scene_pooled_file("train.txt", 100, 1), 32, 1, 0);
    scene_train(&s, 1);
    for (int i = 0; i < 8; i++)
        feed[i] = fleet_program_var(s.p, name[i]);
    CHECK_OK(fleet_save_inference_model_with(
        s.f, test_path("model"), feed, 8, &s.m.prediction, 1,
        &(fleet_inference_options){.dataset = s.data,
                                   .label = fleet_var_name(s.m.label)}));
    scene_close(&s);
    p = fleet_load_inference_model(test_path("model"));
    CHECK(p != NULL);
    for (uint64_t seed = 0; seed < 8; seed++) {
        rank(p, path, &(fleet_importance_options){.seed = seed}, NULL);
        CHECK(of("x")->logloss_rise == 0);
        CHECK(fabs(of("w")->logloss_rise) < 1e-12);
    }
    fleet_predictor_destroy(p);
}

TEST(what_cannot_be_compared_is_refused)
{
    lines_scene s;
    fleet_predictor *p;
    int n;

    lines_open(&s, LINES_CSV);
    p = lines_predictor(&s);
    CHECK_OK(fleet_feature_importance(p, NULL, 0, NULL, NULL, 0, &n, NULL));
    CHECK_INT(n, 3);
    CHECK_FAILS(
        fleet_feature_importance(p, &s.path, 1, NULL, found, 2, &n, NULL),
        FLEET_EINVAL, "room for 2 slots, of 3");
    CHECK_FAILS(fleet_feature_importance(
                    p, &s.path, 1, &(fleet_importance_options){.threads = 65},
                    found, MOST, &n, NULL),
                FLEET_EINVAL, "threads: expected 0 to 64, got 65");
    fleet_predictor_destroy(p);
    lines_close(&s);
}
