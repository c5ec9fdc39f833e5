/* loss_scaling_cuda_test.c - the steps that scale a loss, on a device: what is
 * not finite is found, the scale shrinks and grows, and rates follow the
 * updates that were not skipped. */
#define SUITE loss_scaling_cuda
#include "device_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/loss_scale.h"
#include "runtime/optim/update_gpu.h"

static const fl_scaling_rules rules = {.first = 64,
                                       .dynamic = true,
                                       .grow_after = 3,
                                       .shrink_after = 2,
                                       .grow = 4,
                                       .shrink = 0.25f};

static fl_device_arg numbers(device_kit *k, const float *x, int64_t n)
{
    return (fl_device_arg){.data = device_kit_make(k, x, (size_t)n * sizeof *x),
                           .cols = 1,
                           .ld = 1,
                           .rows = n,
                           .dtype = FLEET_FLOAT32};
}

static fl_device_arg object(device_kit *k, const void *x, size_t bytes)
{
    return (fl_device_arg){.data = device_kit_make(k, x, bytes),
                           .cols = 1,
                           .rows = (int64_t)bytes,
                           .dtype = FLEET_UINT8};
}

static void run(device_kit *k, const char *name, const void *config,
                const fl_device_arg *arg, int n)
{
    fl_device_step s = {.arg = arg, .n_arg = n, .config = config, .batch = 1};

    device_kit_run(k, name, &s);
}

TEST(the_loss_begins_with_its_scale)
{
    const fl_scaling s = {.scale = 48};
    fl_device_arg arg[2];
    float zero = 0, *got;
    device_kit k;

    device_kit_open(&k, false);
    arg[0] = numbers(&k, &zero, 1);
    arg[1] = object(&k, &s, sizeof s);
    run(&k, "loss.scale", NULL, arg, 2);
    got = device_kit_fetch(&k, arg[0].data, sizeof *got);
    CHECK_NEAR(*got, 48, 0);
    free(got);
    device_kit_drop(&k, arg[0].data);
    device_kit_drop(&k, arg[1].data);
    device_kit_close(&k);
}

/* The blocks that are found with one number at a place. */
static void check_found(device_kit *k, float bad, int64_t place, int block)
{
    enum { N = 3 * FL_SCALING_BLOCK + 5, BLOCKS = 4 };
    float *g = calloc(N, sizeof *g), found[BLOCKS] = {7, 7, 7, 7}, *got;
    fl_device_arg arg[2];

    g[1] = 3e38f;
    g[place] = bad;
    arg[0] = numbers(k, found, BLOCKS);
    arg[1] = numbers(k, g, N);
    run(k, "scaling.check", NULL, arg, 2);
    got = device_kit_fetch(k, arg[0].data, sizeof found);
    for (int i = 0; i < BLOCKS; i++)
        CHECK_NEAR(got[i], i == block, 0);
    free(got);
    free(g);
    device_kit_drop(k, arg[0].data);
    device_kit_drop(k, arg[1].data);
}

TEST(a_number_that_is_not_finite_is_found)
{
    device_kit k;

    device_kit_open(&k, false);
    check_found(&k, 1, 0, -1);
    check_found(&k, INFINITY, 0, 0);
    check_found(&k, -INFINITY, FL_SCALING_BLOCK, 1);
    check_found(&k, NAN, 3 * FL_SCALING_BLOCK - 1, 2);
    check_found(&k, NAN, 3 * FL_SCALING_BLOCK + 4, 3);
    device_kit_close(&k);
}

/* What an update is decided from, and what becomes of it. */
typedef struct decision {
    fl_device_update now;
    fl_scaling scaling;
} decision;

static decision decide(device_kit *k, const fl_scaling_rules *r, decision d,
                       bool bad)
{
    enum { ONE = 1, MORE = 300 };
    const int count[] = {ONE, MORE};
    const fl_scaling_config config = {*r, count};
    float none = 0, found[MORE] = {0};
    fl_device_arg arg[4];
    void *got;

    found[MORE - 1] = bad;
    arg[0] = object(k, &d.now, sizeof d.now);
    arg[1] = object(k, &d.scaling, sizeof d.scaling);
    arg[2] = numbers(k, &none, ONE);
    arg[3] = numbers(k, found, MORE);
    run(k, "scaling.decide", &config, arg, 4);
    got = device_kit_fetch(k, arg[0].data, sizeof d.now);
    memcpy(&d.now, got, sizeof d.now);
    free(got);
    got = device_kit_fetch(k, arg[1].data, sizeof d.scaling);
    memcpy(&d.scaling, got, sizeof d.scaling);
    free(got);
    for (int i = 0; i < 4; i++)
        device_kit_drop(k, arg[i].data);
    return d;
}

static decision fresh(float scale)
{
    decision d = {.now = {.u = {.scale = 0.5f, .lr = 9, .version = 20},
                          .known_skips = 10},
                  .scaling = {.scale = scale, .skipped = 10}};

    for (int i = 0; i <= FL_MOST_UNKNOWN; i++)
        d.now.after[i] = (fl_device_rates){1.0f + (float)i, 11, 12};
    return d;
}

TEST(gradients_are_divided_and_a_bad_one_skips)
{
    decision d;
    device_kit k;

    device_kit_open(&k, false);
    d = decide(&k, &rules, fresh(64), false);
    CHECK_INT(d.now.skip, 0);
    CHECK_NEAR(d.now.u.scale, 0.5 / 64, 0);
    CHECK_INT(d.scaling.skipped, 10);
    d = decide(&k, &rules, fresh(64), true);
    CHECK_INT(d.now.skip, 1);
    CHECK_INT(d.scaling.skipped, 11);
    CHECK_INT(d.scaling.bad, 1);
    CHECK_NEAR(d.scaling.scale, 64, 0);
    device_kit_close(&k);
}

/* The scale after one update for each letter: g, or b for a bad one. */
static float scale_after(device_kit *k, const fl_scaling_rules *r, float scale,
                         const char *updates)
{
    decision d = fresh(scale);

    for (; *updates; updates++)
        d = decide(k, r, d, *updates == 'b');
    return d.scaling.scale;
}

TEST(the_scale_follows_its_rules)
{
    fl_scaling_rules fixed = rules, small = rules;
    device_kit k;

    fixed.dynamic = false;
    small.first = 0.125f;
    device_kit_open(&k, false);
    CHECK_NEAR(scale_after(&k, &rules, 64, "gg"), 64, 0);
    CHECK_NEAR(scale_after(&k, &rules, 64, "ggg"), 256, 0);
    CHECK_NEAR(scale_after(&k, &rules, 64, "ggbggg"), 256, 0);
    CHECK_NEAR(scale_after(&k, &rules, 64, "bgbgb"), 64, 0);
    CHECK_NEAR(scale_after(&k, &rules, 64, "bb"), 16, 0);
    CHECK_NEAR(scale_after(&k, &rules, 2, "bbbb"), 1, 0);
    CHECK_NEAR(scale_after(&k, &small, 0.25f, "bbbb"), 0.125, 0);
    CHECK_NEAR(scale_after(&k, &fixed, 64, "bbbbgggg"), 64, 0);
    CHECK_NEAR(scale_after(&k, &rules, 0x1p127f, "ggg"), 0x1p127f, 0);
    device_kit_close(&k);
}

TEST(rates_and_version_follow_the_updates_that_were_made)
{
    device_kit k;

    device_kit_open(&k, false);
    for (int more = 0; more <= FL_MOST_UNKNOWN; more++) {
        decision d = fresh(64);

        d.scaling.skipped += more;
        d = decide(&k, &rules, d, false);
        CHECK_NEAR(d.now.u.lr, 1 + more, 0);
        CHECK_NEAR(d.now.u.correct_a, 11, 0);
        CHECK_NEAR(d.now.u.correct_b, 12, 0);
        CHECK_INT(d.now.u.version, 20 - more);
    }
    device_kit_close(&k);
}

TEST(an_iteration_that_was_stopped_decides_nothing)
{
    int32_t one = 1;
    decision d = fresh(64);
    device_kit k;

    device_kit_open(&k, false);
    d.now.stop = device_kit_make(&k, &one, sizeof one);
    for (int bad = 0; bad < 2; bad++) {
        decision after = decide(&k, &rules, d, bad);

        CHECK(memcmp(&after, &d, sizeof d) == 0);
    }
    device_kit_drop(&k, (void *)(uintptr_t)d.now.stop);
    device_kit_close(&k);
}
