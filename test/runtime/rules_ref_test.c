/* rules_ref_test.c - the update rules against PyTorch's own optimizers, over
 * 100 updates (rules_ref.py): dense weights and rows, on each instruction set.
 * What GPUs compute has the CPU's bits: cuda_kernels compares them. */
#define SUITE rules_ref
#include "golden.h"
#include "test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/config/config_internal.h"
#include "fleet/job/handle.h"
#include "runtime/optim/optimizer.h"
#include "runtime/simd/simd.h"

enum { N = 7 };

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898) * 0.99f;
}

/* A row as a table keeps it; dense weights and their states, too. */
typedef struct trained {
    fl_row_head head;
    float w[(1 + FL_MAX_STATE) * N];
} trained;

static void run_update(const fleet_optimizer *o, const fl_simd *simd,
                       trained *dense, trained *rows, int64_t t)
{
    float g[N], *state[] = {dense->w + N, dense->w + 2 * N}, *w = rows->w;
    const float *gradients = g;
    fl_update u;

    fl_optimizer_update(o, t, 1, &u);
    for (int i = 0; i < N; i++)
        g[i] = noise(1000 + N * t + i);
    fl_rule_set_on(simd)->of[o->kind].dense(&u, dense->w, g, state, N);
    fl_rule_set_on(simd)->of[o->kind].rows(&u, &w, &gradients, 1, N);
}

static void check_weights(const char *name, const trained *x, const char *words,
                          int64_t t)
{
    char *rest;

    for (int i = 0; i < N; i++) {
        double want = strtod(words, &rest);

        CHECK(rest != words);
        words = rest;
        if (!(fabs((double)x->w[i] - want) <= 1e-5 * fmax(1, fabs(want))))
            test_fail(__FILE__, __LINE__,
                      "%s, weight %d after %d updates: %.9g, not %.9g", name, i,
                      (int)t, (double)x->w[i], want);
    }
}

/* Lines "after", up to the next case. */
static void check_on(const fleet_optimizer *o, const fl_simd *simd,
                     const char *at)
{
    trained dense = {0}, rows = {0};
    int64_t t = 0, end;
    int n;

    for (int i = 0; i < N; i++)
        dense.w[i] = rows.w[i] = noise(i + 1);
    while (sscanf(at, "after %" SCNd64 "%n", &end, &n) == 1) {
        for (; t < end; t++)
            run_update(o, simd, &dense, &rows, t);
        check_weights(fl_rule_of(o->kind)->name, &dense, at + n, t);
        CHECK(memcmp(dense.w, rows.w, sizeof rows.w) == 0);
        at += strcspn(at, "\n") + 1;
    }
    CHECK(t == 100);
}

static fl_rule_kind check_case(const char *how, const char *lines)
{
    fleet *f;
    fleet_optimizer *o;
    fl_rule_kind kind;
    char text[600];
    fl_config c;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": %.*s, "
             "\"dataset\": {\"format\": \"criteo\", \"train\": [\"a\"]}}",
             (int)strcspn(how, "\n"), how);
    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    o = fl_config_make_optimizer(f, &c.optimizer);
    CHECK(o != NULL);
    for (const fl_simd *const *simd = fl_simd_all(); *simd; simd++)
        check_on(o, *simd, lines);
    kind = o->kind;
    fl_config_done(&c);
    fleet_destroy(f);
    return kind;
}

/* Those that PyTorch has: not those of whole rows, FTRL and StdAdagrad. */
TEST(weights_are_those_of_pytorchs_optimizers_over_a_hundred_updates)
{
    bool seen[FL_N_RULE] = {[FL_RULE_FTRL] = true,
                            [FL_RULE_STD_ADAGRAD] = true,
                            [FL_RULE_ROWWISE_ADAGRAD] = true,
                            [FL_RULE_SHARED_ADAM] = true};
    char *text = golden_read("rules.txt");
    const char *at;

    for (at = text; (at = strstr(at, "case ")) != NULL;) {
        const char *how = at + strlen("case ");

        at = strchr(how, '\n') + 1;
        seen[check_case(how, at)] = true;
    }
    for (int k = 0; k < FL_N_RULE; k++)
        CHECK(seen[k]);
    fl_free(text);
}

TEST(rmsprop_is_three_rules_and_not_two_at_once)
{
    fleet *f;
    fleet_optimizer *o;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    CHECK_INT(fleet_rmsprop(f, 1, NULL)->kind, FL_RULE_RMSPROP);
    CHECK_INT(
        fleet_rmsprop(f, 1, &(fleet_rmsprop_options){.alpha = 0.5f})->kind,
        FL_RULE_RMSPROP);
    o = fleet_rmsprop(
        f, 1, &(fleet_rmsprop_options){.momentum = 0.5f, .alpha = 0.75f});
    CHECK_INT(o->kind, FL_RULE_RMSPROP_MOMENTUM);
    CHECK(FL_NUMBER_OF(o, RMSPROP_MOMENTUM, momentum) == 0.5f);
    CHECK(FL_NUMBER_OF(o, RMSPROP_MOMENTUM, alpha) == 0.75f);
    CHECK_INT(
        fleet_rmsprop(f, 1, &(fleet_rmsprop_options){.centered = 1})->kind,
        FL_RULE_RMSPROP_CENTERED);
    CHECK(fleet_rmsprop(f, 1,
                        &(fleet_rmsprop_options){.momentum = 0.5f,
                                                 .centered = 1}) == NULL);
    CHECK_STATUS(fl_last_code(), FLEET_EUNSUPPORTED);
    CHECK_CONTAINS(fleet_last_error(),
                   "rmsprop: momentum 0.5 beside centered: expected one");
    CHECK(fleet_rmsprop(f, 1, &(fleet_rmsprop_options){.momentum = -1}) ==
          NULL);
    CHECK_CONTAINS(fleet_last_error(), "momentum: -1 is out of range");
    CHECK(fleet_adadelta(f, 1, &(fleet_adadelta_options){.rho = 1}) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "rho: 1 is out of range");
    CHECK(fleet_adamax(f, 1, &(fleet_adam_options){.beta2 = NAN}) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "beta2");
    fleet_destroy(f);
}

/* Groups of parameters are padded with such weights. */
TEST(weights_and_states_of_zero_stay_zero_without_a_gradient)
{
    static const trained zero;
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    for (int k = 0; k < FL_N_RULE; k++) {
        const fl_rule *rule = fl_rule_of((fl_rule_kind)k);
        fleet_optimizer *o = fl_handle_optimizer(f, (fl_rule_kind)k, 0.1f,
                                                 (float[FL_MAX_NUMBER]){0});
        trained x = zero;
        const float g[N] = {0};
        float *state[] = {x.w + N, x.w + 2 * N};
        fl_update u;

        CHECK(o != NULL);
        if (rule->n_row > 0)
            continue;
        for (int64_t t = 0; t < 3; t++) {
            fl_optimizer_update(o, t, 1, &u);
            fl_optimizer_dense(o, &(fleet_param_attr){0})(&u, x.w, g, state, N);
        }
        CHECK(memcmp(x.w, zero.w, sizeof x.w) == 0);
    }
    fleet_destroy(f);
}
