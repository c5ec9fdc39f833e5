/* predictor_test.c - inference models: a predictor scores as its model does,
 * for any number of threads, in a child, while another model takes its place.
 */
#define _GNU_SOURCE
#define SUITE predictor
#include "model_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/inference_internal.h"
#include "runtime/exec/compile.h"
#include "train_kit.h"

typedef struct batch {
    float dense[40 * 3], want[40], got[40];
    int64_t u[40], v[40], w[100], offsets[41];
    int n;
} batch;

static void fill(batch *b, int n)
{
    b->n = n;
    for (int i = 0; i < n; i++) {
        b->u[i] = i * 7 % 60; /* some were never seen in training */
        b->v[i] = i % 25;
        b->offsets[i + 1] = b->offsets[i] + i % 3;
        for (int j = 0; j < 3; j++)
            b->dense[i * 3 + j] = (float)((i * 13 + j * 5) % 20) / 10 - 1;
        for (int64_t j = b->offsets[i]; j < b->offsets[i + 1]; j++)
            b->w[j] = j * 31 % 400;
    }
}

static int feeds_of(const batch *b, int64_t dims[2][2], fleet_feed *feed)
{
    dims[0][0] = dims[1][0] = b->n;
    dims[0][1] = 3;
    dims[1][1] = 1;
    feed[0] = (fleet_feed){"dense", FLEET_FLOAT32, b->dense, dims[0], 2, NULL};
    feed[1] = (fleet_feed){"u", FLEET_INT64, b->u, dims[1], 2, NULL};
    feed[2] = (fleet_feed){"v", FLEET_INT64, b->v, dims[1], 2, NULL};
    feed[3] = (fleet_feed){"w", FLEET_INT64, b->w, dims[1], 1, b->offsets};
    return 4;
}

static void save_model(scene *s, const char *path)
{
    fleet_var *feed[] = {
        fleet_program_var(s->p, "dense"), fleet_program_var(s->p, "u"),
        fleet_program_var(s->p, "v"), fleet_program_var(s->p, "w")};

    CHECK_OK(
        fleet_save_inference_model(s->f, path, feed, 4, &s->m.prediction, 1));
}

/* A predictor of a trained scene, and what the scene's own executor says. */
static fleet_predictor *predictor_of(scene *s, batch *b)
{
    const char *path = test_path("model");
    fleet_executor_options test = {.for_test = 1};
    fleet_fetch fetch = {s->m.prediction, b->want, sizeof b->want, {0}, 0};
    fleet_feed feed[4];
    int64_t dims[2][2];
    fleet_predictor *p;

    s->tester = fleet_executor_create(s->p, &test);
    CHECK_OK(fleet_executor_run(s->tester, feed, feeds_of(b, dims, feed),
                                &fetch, 1));
    save_model(s, path);
    p = fleet_load_inference_model(path);
    if (!p)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    return p;
}

TEST(a_predictor_scores_the_same_to_the_bit)
{
    size_t size = sizeof((batch *)0)->got;
    fleet_feed feed[4];
    int64_t dims[2][2];
    fleet_predictor *p;
    batch b = {0};
    scene s;

    scene_trained(&s, "adam", 7);
    fill(&b, 40);
    p = predictor_of(&s, &b);
    CHECK_INT(fleet_predictor_input_num(p), 4);
    CHECK_INT(fleet_predictor_output_num(p), 1);
    CHECK_OK(fleet_predictor_run(p, feed, feeds_of(&b, dims, feed),
                                 (void *[]){b.got}, &size, 1));
    CHECK(memcmp(b.got, b.want, 40 * sizeof(float)) == 0);
    CHECK(b.got[0] > 0 && b.got[0] < 1);
    fleet_predictor_destroy(p);
    scene_close(&s);
}

TEST(a_predictor_goes_on_in_a_child_and_with_batches_of_any_size)
{
    size_t size = sizeof((batch *)0)->got;
    fleet_feed feed[4];
    int64_t dims[2][2];
    fleet_predictor *p;
    int status;
    batch b = {0};
    pid_t child;
    scene s;

    scene_trained(&s, "adam", 7);
    fill(&b, 40);
    p = predictor_of(&s, &b);
    child = fork();
    for (int n = 40; n > 0; n--) {
        memset(b.got, 0, sizeof b.got);
        b.n = n;
        CHECK_OK(fleet_predictor_run(p, feed, feeds_of(&b, dims, feed),
                                     (void *[]){b.got}, &size, 1));
        CHECK(memcmp(b.got, b.want, (size_t)n * sizeof(float)) == 0);
    }
    fleet_predictor_destroy(p); /* each its own */
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    scene_close(&s);
}

typedef struct caller {
    fleet_predictor *p;
    const batch *b;
    int wrong;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    size_t size = sizeof c->b->got;

    for (int i = 0; i < 200; i++) {
        float got[40];
        fleet_feed feed[4];
        int64_t dims[2][2];

        if (fleet_predictor_run(c->p, feed, feeds_of(c->b, dims, feed),
                                (void *[]){got}, &size, 1) != FLEET_OK ||
            memcmp(got, c->b->want, sizeof got) != 0)
            c->wrong++;
    }
    return NULL;
}

TEST(a_predictor_may_be_called_from_many_threads)
{
    pthread_t thread[6];
    caller c[6];
    batch b = {0};
    fleet_predictor *p;
    scene s;

    scene_trained(&s, "adam", 7);
    fill(&b, 40);
    p = predictor_of(&s, &b);
    for (int i = 0; i < 6; i++) {
        c[i] = (caller){p, &b, 0};
        CHECK(pthread_create(&thread[i], NULL, call_often, &c[i]) == 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(c[i].wrong, 0);
    }
    fleet_predictor_destroy(p);
    scene_close(&s);
}

TEST(a_predictor_refuses_what_does_not_fit)
{
    size_t size = 4;
    fleet_feed feed[4];
    int64_t dims[2][2];
    float out;
    fleet_predictor *p;
    batch b = {0};
    scene s;

    scene_trained(&s, "adam", 7);
    fill(&b, 40);
    p = predictor_of(&s, &b);
    CHECK_FAILS(fleet_predictor_run(p, feed, feeds_of(&b, dims, feed),
                                    (void *[]){&out}, &size, 1),
                FLEET_ESHAPE, "160 bytes, but there is room for 4");
    CHECK_FAILS(fleet_predictor_run(p, feed, 3, (void *[]){&out}, &size, 1),
                FLEET_ENOENT, "\"w\" is missing");
    CHECK_FAILS(fleet_predictor_run(p, feed, 4, (void *[]){&out}, &size, 2),
                FLEET_EINVAL, "expected 1 outputs, got 2");
    fleet_predictor_destroy(p);
    CHECK(fleet_load_inference_model("/nonexistent") == NULL);
    CHECK_CONTAINS(fleet_last_error(), "/nonexistent");
    scene_close(&s);
}

TEST(a_predictor_needs_a_save_with_a_program)
{
    scene s;

    CHECK(fleet_load_inference_model(scene_saved(&s, "adam")) == NULL);
    CHECK_STATUS(fleet_last_status(), FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), "saved has no program to predict with");
    CHECK(fleet_load_inference_model(NULL) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "NULL");
    scene_close(&s);
}

/* Whoever predicts has no label. */
static void predicts_without_a_label(bool classes)
{
    const fleet_dense_slot dense = {.name = "dense", .dim = 3};
    const fleet_id_slot id = {.name = "u", .dim = 1};
    const fleet_ctr_options ctr = {
        .dense = &dense, .n_dense = 1, .ids = &id, .n_ids = 1};
    const fleet_mlp_options mlp = {.input = "dense", .dim = 3, .classes = 3};
    fleet_predictor *predictor;
    fleet_var *feed[2];
    fleet_program *p;
    fleet_model m;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    CHECK((classes ? fleet_mlp(p, &mlp, &m) : fleet_ctr_dnn(p, &ctr, &m)) !=
          NULL);
    feed[0] = fleet_program_var(p, "dense");
    feed[1] = fleet_program_var(p, "u");
    CHECK_OK(fleet_save_inference_model(f, test_path("m"), feed, 2 - classes,
                                        &m.prediction, 1));
    predictor = fleet_load_inference_model(test_path("m"));
    CHECK_INT(fleet_predictor_input_num(predictor), 2 - classes);
    fleet_predictor_destroy(predictor);
    fleet_destroy(f);
}

TEST(models_of_classes_are_predicted_without_a_label)
{
    predicts_without_a_label(false);
    predicts_without_a_label(true);
}

/* Whoever feeds a predictor standardizes with the training data's numbers. */
TEST(an_inference_model_has_the_statistics_of_its_data)
{
    static const fleet_transform standard = FLEET_STANDARDIZE;
    static const char *const column = "0";
    const fleet_slot slot = {.name = "x",
                             .columns = &column,
                             .n_column = 1,
                             .transforms = &standard,
                             .n_transform = 1};
    fleet_dataset_options o = {
        .format = FLEET_CSV, .slots = &slot, .n_slot = 1};
    const char *file = test_file("x.csv", "1\n3\n"), *manifest;
    fleet_program *p;
    fleet_dataset *d;
    fleet_var *x, *y;
    char *text;
    size_t size;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    y = fleet_scale(p, x, 2, 0);
    d = fleet_queue_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    CHECK_OK(fleet_dataset_use_statistics_of(d, d));
    CHECK_OK(fleet_save_inference_model(f, test_path("m"), &x, 1, &y, 1));
    manifest = test_path("m/manifest.json");
    CHECK_OK(fl_file_read(manifest, &text, &size));
    CHECK_CONTAINS(text, "\"statistics\"");
    CHECK_CONTAINS(text, "\"mean\":\t[2]");
    fl_free(text);
    fleet_destroy(f);
}

TEST(an_inference_model_must_be_told_all_its_inputs)
{
    fleet_var *feed;
    scene s;

    scene_trained(&s, "adam", 7);
    feed = fleet_program_var(s.p, "dense");
    CHECK_FAILS(fleet_save_inference_model(s.f, test_path("m"), &feed, 1,
                                           &s.m.prediction, 1),
                FLEET_ENOENT, "depends on \"u\"");
    scene_close(&s);
}

/* --- one that is replaced meanwhile --------------------------------------- */

typedef struct saver {
    scene *scene;
    const char *path;
    atomic_bool stop;
    int n_saved;
} saver;

static void *save_on_and_on(void *arg)
{
    saver *s = arg;

    for (; !atomic_load(&s->stop); s->n_saved++)
        save_model(s->scene, s->path);
    return NULL;
}

TEST(a_predictor_may_be_opened_while_another_takes_its_place)
{
    saver save = {.path = test_path("model")};
    pthread_t thread;
    scene a;

    scene_trained(&a, "adam", 7);
    save_model(&a, save.path);
    save.scene = &a;
    pthread_create(&thread, NULL, save_on_and_on, &save);
    for (int i = 0; i < 100; i++) {
        fleet_predictor *p = fleet_load_inference_model(save.path);

        if (!p)
            test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
        fleet_predictor_destroy(p);
    }
    atomic_store(&save.stop, true);
    pthread_join(thread, NULL);
    CHECK(save.n_saved > 0);
    scene_close(&a);
}

enum { WIDE_ROWS = 40, WIDE_IN = 30 };

static fleet_status run_wide(fleet_predictor *p, const float *x, int64_t rows,
                             float *out)
{
    const int64_t dims[] = {rows, WIDE_IN};
    const fleet_feed feed = {"x", FLEET_FLOAT32, x, dims, 2, NULL};

    return fleet_predictor_run(p, &feed, 1, (void *[]){out},
                               (size_t[]){(size_t)rows * sizeof *out}, 1);
}

/* Layers so wide that the rows of a batch share a product; of oneDNN with AVX2
 * the bits may be others. */
TEST(a_row_alone_has_a_small_plan_and_the_score_of_its_batch)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *program = fleet_program_create(f);
    fleet_var *in = kit_data(program, "x", WIDE_IN), *out;
    fleet_fc_options relu = {.activation = FLEET_RELU};
    float x[WIDE_ROWS * WIDE_IN], all[WIDE_ROWS], one;
    fleet_predictor *p;

    for (int i = 0; i < WIDE_ROWS * WIDE_IN; i++)
        x[i] = kit_noise(i, 1);
    out = fleet_fc(program, fleet_fc(program, in, 200, &relu), 200, &relu);
    out = fleet_fc(program, out, 1, NULL);
    CHECK_OK(fleet_save_inference_model(f, test_path("wide"), &in, 1, &out, 1));
    p = fleet_load_inference_model(test_path("wide"));
    CHECK(p != NULL);
    CHECK_OK(run_wide(p, x, WIDE_ROWS, all));
    CHECK_INT(p->idle->executor->last->plan->batch, 64);
    for (int i = 0; i < WIDE_ROWS; i++) {
        CHECK_OK(run_wide(p, x + i * WIDE_IN, 1, &one));
        CHECK_CLOSE(&one, &all[i], 1, 1e-6);
    }
    CHECK_INT(p->idle->executor->last->plan->batch, 4);
    fleet_predictor_destroy(p);
    fleet_destroy(f);
}
