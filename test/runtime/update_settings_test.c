/* update_settings_test.c - the setters of an optimizer: what they set is in the
 * next update, on a GPU too; within a pass and on a server they are refused. */
#define SUITE update_settings
#include "gpu_kit.h"
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/optim/update_settings.h"

/* --- each of them --------------------------------------------------------- */

static fleet_status set_decay(fleet_optimizer *o)
{
    return fleet_optimizer_set_l2_decay(o, 0.5f);
}

static fleet_status set_clip(fleet_optimizer *o)
{
    return fleet_optimizer_set_global_norm_clip(o, 0.01f);
}

static fleet_status set_l1(fleet_optimizer *o)
{
    return fleet_optimizer_set_l1_decay(o, 0.0625f);
}

static fleet_status set_most(fleet_optimizer *o)
{
    return fleet_optimizer_set_value_clip(o, 0.0005f);
}

static fleet_status set_rate(fleet_optimizer *o)
{
    return fleet_optimizer_set_learning_rate(o, 0.75f);
}

static fleet_status set_pieces(fleet_optimizer *o)
{
    return fleet_optimizer_set_piecewise_decay(o, (int64_t[]){1},
                                               (float[]){0.5f, 0.25f}, 1);
}

static fleet_status set_fall(fleet_optimizer *o)
{
    return fleet_optimizer_set_exponential_decay(o, 0.5f, 1, 0);
}

static fleet_status set_warmed(fleet_optimizer *o)
{
    return fleet_optimizer_set_schedule(
        o, &(fleet_schedule){
               .kind = FLEET_SCHEDULE_COSINE, .steps = 40, .warmup_steps = 7});
}

typedef fleet_status set_one(fleet_optimizer *o);

static set_one *const setters[] = {set_decay, set_l1,     set_clip, set_most,
                                   set_rate,  set_pieces, set_fall, set_warmed};
enum { N_SETTER = sizeof setters / sizeof *setters };

/* --- within a pass -------------------------------------------------------- */

typedef struct watch {
    fleet_optimizer *trains, *other;
    int calls;
} watch;

static int call_setters(void *user, int64_t batches, int64_t samples)
{
    watch *w = user;

    (void)batches, (void)samples;
    for (int i = 0; i < N_SETTER; i++) {
        CHECK_FAILS(setters[i](w->trains), FLEET_ESTATE,
                    "a pass over a dataset is under way: call it between two "
                    "passes");
        CHECK_OK(setters[i](w->other));
    }
    CHECK_CONTAINS(fleet_last_error(), "fleet_optimizer_set_schedule");
    w->calls++;
    return 0;
}

TEST(setters_are_refused_within_a_training_pass_and_change_nothing)
{
    const fleet_options o = {.seed = 5, .num_threads = 1};
    const char *file = scene_file("a.txt", 100, 1);
    uint64_t hash[2];

    for (int i = 0; i < 2; i++) {
        scene s;

        scene_open_as(&s, &o,
                      &(scene_training){.optimizer = "sgd",
                                        .clip = 0.5f,
                                        .value_clip = 0.25f});
        scene_data(&s, file, 32, 1, 0);
        s.e = fleet_executor_create(s.p, NULL);
        watch w = {s.p->training.optimizer, fleet_sgd(s.f, 0.1f), 0};
        fleet_train_options callback = {.on_batch = call_setters, .user = &w};

        CHECK_OK(
            fleet_train_from_dataset(s.e, s.data, i ? &callback : NULL, NULL));
        CHECK_INT(w.calls, i ? 4 : 0);
        hash[i] = scene_hash(&s);
        for (int j = 0; j < N_SETTER; j++)
            CHECK_OK(setters[j](w.trains));
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
        scene_close(&s);
    }
    CHECK(hash[0] == hash[1]);
}

static int call_setters_in_test(void *user, int64_t batches, int64_t samples)
{
    watch *w = user;

    (void)batches, (void)samples;
    CHECK_OK(set_decay(w->trains));
    w->calls++;
    return 0;
}

TEST(a_pass_for_test_takes_them)
{
    watch w = {0};
    fleet_train_options callback = {.on_batch = call_setters_in_test,
                                    .user = &w};
    scene s;

    scene_trained(&s, "adam", 7);
    w.trains = s.p->training.optimizer;
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_infer_from_dataset(s.tester, s.data, &callback, NULL));
    CHECK(w.calls > 0);
    scene_close(&s);
}

/* A pass that fails is over. */
TEST(after_a_pass_that_failed_they_are_taken)
{
    scene s;

    scene_open(&s, NULL, "explode");
    scene_data(&s, scene_file("a.txt", 300, 1), 32, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_STATUS(fleet_train_from_dataset(s.e, s.data, NULL, NULL),
                 FLEET_ENUMERIC);
    CHECK_OK(set_decay(s.p->training.optimizer));
    scene_close(&s);
}

/* --- on a GPU ------------------------------------------------------------- */

static uint64_t n_weights(const char *device, set_one *set, float *weight)
{
    kit_options o = {.optimizer = "sgd",
                     .learning_rate = 0.01f,
                     .clip = 0.5f,
                     .value_clip = 0.25f,
                     .max_batch = 40,
                     .device = device};
    kit_model m;
    int64_t n;

    kit_open(&m, KIT_CTR, &o);
    gpu_kit_train(&m, 3);
    if (set)
        CHECK_OK(set(m.o));
    gpu_kit_train(&m, 3);
    n = gpu_kit_weights(m.f->store, weight);
    kit_close(&m);
    return (uint64_t)n;
}

/* Iterations that are queued, and captured, before and after the call. */
TEST(a_gpu_trains_with_them_as_the_cpu_does)
{
    static float plain[GPU_KIT_MOST], cpu[GPU_KIT_MOST], gpu[GPU_KIT_MOST];

    gpu_kit_open();
    for (int i = 0; i < N_SETTER; i++) {
        uint64_t n = n_weights(NULL, NULL, plain);

        CHECK(n_weights(NULL, setters[i], cpu) == n);
        CHECK(memcmp(plain, cpu, n * sizeof *cpu) != 0);
        if (i > 0 && TEST_SLOWNESS > 10)
            continue; /* one is enough to see what threads share */
        CHECK(n_weights("gpu:0", setters[i], gpu) == n);
        gpu_kit_near(gpu, cpu, (int64_t)n);
    }
    gpu_kit_close();
}

static int64_t n_clipped(const char *device, int merge, float norm,
                         float *weight)
{
    kit_options o = {.optimizer = "sgd",
                     .max_batch = 40,
                     .merge = merge,
                     .norm_clip = norm,
                     .device = device};
    kit_model m;
    int64_t n;

    kit_open(&m, KIT_CTR, &o);
    gpu_kit_train(&m, 6);
    n = gpu_kit_weights(m.f->store, weight);
    kit_close(&m);
    return n;
}

TEST(a_gpu_clips_by_norm_as_the_cpu_does)
{
    static float plain[GPU_KIT_MOST], cpu[GPU_KIT_MOST], gpu[GPU_KIT_MOST];

    gpu_kit_open();
    for (int merge = 1; merge <= 2; merge++) {
        int64_t n = n_clipped(NULL, merge, 0, plain);

        CHECK_INT(n_clipped(NULL, merge, 0.003f, cpu), n);
        CHECK(memcmp(plain, cpu, (size_t)n * sizeof *cpu) != 0);
        CHECK_INT(n_clipped("gpu:0", merge, 0.003f, gpu), n);
        gpu_kit_near(gpu, cpu, n);
    }
    gpu_kit_close();
}

/* --- compared ------------------------------------------------------------- */

static void check_difference(fl_update_settings a, fl_update_settings b,
                             const char *want)
{
    fl_text t = {0};

    CHECK(fl_update_settings_differ(&a, "worker 3", &b, "worker 17", &t) ==
          (want != NULL));
    CHECK_TEXT(fl_text_chars(&t), want ? want : "");
    fl_text_done(&t);
}

TEST(what_differs_first_is_named_with_both_values)
{
    const fl_update_settings s = {0.1f, 0, 2, 0, 0};

    check_difference(s, s, NULL);
    check_difference(s, (fl_update_settings){0.05f, 1, 2, 0, 0},
                     "learning_rate is 0.1 in worker 3, 0.05 in worker 17");
    check_difference(s, (fl_update_settings){0.1f, 1e-4f, 3, 0, 0},
                     "l2_decay is 0 in worker 3, 0.0001 in worker 17");
    check_difference(s, (fl_update_settings){0.1f, 0, 0, 0, 0},
                     "global_norm_clip is 2 in worker 3, 0 in worker 17");
    check_difference(s, (fl_update_settings){0.1f, 0, 2, 0.5f, 0},
                     "value_clip is 0 in worker 3, 0.5 in worker 17");
    check_difference(s, (fl_update_settings){0.1f, 0, 2, 0, 3},
                     "l1_decay is 0 in worker 3, 3 in worker 17");
}

TEST(settings_that_no_optimizer_has_are_refused_by_name)
{
    CHECK_OK(fl_update_settings_check(&(fl_update_settings){0.1f, 0, 0, 0, 0}));
    CHECK_OK(fl_update_settings_check(&(fl_update_settings){0, 0, 0, 0, 0}));
    CHECK_FAILS(
        fl_update_settings_check(&(fl_update_settings){NAN, 0, 0, 0, 0}),
        FLEET_EINVAL, "learning_rate: nan is out of range");
    CHECK_FAILS(fl_update_settings_check(&(fl_update_settings){1, -1, 0, 0, 0}),
                FLEET_EINVAL, "l2_decay: -1 is out of range");
    CHECK_FAILS(
        fl_update_settings_check(&(fl_update_settings){1, 0, INFINITY, 0, 0}),
        FLEET_EINVAL, "global_norm_clip: inf is out of range");
    CHECK_FAILS(
        fl_update_settings_check(&(fl_update_settings){.value_clip = -1}),
        FLEET_EINVAL, "value_clip: -1 is out of range");
    CHECK_FAILS(
        fl_update_settings_check(&(fl_update_settings){.l1_decay = NAN}),
        FLEET_EINVAL, "l1_decay: nan is out of range");
}

/* What an earlier call had set, and no call has undone. */
TEST(the_hash_is_of_what_counts)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_optimizer *a = fleet_sgd(f, 0.1f), *b = fleet_sgd(f, 0.1f);
    uint64_t before = fl_optimizer_settings_hash(a);

    CHECK(fl_optimizer_settings_hash(b) == before);
    for (int i = 0; i < N_SETTER; i++) {
        uint64_t hash;

        CHECK_OK(setters[i](a));
        hash = fl_optimizer_settings_hash(a);
        CHECK(hash != before);
        before = hash;
    }
    CHECK_OK(set_decay(b));
    CHECK_OK(set_l1(b));
    CHECK_OK(set_clip(b));
    CHECK_OK(set_most(b));
    CHECK_OK(set_rate(b));
    CHECK_OK(set_warmed(b));
    CHECK(fl_optimizer_settings_hash(b) == before);
    CHECK_OK(fleet_optimizer_set_piecewise_decay(b, (int64_t[]){1},
                                                 (float[]){0.5f, 0.2f}, 1));
    CHECK_OK(set_pieces(a));
    CHECK(fl_optimizer_settings_hash(b) != fl_optimizer_settings_hash(a));
    fleet_destroy(f);
}
