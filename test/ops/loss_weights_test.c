/* loss_weights_test.c - weights of classes and of label 1: losses and gradients
 * are what PyTorch 1.13.1 gave for the same numbers, and what is refused. */
#define SUITE loss_weights
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4, MOST_COLS = 3 };

/* Logits that are a parameter: sample i is row i of an identity matrix, and a
 * step of SGD with rate 1 takes the gradient away. */
typedef struct scene {
    fleet *f;
    fleet_program *p;
    fleet_var *logits, *label;
    int cols;
} scene;

static scene open_scene(int cols, fleet_dtype label, const char *device)
{
    const kit_options o = {.device = device, .threads = 2};
    scene s = {.f = kit_handle(&o), .cols = cols};
    fleet_param_attr attr = {.name = "logits"};
    fleet_var *rows;

    s.p = fleet_program_create(s.f);
    kit_place(s.p, &o);
    rows = kit_data(s.p, "rows", ROWS);
    s.label = label == FLEET_INT64 ? kit_data_ids(s.p, "label", 1)
                                   : kit_data(s.p, "label", 1);
    s.logits = fleet_matmul(
        s.p, rows, fleet_parameter(s.p, (int64_t[]){ROWS, cols}, 2, &attr));
    return s;
}

/* The loss of these logits, and its gradient. */
static float step_of(scene *s, fleet_var *loss, const float *logits,
                     const void *label, float *gradient)
{
    static const float identity[ROWS * ROWS] = {1, 0, 0, 0, 0, 1, 0, 0,
                                                0, 0, 1, 0, 0, 0, 0, 1};
    const int64_t dims[] = {ROWS, ROWS}, one[] = {ROWS, 1};
    const fleet_feed feed[] = {
        {"rows", FLEET_FLOAT32, identity, dims, 2, NULL},
        {"label", fleet_var_dtype(s->label), label, one, 2, NULL}};
    float value = NAN;
    fleet_fetch fetch = {.var = loss, .data = &value, .size = sizeof value};
    const int n = ROWS * s->cols;
    fleet_executor *e;

    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(fleet_sgd(s->f, 1), loss));
    e = fleet_executor_create(s->p, NULL);
    CHECK(e != NULL);
    CHECK_OK(fleet_parameter_set(s->f, "logits", logits, n));
    CHECK_OK(fleet_executor_run(e, feed, 2, &fetch, 1));
    CHECK_OK(fleet_executor_flush(e));
    CHECK_OK(fleet_parameter_get(s->f, "logits", gradient, n));
    for (int i = 0; i < n; i++)
        gradient[i] = logits[i] - gradient[i];
    fleet_executor_destroy(e);
    fleet_destroy(s->f);
    return value;
}

static const float binary[ROWS] = {0.5f, -2, 3, 0.25f},
                   soft[ROWS] = {1, 0, 1, 0.3f};

/* BCEWithLogitsLoss(pos_weight)(binary, soft), and its gradient */
static const struct {
    float pos_weight, loss, gradient[ROWS];
} bce[] = {{3,
            0.6978560090f,
            {-0.2831555009f, 0.0298007298f, -0.0355694294f, -0.0001293719f}},
           {0.25f,
            0.2197367996f,
            {-0.0235962905f, 0.0298007298f, -0.0029641166f, 0.0901717097f}}};

static void check_bce(const char *device, bool of_probability)
{
    for (int i = 0; i < 2; i++) {
        scene s = open_scene(1, FLEET_FLOAT32, device);
        float got[ROWS], w = bce[i].pos_weight, loss;
        fleet_var *each =
            of_probability
                ? fleet_weighted_log_loss(s.p, fleet_sigmoid(s.p, s.logits),
                                          s.label, 1e-12f, w)
                : fleet_weighted_sigmoid_cross_entropy(s.p, s.logits, s.label,
                                                       w);

        loss = step_of(&s, fleet_mean(s.p, each), binary, soft, got);
        CHECK_NEAR(loss, bce[i].loss, 1e-6);
        CHECK_CLOSE(got, bce[i].gradient, ROWS, 1e-6);
    }
}

TEST(label_1_counts_as_in_pytorch)
{
    check_bce(NULL, false);
    check_bce(NULL, true);
}

static const float classes[ROWS * 3] = {1,     2,    0.5f,   0, -1, 1.5f,
                                        0.25f, 0.5f, -0.75f, 2, 0,  1},
                                  class_weights[] = {0.5f, 2, 0.25f};
static const int64_t class_of[ROWS] = {1, 2, 0, 2};

/* CrossEntropyLoss(weight) of these */
static const float ce_loss = 0.6116233468f,
                   ce_gradient[ROWS * 3] = {
                       0.1541492641f,  -0.2476455420f, 0.0934962556f,
                       0.0142460652f,  0.0052408348f,  -0.0194869004f,
                       -0.1038187593f, 0.0806983113f,  0.0231204536f,
                       0.0554367416f,  0.0075025465f,  -0.0629392937f};

static void check_classes(const char *device, bool of_probabilities)
{
    scene s = open_scene(3, FLEET_INT64, device);
    float got[ROWS * 3], loss, weights[3];
    fleet_var *each =
        of_probabilities
            ? fleet_cross_entropy(s.p, fleet_softmax(s.p, s.logits), s.label)
            : fleet_softmax_with_cross_entropy(s.p, s.logits, s.label, NULL);

    memcpy(weights, class_weights, sizeof weights);
    each = fleet_weighted_mean(s.p, each,
                               fleet_class_weight(s.p, s.label, weights, 3));
    memset(weights, 0, sizeof weights); /* they were copied */
    loss = step_of(&s, each, classes, class_of, got);
    CHECK_NEAR(loss, ce_loss, 1e-6);
    CHECK_CLOSE(got, ce_gradient, ROWS * 3, 1e-6);
}

TEST(classes_count_as_in_pytorch)
{
    check_classes(NULL, false);
    check_classes(NULL, true);
}

TEST(emulated_gpus_count_the_same)
{
    gpu_kit_open();
    check_bce("gpu:0", false);
    check_classes("gpu:0", false);
    gpu_kit_close();
}

/* As no sample counts, there is nothing to learn: no NaN. */
TEST(a_batch_without_weight_has_loss_0)
{
    static const float weights[] = {0, 0, 0, 1};
    scene s = open_scene(3, FLEET_INT64, NULL);
    float got[ROWS * 3];
    fleet_var *loss =
        fleet_softmax_with_cross_entropy(s.p, s.logits, s.label, NULL);

    loss = fleet_weighted_mean(s.p, loss,
                               fleet_class_weight(s.p, s.label, weights, 4));
    CHECK(step_of(&s, loss, classes, class_of, got) == 0);
    for (int i = 0; i < ROWS * 3; i++)
        CHECK(got[i] == 0);
}

TEST(a_label_that_no_weight_is_for_is_named)
{
    static const int64_t three = 3, one[] = {1, 1};
    scene s = open_scene(3, FLEET_INT64, NULL);
    const fleet_feed feed = {"label", FLEET_INT64, &three, one, 2, NULL};
    fleet_var *w = fleet_class_weight(s.p, s.label, class_weights, 3);
    float out;
    fleet_fetch fetch = {.var = w, .data = &out, .size = sizeof out};
    fleet_executor *e =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});

    CHECK_FAILS(fleet_executor_run(e, &feed, 1, &fetch, 1), FLEET_EINVAL,
                "class_weight: label \"label\" is 3 in row 0 of the batch, "
                "which is not a class from 0 to 2");
    fleet_executor_destroy(e);
    fleet_destroy(s.f);
}

static void refused(fleet_program *p, const fleet_var *got, const char *words)
{
    CHECK(got == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words);
}

TEST(weights_that_cannot_be_are_refused_by_name)
{
    static const float none[] = {0, 0}, below[] = {1, -1}, nan[] = {NAN, 1};
    static const struct {
        const float *weights;
        int n;
        const char *words;
    } bad[] = {{none, 2, "one of them above 0"},
               {below, 2, "each from 0 on and finite"},
               {nan, 2, "each from 0 on and finite"},
               {below, 1, "class_weight: 1 weights; expected 2 to 512"},
               {below, 513, "class_weight: 513 weights; expected 2 to 512"},
               {below, -1, "class_weight: -1 weights"},
               {NULL, 2, "class_weight: 0 weights"}};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scene s = open_scene(2, FLEET_INT64, NULL);

        refused(s.p, fleet_class_weight(s.p, s.label, bad[i].weights, bad[i].n),
                bad[i].words);
        fleet_destroy(s.f);
    }
    for (int i = 0; i < 4; i++) {
        scene s = open_scene(1, FLEET_INT64, NULL);
        float w = i % 2 == 0 ? 0 : INFINITY;

        refused(s.p,
                i < 2 ? fleet_weighted_log_loss(s.p, s.logits, s.label, 0, w)
                      : fleet_weighted_sigmoid_cross_entropy(s.p, s.logits,
                                                             s.label, w),
                i % 2 == 0 ? "pos_weight 0 is not" : "pos_weight inf is not");
        fleet_destroy(s.f);
    }
}
