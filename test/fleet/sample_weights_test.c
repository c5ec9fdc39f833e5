/* sample_weights_test.c - models whose samples have weights: in C, and from a
 * configuration. */
#define SUITE sample_weights
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { ROWS = 3 };

typedef struct scene {
    fleet *f;
    fleet_executor *e;
    fleet_var *loss;
} scene;

static const fleet_dense_slot dense[] = {{.name = "d", .dim = 2}};
static const fleet_id_slot ids[] = {{.name = "i"}};
static const int64_t hidden[] = {4};

/* Of what a model's loss makes more. */
typedef struct weights {
    float pos_weight;
    const float *classes; /* two */
} weights;

static fleet_var *model_of(fleet_program *p, int which, weights w)
{
    static fleet_var *(*const build[])(
        fleet_program *, const fleet_ctr_options *,
        fleet_model *) = {fleet_wide_deep, fleet_ctr_dnn, fleet_deepfm};
    fleet_ctr_options ctr = {.dense = dense,
                             .n_dense = 1,
                             .ids = ids,
                             .n_ids = 1,
                             .hidden = hidden,
                             .n_hidden = 1,
                             .weight = "w",
                             .pos_weight = w.pos_weight,
                             .class_weights = w.classes,
                             .n_class_weights = w.classes ? 2 : 0};
    fleet_mlp_options mlp = {.input = "d",
                             .dim = 2,
                             .classes = 2,
                             .weight = "w",
                             .class_weights = w.classes,
                             .n_class_weights = w.classes ? 2 : 0};

    return which < 3 ? build[which](p, &ctr, NULL) : fleet_mlp(p, &mlp, NULL);
}

static float loss_of(scene *s, const float *w, int first, int n, bool has_ids)
{
    static const float d[] = {1, -2, 0.5f, 3, -1, 1};
    static const int64_t id[] = {5, 6, 7}, label[] = {1, 0, 1};
    const int64_t one[] = {n, 1}, two[] = {n, 2};
    float out;
    fleet_feed feed[] = {
        {"label", FLEET_INT64, label + first, one, 2, NULL},
        {"w", FLEET_FLOAT32, w, one, 2, NULL},
        {"d", FLEET_FLOAT32, d + 2 * first, two, 2, NULL},
        {"i", FLEET_INT64, id + first, one, 2, NULL},
    };
    fleet_fetch fetch = {.var = s->loss, .data = &out, .size = sizeof out};

    CHECK_OK(fleet_executor_run(s->e, feed, has_ids ? 4 : 3, &fetch, 1));
    return out;
}

TEST(a_models_loss_is_the_mean_of_weighted_losses)
{
    static const float w[ROWS] = {2, 0, 0.5f}, one = 1;

    for (int which = 0; which < 4; which++) {
        scene s = {.f = kit_handle(&(kit_options){0})};
        fleet_program *p = fleet_program_create(s.f);
        float want = 0, alone;

        s.loss = model_of(p, which, (weights){0});
        s.e = fleet_executor_create(p, NULL);
        CHECK(s.loss && s.e);
        for (int i = 0; i < ROWS; i++) {
            alone = loss_of(&s, &one, i, 1, which < 3);
            CHECK(alone > 1e-3f);
            want += w[i] * alone / ROWS;
        }
        CHECK_NEAR(loss_of(&s, w, 0, ROWS, which < 3), want, 1e-5);
        fleet_executor_destroy(s.e);
        fleet_destroy(s.f);
    }
}

static scene open_scene(int which, weights w)
{
    scene s = {.f = kit_handle(&(kit_options){0})};
    fleet_program *p = fleet_program_create(s.f);

    s.loss = model_of(p, which, w);
    s.e = fleet_executor_create(p, NULL);
    CHECK(s.loss && s.e);
    return s;
}

static void close_scene(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

static const int is_positive[ROWS] = {1, 0, 1};

TEST(samples_of_label_1_count_pos_weight_times)
{
    static const float one = 1;

    for (int which = 0; which < 4; which += 2) {
        scene plain = open_scene(which, (weights){0});
        scene s = open_scene(which, (weights){.pos_weight = 3});

        for (int i = 0; i < ROWS; i++) {
            float alone = loss_of(&plain, &one, i, 1, true);

            CHECK_NEAR(loss_of(&s, &one, i, 1, true),
                       is_positive[i] ? 3 * alone : alone, 1e-5);
        }
        close_scene(&plain);
        close_scene(&s);
    }
}

/* A sample's own weight is no part of what the sum is divided by. */
TEST(the_mean_of_classes_is_over_their_weights)
{
    static const float w[ROWS] = {2, 0, 0.5f}, classes[] = {0.25f, 4};
    static const float one = 1;

    for (int which = 1; which < 4; which += 2) {
        scene s = open_scene(which, (weights){.classes = classes});
        float sum = 0, all = 0;

        for (int i = 0; i < ROWS; i++) {
            float c = classes[is_positive[i]];

            sum += w[i] * c * loss_of(&s, &one, i, 1, which < 3);
            all += c;
        }
        CHECK_NEAR(loss_of(&s, w, 0, ROWS, which < 3), sum / all, 1e-5);
        close_scene(&s);
    }
}

static void refused(fleet_var *built, const char *words)
{
    CHECK(built == NULL);
    CHECK_STATUS(fleet_last_status(), FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), words);
}

TEST(weights_that_a_model_has_not_are_refused_by_name)
{
    static const float two[] = {1, 2};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_mlp_options mlp = {.dim = 2, .classes = 3, .class_weights = two};
    fleet_lenet_options lenet = {.n_class_weights = 2};
    fleet_ctr_options tasks = {
        .pos_weight = 2,
        .ids = ids,
        .n_ids = 1,
        .tasks = (fleet_task_options[]){{.label = "a"},
                                        {.label = "b", .pos_weight = -1}},
        .n_tasks = 2};

    refused(model_of(fleet_program_create(f), 0, (weights){.classes = two}),
            "wide_deep: class_weights: expected nothing, the model has none");
    refused(model_of(fleet_program_create(f), 1, (weights){.pos_weight = 2}),
            "ctr_dnn: pos_weight: expected nothing, the model has none");
    mlp.n_class_weights = 2;
    refused(fleet_mlp(fleet_program_create(f), &mlp, NULL),
            "mlp: class_weights: expected one for each of 3 classes, got 2");
    refused(fleet_lenet(fleet_program_create(f), &lenet, NULL),
            "lenet: class_weights: 2 of them, but they are NULL");
    refused(fleet_mmoe(fleet_program_create(f), &tasks, NULL),
            "mmoe: pos_weight: expected nothing, the model has none");
    tasks.pos_weight = 0;
    refused(fleet_mmoe(fleet_program_create(f), &tasks, NULL),
            "mmoe: tasks[1].pos_weight: expected a finite number above 0");
    fleet_destroy(f);
}

/* --- from a configuration ------------------------------------------------- */

/* The hash of what is trained with that rate; weight "": there is none. */
static void train(const char *model, const char *ids_slot, const char *rate,
                  const char *weight, char hash[17])
{
    fl_text data = {0}, config = {0};
    char *line;
    const char *at;

    for (int i = 0; i < 40; i++) {
        fl_text_add(&data, "1 %d ", i % 3 == 0);
        if (*weight)
            fl_text_add(&data, "1 %s ", weight);
        fl_text_add(&data, "2 %d %d.5", i % 7 - 3, i % 5 - 2);
        fl_text_add(&data, *ids_slot ? " 1 %d\n" : "\n", i % 4);
    }
    fl_text_add(&config,
                "{\"model\": {\"type\": \"%s\", \"hidden\": [4]}, "
                "\"optimizer\": {\"type\": \"sgd\", \"learning_rate\": %s}, "
                "\"dataset\": {\"format\": \"multislot\", \"train\": "
                "[\"%s\"], \"batch_size\": 8}, \"slots\": [{\"name\": "
                "\"label\", \"type\": \"uint64\", \"role\": \"label\"}, %s"
                "{\"name\": \"d\", \"type\": \"float\", \"dim\": 2}%s]}",
                model, rate, test_file("data.txt", fl_text_chars(&data)),
                *weight ? "{\"name\": \"w\", \"type\": \"float\", \"role\": "
                          "\"weight\"}, "
                        : "",
                ids_slot);
    CHECK_OK(fleet_train_from_config(
        test_file("c.json", fl_text_chars(&config)), NULL, &line));
    at = strstr(line, "\"params_hash\":\"");
    CHECK(at != NULL);
    snprintf(hash, 17, "%s", at + strlen("\"params_hash\":\""));
    fleet_free(line);
    fl_text_done(&data);
    fl_text_done(&config);
}

/* All gradients are exactly twice as large, and the rate half of it. */
TEST(weights_of_2_are_twice_the_learning_rate)
{
    static const char *const model[][2] = {
        {"wide_deep", ", {\"name\": \"i\", \"type\": \"uint64\"}"},
        {"mlp", ""}};

    for (int i = 0; i < 2; i++) {
        char weighted[17], want[17], other[17];

        train(model[i][0], model[i][1], "0.125", "2", weighted);
        train(model[i][0], model[i][1], "0.25", "", want);
        train(model[i][0], model[i][1], "0.125", "", other);
        CHECK_TEXT(weighted, want);
        CHECK(strcmp(weighted, other) != 0);
    }
}
