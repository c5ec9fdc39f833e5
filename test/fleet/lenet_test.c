/* lenet_test.c - fleet_lenet() on small made-up images: it learns, with the
 * same bits by any number of threads, and on the emulated GPU as on the CPU;
 * its program is written and read, its checkpoint predicts; by a configuration;
 * and what is refused. test/ops/torch_test.c compares it with PyTorch. */
#define SUITE lenet
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/checkpoint.h"

enum { SIDE = 12, PIXELS = SIDE * SIDE, CLASSES = 3 };

static const int64_t hidden[] = {8};
static const fleet_lenet_options options = {.height = SIDE,
                                            .width = SIDE,
                                            .classes = CLASSES,
                                            .hidden = hidden,
                                            .n_hidden = 1};

/* A bright row, a bright column, or neither, anywhere. */
static kit_batch *images(int64_t rows)
{
    kit_batch *b = kit_batch_new(rows);
    float *image = kit_floats(b, "image", PIXELS, 1);
    int64_t *label = kit_ids(b, "label", 1, CLASSES, 2);

    for (int64_t i = 0; i < rows; i++, image += PIXELS)
        for (int at = 0; at < PIXELS; at++) {
            int line = (int)(i % SIDE);
            bool bright = label[i] == 1   ? at / SIDE == line
                          : label[i] == 2 ? at % SIDE == line
                                          : false;

            image[at] = 0.2f * image[at] + (bright ? 1.0f : 0.0f);
        }
    return b;
}

typedef struct trained {
    kit_model m;
    double first, last;
} trained;

static void train(trained *t, int threads, const char *device, int steps)
{
    kit_options o = {.threads = threads, .device = device};
    kit_batch *b = images(120);

    memset(t, 0, sizeof *t);
    t->m.f = kit_handle(&o);
    t->m.p = fleet_program_create(t->m.f);
    kit_place(t->m.p, &o);
    CHECK(fleet_lenet(t->m.p, &options, &t->m.m) != NULL);
    CHECK_OK(fleet_minimize(fleet_adam(t->m.f, 0.01f, NULL), t->m.m.loss));
    t->m.e = fleet_executor_create(t->m.p, NULL);
    for (int i = 0; i < steps; i++) {
        t->last = (double)kit_step(t->m.e, b, t->m.m.loss);
        t->first = i == 0 ? t->last : t->first;
    }
    kit_batch_free(b);
}

TEST(it_learns_with_the_same_bits_by_any_number_of_threads)
{
    trained one, many;

    train(&one, 1, NULL, 30);
    train(&many, 3, NULL, 30);
    CHECK(one.last < 0.5 * one.first);
    CHECK(kit_hash(many.m.f) == kit_hash(one.m.f));
    kit_close(&one.m);
    kit_close(&many.m);
}

TEST(it_trains_on_a_gpu_as_on_the_cpu)
{
    trained here, there;

    train(&here, 1, NULL, 3);
    gpu_kit_open();
    train(&there, 1, "gpu:0", 3);
    CHECK_NEAR(there.last, here.last, 1e-4 * here.last);
    kit_close(&there.m);
    gpu_kit_close();
    kit_close(&here.m);
}

TEST(its_checkpoint_predicts)
{
    enum { ROWS = 7 };
    float want[ROWS * CLASSES], got[ROWS * CLASSES];
    void *to[] = {got};
    size_t size[] = {sizeof got};
    fleet_feed feed[KIT_MOST_FEEDS];
    fleet_predictor *predictor;
    fleet_executor *tester;
    kit_batch *b = images(ROWS);
    trained t;

    train(&t, 2, NULL, 3);
    tester =
        fleet_executor_create(t.m.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(tester, b, t.m.m.prediction, want, ROWS * CLASSES));
    CHECK_OK(fl_checkpoint_save(t.m.f, test_path("lenet"),
                                &(fl_scored){.model = &t.m.m}, FLEET_SAVE_ALL));
    predictor = fleet_load_inference_model(test_path("lenet"));
    CHECK(predictor != NULL);
    CHECK_INT(kit_feeds(b, feed), 2); /* the label is not fed */
    CHECK_OK(fleet_predictor_run(predictor, feed, 1, to, size, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(predictor);
    fleet_executor_destroy(tester);
    kit_batch_free(b);
    kit_close(&t.m);
}

/* --- by a configuration --------------------------------------------------- */

static const char *lines_of_images(int n)
{
    kit_batch *b = images(n);
    const float *image = b->feed[0].data;
    const int64_t *label = b->feed[1].data;
    char *text = malloc((size_t)n * PIXELS * 8);
    size_t used = 0;
    const char *path;

    for (int i = 0; i < n; i++) {
        used += (size_t)sprintf(text + used, "%d", PIXELS);
        for (int at = 0; at < PIXELS; at++)
            used += (size_t)sprintf(text + used, " %.3f", (double)*image++);
        used += (size_t)sprintf(text + used, " 1 %d\n", (int)label[i]);
    }
    path = test_file_bytes("images.txt", text, used);
    free(text);
    kit_batch_free(b);
    return path;
}

static fleet_status by_config(const char *keys, const char *type, char **line)
{
    const char *file = lines_of_images(90);
    char text[2000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"lenet\"%s}, \"optimizer\": "
             "{\"learning_rate\": 0.01}, \"epochs\": 12, \"dataset\": "
             "{\"format\": \"multislot\", \"train\": [\"%s\"], \"test\": "
             "[\"%s\"], \"batch_size\": 30}, \"slots\": [{\"name\": \"image\", "
             "\"type\": \"float\", \"dim\": 144}, {\"name\": \"label\", "
             "\"type\": \"%s\", \"role\": \"label\"}]}",
             keys, file, file, type);
    return fleet_train_from_config(
        test_file("config.json", text),
        &(fleet_config_options){.log_level = FLEET_LOG_SILENT}, line);
}

TEST(a_configuration_trains_it)
{
    char *line = NULL;
    const char *accuracy;

    CHECK_OK(by_config(", \"height\": 12, \"width\": 12, \"hidden\": [8]",
                       "uint64", &line));
    CHECK_CONTAINS(line, "\"model\":\"lenet\"");
    accuracy = strstr(line, "\"accuracy\":");
    CHECK(accuracy && atof(accuracy + strlen("\"accuracy\":")) > 0.8);
    fleet_free(line);
}

TEST(what_is_no_image_is_refused_by_name)
{
    char *line = NULL;

    CHECK_FAILS(by_config("", "uint64", &line), FLEET_ECONFIG,
                "model: images of 1 x 28 x 28 (channels, height, width), but "
                "slot \"image\" has 144 numbers");
    CHECK_FAILS(by_config(", \"height\": 0", "uint64", &line), FLEET_ECONFIG,
                "model.height: expected an integer from 1 to 32768, got 0");
    CHECK_FAILS(by_config(", \"height\": 9, \"width\": 16", "uint64", &line),
                FLEET_ESHAPE, "conv2d: a kernel that spreads over 5 is larger");
    CHECK_FAILS(by_config(", \"height\": 12, \"width\": 12", "float", &line),
                FLEET_ECONFIG, "the label of model lenet is a class");
}

TEST(options_that_cannot_be_are_refused)
{
    const fleet_lenet_options no[] = {{.classes = 1},
                                      {.n_hidden = -1},
                                      {.height = -3},
                                      {.channels = 1 << 20}};
    static const char *const words[] = {
        "lenet: 1 classes and 0 hidden layers", "lenet: 10 classes and -1",
        "lenet: images of 1 x -3 x 28; expected 1 to",
        "lenet: images of 1048576 x 28 x 28"};

    for (int i = 0; i < 4; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);

        CHECK(fleet_lenet(p, &no[i], NULL) == NULL);
        CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words[i]);
        fleet_destroy(f);
    }
}
