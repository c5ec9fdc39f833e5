/* gpu_loss_scaling_test.c - trainings in float16 on a GPU: the loss's scale
 * shrinks and grows, updates that overflowed are skipped and count nowhere,
 * wherever that is decided, and a checkpoint has it all. */
#define SUITE gpu_loss_scaling
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/loss_scale.h"

/* Powers of two, so that dividing by them rounds nothing. */
static fleet_amp_configs scaling(float first, int grow_after, int shrink_after)
{
    return (fleet_amp_configs){.init_loss_scaling = first,
                               .incr_every_n_steps = grow_after,
                               .decr_every_n_nan_or_inf = shrink_after,
                               .incr_ratio = 2,
                               .decr_ratio = 0.5f,
                               .use_dynamic_loss_scaling = 1};
}

enum { NEVER = 1000000 };
static const float huge = 0x1p39f; /* gradients overflow with it */

static float scale_of(const kit_model *m)
{
    float scale = -1;

    CHECK_OK(fleet_get_loss_scaling(m->f, &scale));
    return scale;
}

static int64_t updates_of(const kit_model *m)
{
    CHECK_OK(fleet_executor_flush(m->e));
    return m->f->store->updates;
}

/* Batches [from, to). */
static void train(kit_model *m, int from, int to)
{
    for (int i = from; i < to; i++) {
        kit_batch *b = kit_batch_for(m, 40, i);

        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
}

static kit_model open_model(kit_kind kind, kit_options o,
                            const fleet_amp_configs *c)
{
    o.fp16 = true;
    o.scaling = c;
    return gpu_kit_model(kind, o);
}

/* --- skipped updates ------------------------------------------------------ */

static void check_skipped(kit_model *m)
{
    uint64_t before = kit_hash(m->f);

    train(m, 0, 3);
    CHECK(kit_hash(m->f) == before);
    CHECK_INT(updates_of(m), 0);
    CHECK_NEAR(scale_of(m), huge / 8, 0);
}

static void check_skip(kit_kind kind, kit_options o)
{
    const fleet_amp_configs c = scaling(huge, NEVER, 1);
    kit_model m = open_model(kind, o, &c);

    check_skipped(&m);
    kit_close(&m);
}

TEST(an_update_that_overflows_is_skipped_and_the_scale_shrinks)
{
    static const char *const layers[] = {NULL, "lars", "lamb"};

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        check_skip(KIT_MLP, (kit_options){.layers = layers[i]});
        check_skip(KIT_CTR, (kit_options){.layers = layers[i]});
    }
    check_skip(KIT_MLP, (kit_options){.clip = 0.1f});
    check_skip(KIT_CTR, (kit_options){.clip = 0.1f});
    check_skip(KIT_CTR, (kit_options){.norm_clip = 0.1f});
    gpu_kit_close();
}

/* Operators, and rows, alone are on the GPU: the CPU decides. */
TEST(an_update_here_is_skipped_as_one_there)
{
    static const char *const layers[] = {NULL, "lars", "lamb"};
    const fleet_amp_configs c = scaling(huge, NEVER, 1);
    kit_options o = {.device = "cpu",
                     .guard = "gpu:0",
                     .fp16 = true,
                     .scaling = &c,
                     .max_batch = 40};
    kit_model m;

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        o.layers = layers[i];
        for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
            kit_open(&m, (kit_kind)kind, &o);
            check_skipped(&m);
            kit_close(&m);
        }
    }
    gpu_kit_close();
}

TEST(it_shrinks_after_so_many_updates_in_a_row)
{
    const fleet_amp_configs c = scaling(huge, NEVER, 3);
    kit_model m;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = open_model((kit_kind)kind, (kit_options){0}, &c);
        train(&m, 0, 2);
        CHECK_NEAR(scale_of(&m), huge, 0);
        train(&m, 2, 3);
        CHECK_NEAR(scale_of(&m), huge / 2, 0);
        train(&m, 3, 6);
        CHECK_NEAR(scale_of(&m), huge / 4, 0);
        CHECK_INT(updates_of(&m), 0);
        kit_close(&m);
    }
    gpu_kit_close();
}

TEST(a_scale_that_is_not_dynamic_stays_and_such_updates_are_skipped)
{
    fleet_amp_configs c = scaling(huge, 1, 1);
    uint64_t before;
    kit_model m;

    gpu_kit_open();
    c.use_dynamic_loss_scaling = 0;
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    before = kit_hash(m.f);
    train(&m, 0, 4);
    CHECK(kit_hash(m.f) == before);
    CHECK_NEAR(scale_of(&m), huge, 0);
    kit_close(&m);
    c.init_loss_scaling = 64;
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    train(&m, 0, 4);
    CHECK_INT(updates_of(&m), 4);
    CHECK_NEAR(scale_of(&m), 64, 0);
    kit_close(&m);
    gpu_kit_close();
}

static float shrunk(float first, float scale)
{
    const fl_scaling_rules r = {
        .first = first, .dynamic = true, .shrink_after = 1, .shrink = 0.5f};
    fl_scaling s = {.scale = scale};

    fl_scaling_shrink(&r, &s);
    CHECK_INT(s.skipped, 1);
    return s.scale;
}

/* One that is below already was loaded from a training with other rules. */
TEST(a_scale_does_not_shrink_below_one_or_what_it_began_with)
{
    CHECK_NEAR(shrunk(32768, 4), 2, 0);
    CHECK_NEAR(shrunk(32768, 1.5f), 1, 0);
    CHECK_NEAR(shrunk(32768, 1), 1, 0);
    CHECK_NEAR(shrunk(0.5f, 0.75f), 0.5, 0);
    CHECK_NEAR(shrunk(32768, 0.25f), 0.25, 0);
}

/* --- what they leave no trace in ------------------------------------------ */

/* A model whose learning rate and moments' corrections follow the updates. */
static kit_model open_scheduled(kit_kind kind, kit_options o,
                                const fleet_amp_configs *c)
{
    kit_model m;

    o.fp16 = true;
    o.scaling = c;
    o.device = "gpu:0";
    o.max_batch = 40;
    kit_build(&m, kind, &o);
    CHECK_OK(fleet_optimizer_set_exponential_decay(m.o, 0.5f, 2, 0));
    m.e = fleet_executor_create(
        m.p, &(fleet_executor_options){.max_batch = o.max_batch});
    CHECK(m.e != NULL);
    return m;
}

/* The hash of a training that begins with n updates that overflow is that of
 * one that begins behind them, with the scale that they have left. */
static void check_no_trace(kit_kind kind, kit_options o)
{
    enum { SKIPPED = 3, ALL = 12 };
    int merge = o.merge > 1 ? o.merge : 1;
    fleet_amp_configs c = scaling(0x1p38f, NEVER, 1);
    kit_model a, b;

    c.decr_ratio = 0x1p-7f;
    a = open_scheduled(kind, o, &c);
    train(&a, 0, ALL * merge);
    CHECK_NEAR(scale_of(&a), 0x1p17f, 0);
    CHECK_INT(updates_of(&a), ALL - SKIPPED);
    c.init_loss_scaling = 0x1p17f;
    b = open_scheduled(kind, o, &c);
    train(&b, SKIPPED * merge, ALL * merge);
    CHECK_INT(updates_of(&b), ALL - SKIPPED);
    CHECK(kit_hash(b.f) == kit_hash(a.f));
    kit_close(&a);
    kit_close(&b);
}

TEST(skipped_updates_leave_no_trace)
{
    gpu_kit_open();
    check_no_trace(KIT_MLP, (kit_options){.learning_rate = 0.001f});
    check_no_trace(KIT_CTR, (kit_options){.learning_rate = 0.001f});
    check_no_trace(KIT_MLP, (kit_options){.learning_rate = 0.001f, .merge = 2});
    check_no_trace(KIT_MLP,
                   (kit_options){.learning_rate = 0.001f, .layers = "lamb"});
    gpu_kit_close();
}

TEST(an_executor_that_takes_over_knows_what_was_skipped)
{
    const fleet_amp_configs c = scaling(huge, NEVER, 1);
    fleet_executor *first, *second;
    kit_model m;

    gpu_kit_open();
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    first = m.e;
    second =
        fleet_executor_create(m.p, &(fleet_executor_options){.max_batch = 40});
    train(&m, 0, 2);
    m.e = second;
    train(&m, 2, 3);
    CHECK_INT(m.f->store->known_skips, 2);
    m.e = first;
    train(&m, 3, 4);
    CHECK_INT(m.f->store->known_skips, 3);
    CHECK_NEAR(scale_of(&m), huge / 16, 0);
    CHECK_INT(updates_of(&m), 0);
    fleet_executor_destroy(second);
    kit_close(&m);
    gpu_kit_close();
}

/* --- merge groups --------------------------------------------------------- */

TEST(a_group_is_skipped_once)
{
    const fleet_amp_configs c = scaling(huge, NEVER, 1);
    kit_model m;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = open_model((kit_kind)kind, (kit_options){.merge = 3}, &c);
        train(&m, 0, 6);
        CHECK_NEAR(scale_of(&m), huge / 4, 0);
        CHECK_INT(updates_of(&m), 0);
        kit_close(&m);
    }
    gpu_kit_close();
}

TEST(a_group_that_ends_with_its_pass_is_skipped_too)
{
    const fleet_amp_configs c = scaling(huge, NEVER, 1);
    uint64_t before;
    kit_model m;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = open_model((kit_kind)kind, (kit_options){.merge = 3}, &c);
        before = kit_hash(m.f);
        train(&m, 0, 2);
        CHECK_INT(updates_of(&m), 0);
        CHECK_NEAR(scale_of(&m), huge / 2, 0);
        CHECK(kit_hash(m.f) == before);
        kit_close(&m);
    }
    gpu_kit_close();
}

/* --- updates that are not skipped ----------------------------------------- */

TEST(a_scale_grows_after_so_many_updates)
{
    const fleet_amp_configs c = scaling(8, 3, 1);
    kit_model m;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = open_model((kit_kind)kind, (kit_options){0}, &c);
        CHECK_NEAR(scale_of(&m), 8, 0);
        train(&m, 0, 7);
        CHECK_NEAR(scale_of(&m), 32, 0);
        CHECK_INT(updates_of(&m), 7);
        kit_close(&m);
    }
    gpu_kit_close();
}

/* Weights after a few batches are those of float, as near as rounding to
 * float16 leaves them. */
static void check_near_float(kit_kind kind, kit_options o)
{
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    const fleet_amp_configs c = scaling(1024, NEVER, 1);
    kit_model a = open_model(kind, o, &c), b;
    int64_t n;

    o.max_batch = 40;
    kit_open(&b, kind, &o);
    train(&a, 0, 4);
    train(&b, 0, 4);
    CHECK_INT(updates_of(&a), updates_of(&b));
    n = gpu_kit_weights(b.f->store, here);
    CHECK_INT(gpu_kit_weights(a.f->store, there), n);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(there[i], here[i], 2e-3);
    kit_close(&a);
    kit_close(&b);
}

TEST(gradients_are_divided_by_the_scale_before_all_else)
{
    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        check_near_float((kit_kind)kind, (kit_options){.optimizer = "sgd"});
        check_near_float((kit_kind)kind,
                         (kit_options){.optimizer = "sgd", .clip = 0.01f});
        check_near_float((kit_kind)kind, (kit_options){.optimizer = "momentum",
                                                       .l2_decay = 0.1f});
        check_near_float(
            (kit_kind)kind,
            (kit_options){.optimizer = "sgd", .merge = 2, .clip = 0.1f});
        check_near_float((kit_kind)kind,
                         (kit_options){.optimizer = "sgd", .norm_clip = 0.01f});
        check_near_float((kit_kind)kind, (kit_options){.layers = "lars"});
    }
    gpu_kit_close();
}

TEST(a_loss_that_is_not_finite_is_a_failure_as_ever)
{
    const fleet_amp_configs c = scaling(1024, NEVER, 1);
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    train(&m, 0, 2);
    b = kit_batch_for(&m, 40, 3);
    ((float *)(uintptr_t)b->feed[0].data)[7] = NAN;
    CHECK_OK(kit_run(m.e, b));
    CHECK_FAILS(fleet_executor_flush(m.e), FLEET_ENUMERIC,
                "batch 3: the loss is not finite");
    CHECK_INT(m.f->store->updates, 2);
    CHECK_NEAR(scale_of(&m), 1024, 0);
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

/* --- checkpoints ---------------------------------------------------------- */

static void check_resumed(kit_kind kind)
{
    const fleet_amp_configs c = scaling(0x1p26f, 4, 1);
    const char *path = test_path("save");
    kit_model a = open_model(kind, (kit_options){.seed = 1}, &c), b;
    uint64_t hash;
    float scale;

    train(&a, 0, 7);
    CHECK_OK(fleet_save_persistables(a.f, path));
    CHECK(scale_of(&a) < c.init_loss_scaling);
    train(&a, 7, 16);
    hash = kit_hash(a.f);
    scale = scale_of(&a);
    b = open_model(kind, (kit_options){.seed = 2}, &c);
    train(&b, 0, 1); /* is forgotten */
    CHECK_OK(fleet_load_model(b.f, path));
    train(&b, 7, 16);
    CHECK(kit_hash(b.f) == hash);
    CHECK_NEAR(scale_of(&b), scale, 0);
    CHECK_INT(updates_of(&b), updates_of(&a));
    kit_close(&a);
    kit_close(&b);
}

TEST(a_checkpoint_resumes_with_its_scale_to_the_bit)
{
    gpu_kit_open();
    check_resumed(KIT_MLP);
    check_resumed(KIT_CTR);
    gpu_kit_close();
}

/* It may grow up to the largest float, and be written with 9 digits. */
TEST(a_checkpoint_with_any_scale_is_loaded)
{
    static const float scales[] = {FLT_MAX, 3.1e38f, 1e-6f};
    const fleet_amp_configs c = scaling(256, NEVER, 1);
    const char *path = test_path("save");
    kit_model m;

    gpu_kit_open();
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    train(&m, 0, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(fl_store_to_host(m.f->store));
        m.f->store->scaling.scale = scales[i];
        fl_store_written(m.f->store);
        CHECK_OK(fleet_save_persistables(m.f, path));
        m.f->store->scaling.scale = 1;
        CHECK_OK(fleet_load_model(m.f, path));
        CHECK_NEAR(scale_of(&m), scales[i], 0);
    }
    kit_close(&m);
    gpu_kit_close();
}

TEST(a_checkpoint_without_a_scale_leaves_the_one_that_is_there)
{
    const fleet_amp_configs c = scaling(256, NEVER, 1);
    const char *path = test_path("save");
    kit_model a, b;

    gpu_kit_open();
    a = gpu_kit_model(KIT_MLP, (kit_options){0});
    gpu_kit_train(&a, 2);
    CHECK_OK(fleet_save_persistables(a.f, path));
    b = open_model(KIT_MLP, (kit_options){0}, &c);
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK_NEAR(scale_of(&b), 256, 0);
    train(&b, 0, 2);
    CHECK_INT(updates_of(&b), 4);
    kit_close(&a);
    kit_close(&b);
    gpu_kit_close();
}

/* --- what is said --------------------------------------------------------- */

TEST(the_scale_is_asked_for_in_vain_without_float16)
{
    float scale;
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    CHECK_FAILS(fleet_get_loss_scaling(m.f, &scale), FLEET_ESTATE,
                "nothing is trained in float16");
    CHECK_FAILS(fleet_get_loss_scaling(m.f, NULL), FLEET_EINVAL, "no scale");
    kit_close(&m);
}

TEST(the_dump_says_that_scaling_is_honoured)
{
    const fleet_amp_configs c = scaling(512, 7, 3);
    char line[200], *dump;
    kit_model m;

    gpu_kit_open();
    m = open_model(KIT_MLP, (kit_options){0}, &c);
    dump = fleet_strategy_dump(m.f);
    snprintf(line, sizeof line, "%-48s %-12s asked    honoured\n",
             "amp_configs.init_loss_scaling", "512");
    CHECK_CONTAINS(dump, line);
    snprintf(line, sizeof line, "%-48s %-12s default  honoured\n",
             "amp_configs.use_dynamic_loss_scaling", "1");
    CHECK_CONTAINS(dump, line);
    CHECK_CONTAINS(dump, "passes amp loss_scaling update");
    fleet_free(dump);
    kit_close(&m);
    gpu_kit_close();
}
