/* test_gpu_train.c - programs on a GPU compute what they do on the CPU: models
 * with each optimizer, merged, clipped, with parts on either side; what is read
 * and written here while they train there; and what is refused. */
#define SUITE gpu_train
#include "crew.h"
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/handle.h"
#include "runtime/executor.h"

enum { MOST = 1 << 16 };

/* --- the same as on the CPU ------------------------------------------------
 */

/* All dense parameters, one after the other. */
static int64_t weights_of(fl_store *s, float *w)
{
    int64_t n = 0;

    CHECK_OK(fl_store_here(s));
    for (const fl_group *g = s->groups; g; g = g->next) {
        memcpy(w + n, g->weight, (size_t)g->n * sizeof *w);
        n += g->n;
    }
    CHECK(n > 0 && n <= MOST);
    return n;
}

/* Batches of several sizes. */
static void train(kit_model *m, int batches)
{
    for (int i = 0; i < batches; i++) {
        kit_batch *b = kit_batch_for(m, 40 - 7 * (i % 3), i);

        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
    CHECK_OK(fleet_executor_flush(m->e));
}

static void check_weights(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-4f * fmaxf(1, fabsf(b[i]))))
            test_fail(__FILE__, __LINE__, "weight %lld is %.8g, not %.8g",
                      (long long)i, (double)a[i], (double)b[i]);
}

static void agree(kit_kind kind, kit_options o, const char *device,
                  const char *guard)
{
    static float here[MOST], there[MOST];
    kit_model a, b;
    int64_t n;

    o.max_batch = 40;
    kit_open(&a, kind, &o);
    o.device = device;
    o.guard = guard;
    kit_open(&b, kind, &o);
    train(&a, 6);
    train(&b, 6);
    n = weights_of(a.f->store, here);
    CHECK_INT(weights_of(b.f->store, there), n);
    check_weights(there, here, n);
    kit_close(&a);
    kit_close(&b);
}

static void agree_both(kit_options o, const char *device, const char *guard)
{
    gpu_kit_open();
    agree(KIT_MLP, o, device, guard);
    agree(KIT_CTR, o, device, guard);
    gpu_kit_close();
}

TEST(models_agree_with_each_optimizer)
{
    static const char *const all[] = {"sgd", "momentum", "adagrad", "adam"};

    for (int i = 0; i < 4; i++)
        agree_both((kit_options){.optimizer = all[i],
                                 .learning_rate = 0.01f,
                                 .l2_decay = 0.01f},
                   "gpu:0", NULL);
}

TEST(models_agree_that_merge_and_clip)
{
    agree_both((kit_options){.merge = 2, .clip = 0.1f, .optimizer = "sgd"},
               "gpu:0", NULL);
    agree_both((kit_options){.merge = 4, .sum = true, .optimizer = "sgd"},
               "gpu:0", NULL);
}

TEST(models_agree_whose_operators_are_guarded)
{
    agree_both((kit_options){.optimizer = "sgd"}, "gpu:0", "cpu");
    agree_both((kit_options){.optimizer = "sgd", .clip = 0.1f, .merge = 2},
               "cpu", "gpu:0");
}

TEST(models_agree_that_servers_keep)
{
    static const kit_options o = {.optimizer = "sgd", .clip = 0.1f};
    static float here[MOST], there[MOST];
    kit_options on_gpu = o;
    crew a, b;
    work k;

    gpu_kit_open();
    on_gpu.device = "gpu:0";
    for (int sync = 0; sync < 2; sync++) {
        crew_open(&a, 1, sync, KIT_CTR, &o);
        crew_open(&b, 1, sync, KIT_CTR, &on_gpu);
        work_open(&k, &a.m[0], 6, 20);
        for (int i = 0; i < 6; i++) {
            CHECK_OK(crew_train(a.m[0].e, &k, i, 1));
            CHECK_OK(crew_train(b.m[0].e, &k, i, 1));
        }
        int64_t n = weights_of(a.server.store, here);
        CHECK_INT(weights_of(b.server.store, there), n);
        check_weights(there, here, n);
        work_close(&k);
        crew_close(&a);
        crew_close(&b);
    }
    gpu_kit_close();
}

/* --- what is read and written here -----------------------------------------
 */

static kit_model on_gpu(kit_kind kind, kit_options o)
{
    kit_model m;

    o.device = "gpu:0";
    o.max_batch = 40;
    kit_open(&m, kind, &o);
    return m;
}

TEST(saves_and_hashes_move_between_the_two)
{
    kit_model there, here;
    const char *path = test_path("save"), *back = test_path("back");
    uint64_t hash;

    gpu_kit_open();
    there = on_gpu(KIT_CTR, (kit_options){.seed = 1});
    train(&there, 4);
    hash = kit_hash(there.f);
    CHECK_OK(fleet_save_persistables(there.f, path));
    kit_open(&here, KIT_CTR, &(kit_options){.seed = 2, .max_batch = 40});
    CHECK_OK(fleet_load_model(here.f, path));
    CHECK(kit_hash(here.f) == hash);
    train(&here, 3);
    hash = kit_hash(here.f);
    CHECK_OK(fleet_save_persistables(here.f, back));
    CHECK_OK(fleet_load_model(there.f, back));
    CHECK(kit_hash(there.f) == hash);
    train(&here, 3); /* with the states that came along */
    train(&there, 3);
    {
        static float a[MOST], b[MOST];
        int64_t n = weights_of(here.f->store, a);

        weights_of(there.f->store, b);
        check_weights(b, a, n);
    }
    kit_close(&there);
    kit_close(&here);
    gpu_kit_close();
}

/* The loss of a batch, by an executor for test at a place. */
static float loss_at(const kit_model *m, fleet_place place)
{
    fleet_executor_options o = {.for_test = 1, .place = place};
    fleet_executor *e = fleet_executor_create(m->p, &o);
    kit_batch *b = kit_batch_for(m, 33, 5);
    float loss;

    CHECK(e != NULL);
    loss = kit_step(e, b, m->m.loss);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    return loss;
}

TEST(evaluation_on_either_side_sees_what_the_gpu_has_trained)
{
    kit_model m;
    float before;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = on_gpu((kit_kind)kind, (kit_options){0});
        before = loss_at(&m, FLEET_CPU);
        train(&m, 5);
        CHECK_NEAR(loss_at(&m, 0), loss_at(&m, FLEET_CPU), 1e-5);
        CHECK(fabsf(loss_at(&m, FLEET_CPU) - before) > 1e-3f);
        kit_close(&m);
    }
    gpu_kit_close();
}

/* Two executors of one program, in turn, each where it is. */
TEST(training_goes_on_where_the_other_side_has_left_it)
{
    static float a[MOST], b[MOST];
    fleet_executor *first, *second;
    kit_model both, one;
    int64_t n;

    gpu_kit_open();
    both = on_gpu(KIT_MLP, (kit_options){.optimizer = "momentum"});
    kit_open(&one, KIT_MLP, &(kit_options){.optimizer = "momentum"});
    first = both.e;
    second = fleet_executor_create(
        both.p, &(fleet_executor_options){.place = FLEET_CPU});
    CHECK(second != NULL);
    for (int i = 0; i < 3; i++) {
        both.e = i % 2 ? second : first;
        train(&both, 2);
        train(&one, 2);
    }
    both.e = first;
    n = weights_of(one.f->store, a);
    weights_of(both.f->store, b);
    check_weights(b, a, n);
    fleet_executor_destroy(second);
    kit_close(&both);
    kit_close(&one);
    gpu_kit_close();
}

TEST(a_fetched_parameter_is_the_one_after_the_update)
{
    static float w[MOST], all[MOST];
    const fl_param *p;
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = on_gpu(KIT_MLP, (kit_options){0});
    b = kit_batch_for(&m, 40, 1);
    p = m.f->store->params.entry[0].value;
    CHECK_OK(kit_fetch(m.e, b, fleet_program_var(m.p, p->name), w, p->n));
    weights_of(m.f->store, all);
    CHECK(memcmp(w, all + p->offset, (size_t)p->n * sizeof *w) == 0);
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

/* --- failures --------------------------------------------------------------
 */

/* The batch that is wrong, then good ones until it is said. */
static fleet_status run_until_said(kit_model *m, kit_batch *bad)
{
    fleet_status status = kit_run(m->e, bad);

    for (int i = 0; i < 3 && status == FLEET_OK; i++) {
        kit_batch *b = kit_batch_for(m, 40, i);

        status = kit_run(m->e, b);
        kit_batch_free(b);
    }
    return status;
}

/* Nothing of the batch, nor of those behind it, has changed anything; then
 * training goes on. */
static void check_refused(kit_model *m, kit_batch *bad, fleet_status code,
                          const char *words)
{
    uint64_t hash;
    int64_t updates;

    train(m, 2);
    hash = kit_hash(m->f);
    updates = m->f->store->updates;
    CHECK_FAILS(run_until_said(m, bad), code, words);
    CHECK_OK(fleet_executor_flush(m->e));
    CHECK(kit_hash(m->f) == hash);
    CHECK_INT(m->f->store->updates, updates);
    train(m, 2);
    CHECK(kit_hash(m->f) != hash);
    CHECK_INT(m->f->store->updates, updates + 2);
    kit_batch_free(bad);
    kit_close(m);
}

TEST(a_loss_that_is_not_finite_is_said_and_nothing_is_updated)
{
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = on_gpu(KIT_MLP, (kit_options){0});
    b = kit_batch_for(&m, 40, 3);
    ((float *)(void *)(uintptr_t)b->feed[0].data)[33] = NAN;
    check_refused(&m, b, FLEET_ENUMERIC,
                  "batch 3: the loss is not finite (gpu:0)");
    gpu_kit_close();
}

TEST(a_label_out_of_range_is_said_and_nothing_is_updated)
{
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = on_gpu(KIT_MLP, (kit_options){0});
    b = kit_batch_for(&m, 40, 3);
    ((int64_t *)(void *)(uintptr_t)b->feed[1].data)[7] = 99;
    check_refused(&m, b, FLEET_EINVAL, "of sample 7 is out of range");
    CHECK_CONTAINS(fleet_last_error(), "batch 3");
    gpu_kit_close();
}

/* Rows are the CPU's: it waits for the loss before it changes them. */
TEST(rows_are_not_changed_by_a_loss_that_is_not_finite)
{
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = on_gpu(KIT_CTR, (kit_options){0});
    b = kit_batch_for(&m, 40, 3);
    ((float *)(void *)(uintptr_t)b->feed[0].data)[3] = NAN;
    check_refused(&m, b, FLEET_ENUMERIC, "batch 3: the loss is not finite");
    gpu_kit_close();
}

TEST(a_gpu_that_does_not_end_is_given_up_at_the_deadline)
{
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = on_gpu(KIT_MLP, (kit_options){0});
    m.e->placing.gpu->deadline_ms = 20;
    b = kit_batch_for(&m, 40, 1);
    CHECK_OK(kit_run(m.e, b));
    gpu_kit_control()->set_busy(true);
    CHECK_FAILS(fleet_executor_flush(m.e), FLEET_ETIMEDOUT,
                "device 0 (emulated) was not done after 20 ms");
    gpu_kit_control()->set_busy(false);
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

static fleet_status try_all(kit_kind kind)
{
    kit_options o = {.device = "gpu:0", .max_batch = 40};
    fleet_status status = FLEET_ENOMEM;
    kit_model m;
    kit_batch *b;

    kit_build(&m, kind, &o);
    m.e = fleet_executor_create(m.p, NULL);
    b = kit_batch_for(&m, 40, 1);
    if (m.e)
        status = kit_run(m.e, b);
    if (status == FLEET_OK)
        status = fleet_executor_flush(m.e);
    kit_batch_free(b);
    kit_close(&m);
    return status;
}

TEST(memory_of_the_gpu_that_runs_out_is_said_and_none_is_lost)
{
    fl_device_options strict = {.strict_fp32 = true};
    fleet_status status = FLEET_ENOMEM;
    fl_gpu *held;
    int n = 0;

    gpu_kit_open();
    CHECK_OK(fl_gpu_open(0, &strict, &held)); /* for all of them */
    for (; n < 400 && status != FLEET_OK; n++) {
        gpu_kit_control()->fail_at(n + 1);
        status = try_all(n % 2 ? KIT_MLP : KIT_CTR);
        if (status != FLEET_OK)
            CHECK_INT(status, FLEET_ENOMEM);
    }
    CHECK(n > 10 && n < 400);
    gpu_kit_control()->fail_at(0);
    fl_gpu_close(held);
    gpu_kit_close();
}

/* --- what is refused -------------------------------------------------------
 */

TEST(a_step_without_a_kernel_is_named)
{
    static const char words[] = "what minimize() adds has no kernel "
                                "\"lars.norm\" on gpu:0 (emulated)";
    kit_options o = {.layers = "lars", .device = "gpu:0"};
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    kit_open(&m, KIT_MLP, &o);
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED, words);
    CHECK_CONTAINS(fleet_last_error(), "allow_cpu");
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

TEST(or_it_runs_on_the_cpu_if_that_is_allowed)
{
    agree_both((kit_options){.layers = "lars", .allow_cpu = true}, "gpu:0",
               NULL);
}

TEST(mixed_precision_is_refused_by_name)
{
    kit_model m;
    kit_batch *b;

    kit_need_bf16();
    gpu_kit_open();
    m = on_gpu(KIT_MLP, (kit_options){.bf16 = true});
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED,
                "gpu:0: strategy.amp is not there");
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

TEST(places_that_cannot_be_are_refused)
{
    fleet *f;
    fleet_program *p;
    fleet_place place;
    kit_model m;

    gpu_kit_open();
    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    CHECK_FAILS(fleet_place_parse("gpu", &place), FLEET_EINVAL,
                "device \"gpu\": expected \"cpu\" or \"gpu:0\"");
    CHECK_FAILS(fleet_place_parse("gpu:-1", &place), FLEET_EINVAL, "gpu:-1");
    CHECK_FAILS(fleet_place_parse("gpu:1x", &place), FLEET_EINVAL, "gpu:1x");
    CHECK_OK(fleet_place_parse("gpu:3", &place));
    CHECK_INT(place, FLEET_GPU(3));
    CHECK_FAILS(fleet_program_place(p, place, NULL), FLEET_ENODEVICE,
                "there is no device 3");
    CHECK_FAILS(fleet_program_place(p, -2, NULL), FLEET_EINVAL, "place -2");
    CHECK_FAILS(fleet_device_guard(p, "tpu:0"), FLEET_EINVAL, "tpu:0");
    CHECK_OK(fleet_device_guard(p, "gpu:0"));
    gpu_kit_control()->set_devices(2);
    CHECK_FAILS(fleet_device_guard(p, "gpu:1"), FLEET_EUNSUPPORTED,
                "the program uses gpu:0");
    fleet_destroy(f);

    m = on_gpu(KIT_MLP, (kit_options){0});
    CHECK_FAILS(fleet_program_place(m.p, FLEET_CPU, NULL), FLEET_ESTATE,
                "the program has run");
    kit_close(&m);
    gpu_kit_close();
}
