/* rule_test.c - the update rules: against plain arithmetic in double, bit by
 * bit at every split and on every instruction set, dense against rows; the
 * schedules of the learning rate. */
#define SUITE rule
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/job/handle.h"
#include "runtime/optim/optimizer.h"
#include "runtime/simd/simd.h"
#include "runtime/plan/job_signature.h"

enum { N = 70 }; /* weights: several vectors and a tail */

/* --- the scene ----------------------------------------------------------- */

static fleet *handle(void)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    return f;
}

/* Every rule of weights once, momentum, adam and adamw both ways. Those of
 * whole rows are row_rules_test.c's. Epsilons are large enough to be seen where
 * they stand. */
enum { N_RULE = 15 };

static fleet_optimizer *rule(fleet *f, int i)
{
    static const fleet_momentum_options nesterov = {0.8f, 1};
    static const fleet_adagrad_options adagrad = {1e-2f, 0.1f};
    static const fleet_adam_options adam = {0.8f, 0.95f, 1e-3f, 0};
    static const fleet_adam_options row_adam = {0.8f, 0.95f, 1e-3f, 1};
    static const fleet_ftrl_options ftrl = {0.5f, 0.3f, 0.1f};
    static const fleet_adamw_options adamw = {0.8f, 0.95f, 1e-3f, 0, 0.05f};
    static const fleet_adamw_options row_adamw = {0.7f, 0.9f, 1e-3f, 1, 0};
    static const fleet_std_adagrad_options standard = {0.5f};
    static const fleet_adadelta_options adadelta = {0.8f, 1e-3f};
    static const fleet_rmsprop_options rms = {.alpha = 0.9f, .epsilon = 1e-2f};
    static const fleet_rmsprop_options rms_momentum = {0.9f, 1e-2f, 0.7f, 0};
    static const fleet_rmsprop_options rms_centered = {0.9f, 1e-2f, 0, 1};

    switch (i) {
    case 0:
        return fleet_sgd(f, 0.1f);
    case 1:
        return fleet_momentum(f, 0.02f, NULL);
    case 2:
        return fleet_momentum(f, 0.02f, &nesterov);
    case 3:
        return fleet_adagrad(f, 0.1f, &adagrad);
    case 4:
        return fleet_adam(f, 0.01f, &adam);
    case 5:
        return fleet_adam(f, 0.01f, &row_adam);
    case 6:
        return fleet_adamw(f, 0.01f, &adamw);
    case 7:
        return fleet_adamw(f, 0.01f, &row_adamw);
    case 8:
        return fleet_std_adagrad(f, 0.1f, &standard);
    case 9:
        return fleet_adamax(f, 0.01f, &row_adam);
    case 10:
        return fleet_adadelta(f, 0.5f, &adadelta);
    case 11:
        return fleet_rmsprop(f, 0.01f, &rms);
    case 12:
        return fleet_rmsprop(f, 0.005f, &rms_momentum);
    case 13:
        return fleet_rmsprop(f, 0.01f, &rms_centered);
    default:
        return fleet_ftrl(f, 0.1f, &ftrl);
    }
}

static fl_rule_dense *dense_of(const fl_simd *t, fl_rule_kind kind)
{
    return fl_rule_set_on(t)->of[kind].dense;
}

static fl_rule_rows *rows_of(const fl_simd *t, fl_rule_kind kind)
{
    return fl_rule_set_on(t)->of[kind].rows;
}

/* In [-1, 1). */
static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898) * 0.99f;
}

typedef struct weights {
    float w[N], s0[N], s1[N];
    float *state[2];
} weights;

static void start(weights *x, const fleet_optimizer *o)
{
    memset(x, 0, sizeof *x);
    for (int i = 0; i < N; i++) {
        x->w[i] = noise(i + 1);
        x->s0[i] = o->number[FL_FIRST_STATE];
    }
    x->state[0] = x->s0;
    x->state[1] = x->s1;
}

/* Every other update is clipped by value and decays by L1. */
static const float most = 0.125f, l1 = 0.03125f;

static bool is_shaped(int t)
{
    return t % 2 != 0;
}

/* The scalars of step t, with everything that they can say. */
static fl_update update_of(const fleet_optimizer *o, int t)
{
    fl_update u;

    fl_optimizer_update(o, t, 1, &u);
    u.scale = 0.5f;
    u.clip = 0.75f;
    u.decay = 0.01f;
    u.most = is_shaped(t) ? most : 0;
    u.l1 = is_shaped(t) ? l1 : 0;
    return u;
}

static void gradient(float *g, int t)
{
    for (int i = 0; i < N; i++)
        g[i] = noise(1000 + t * N + i);
}

/* --- in double ----------------------------------------------------------- */

typedef struct reference {
    double w, s0, s1;
} reference;

/* As update t + 1 uses it. */
static double gradient_in_double(double g, double w, int t)
{
    double d = g * 0.5 * 0.75;

    if (!is_shaped(t - 1))
        return d + (double)0.01f * w;
    return fmax(-(double)most, fmin((double)most, d)) + (double)0.01f * w +
           (double)l1 * ((w > 0) - (w < 0));
}

/* optimizer.h, word by word. */
static void step_in_double(const fleet_optimizer *o, reference *r, double g0,
                           int t)
{
    double g = gradient_in_double(g0, r->w, t);
    double lr = (double)o->learning_rate, a = (double)o->number[0];
    double b = (double)o->number[1], e = (double)o->number[2], d;

    switch (o->kind) {
    case FL_RULE_SGD:
        r->w -= lr * g;
        break;
    case FL_RULE_MOMENTUM:
        r->s0 = a * r->s0 + g;
        r->w -= lr * (FL_NUMBER_OF(o, MOMENTUM, nesterov) != 0 ? g + a * r->s0
                                                               : r->s0);
        break;
    case FL_RULE_ADAGRAD:
        r->s0 += g * g;
        r->w -= lr * g / (sqrt(r->s0) + e);
        break;
    case FL_RULE_ADAM:
        r->s0 = a * r->s0 + (1 - a) * g;
        r->s1 = b * r->s1 + (1 - b) * g * g;
        r->w -= lr * (r->s0 / (1 - pow(a, t))) /
                (sqrt(r->s1 / (1 - pow(b, t))) + e);
        break;
    case FL_RULE_ADAMW:
        r->s0 = a * r->s0 + (1 - a) * g;
        r->s1 = b * r->s1 + (1 - b) * g * g;
        r->w -= lr * ((r->s0 / (1 - pow(a, t))) /
                          (sqrt(r->s1 / (1 - pow(b, t))) + e) +
                      (double)FL_NUMBER_OF(o, ADAMW, weight_decay) * r->w);
        break;
    case FL_RULE_ADAMAX:
        r->s0 = a * r->s0 + (1 - a) * g;
        r->s1 = fmax(b * r->s1, fabs(g));
        r->w -= lr * r->s0 / (1 - pow(a, t)) / (r->s1 + e);
        break;
    case FL_RULE_ADADELTA: /* a is rho */
        r->s0 = a * r->s0 + (1 - a) * g * g;
        d = g * sqrt(r->s1 + e) / sqrt(r->s0 + e);
        r->s1 = a * r->s1 + (1 - a) * d * d;
        r->w -= lr * d;
        break;
    case FL_RULE_RMSPROP: /* a is alpha, b a momentum */
        r->s0 = a * r->s0 + (1 - a) * g * g;
        r->w -= lr * g / (sqrt(r->s0) + e);
        break;
    case FL_RULE_RMSPROP_MOMENTUM:
        r->s0 = a * r->s0 + (1 - a) * g * g;
        r->s1 = b * r->s1 + g / (sqrt(r->s0) + e);
        r->w -= lr * r->s1;
        break;
    case FL_RULE_RMSPROP_CENTERED:
        r->s0 = a * r->s0 + (1 - a) * g * g;
        r->s1 = a * r->s1 + (1 - a) * g;
        r->w -= lr * g / (sqrt(fmax(0, r->s0 - r->s1 * r->s1)) + e);
        break;
    case FL_RULE_STD_ADAGRAD: /* a is g0 */
        r->w -= lr * g * sqrt(a / (a + r->s0));
        r->s0 += g * g;
        break;
    case FL_RULE_ROWWISE_ADAGRAD:
    case FL_RULE_SHARED_ADAM:
        test_fail(__FILE__, __LINE__, "a rule of whole rows");
    case FL_RULE_FTRL: /* a is beta, b is l1, e is l2 */
        r->s0 += g - (sqrt(r->s1 + g * g) - sqrt(r->s1)) / lr * r->w;
        r->s1 += g * g;
        r->w = 0;
        if (fabs(r->s0) > b)
            r->w = (copysign(b, r->s0) - r->s0) / ((a + sqrt(r->s1)) / lr + e);
        break;
    }
}

static void check_against_double(const fleet_optimizer *o, const fl_simd *simd)
{
    enum { STEPS = 300 };
    reference ref[N];
    weights x;
    float g[N];

    start(&x, o);
    for (int i = 0; i < N; i++)
        ref[i] = (reference){(double)x.w[i], (double)x.s0[i], 0};
    for (int t = 0; t < STEPS; t++) {
        fl_update u = update_of(o, t);

        gradient(g, t);
        dense_of(simd, o->kind)(&u, x.w, g, x.state, N);
        for (int i = 0; i < N; i++) {
            step_in_double(o, &ref[i], (double)g[i], t + 1);
            if (!(fabs((double)x.w[i] - ref[i].w) < 2e-5))
                test_fail(__FILE__, __LINE__, "%s, %s, step %d: %.9g not %.9g",
                          fl_rule_of(o->kind)->name, simd->isa, t,
                          (double)x.w[i], ref[i].w);
        }
    }
}

TEST(each_does_what_its_formula_says_over_many_steps)
{
    fleet *f = handle();

    for (int i = 0; i < N_RULE; i++)
        for (const fl_simd *const *t = fl_simd_all(); *t; t++)
            check_against_double(rule(f, i), *t);
    fleet_destroy(f);
}

/* --- bits ---------------------------------------------------------------- */

static bool same(const weights *a, const weights *b)
{
    return memcmp(a->w, b->w, sizeof a->w) == 0 &&
           memcmp(a->s0, b->s0, sizeof a->s0) == 0 &&
           memcmp(a->s1, b->s1, sizeof a->s1) == 0;
}

/* A few steps, each in two calls that meet at `split`. */
static void run_split(const fleet_optimizer *o, const fl_simd *simd, int split,
                      weights *x)
{
    float g[N];

    start(x, o);
    for (int t = 0; t < 5; t++) {
        fl_update u = update_of(o, t);
        float *rest[] = {x->s0 + split, x->s1 + split};

        gradient(g, t);
        dense_of(simd, o->kind)(&u, x->w, g, x->state, split);
        dense_of(simd, o->kind)(&u, x->w + split, g + split, rest, N - split);
    }
}

TEST(bits_are_the_same_at_every_split_and_on_every_instruction_set)
{
    fleet *f = handle();

    for (int i = 0; i < N_RULE; i++) {
        const fleet_optimizer *o = rule(f, i);
        weights want, got;

        run_split(o, fl_simd_best(), 0, &want);
        for (const fl_simd *const *t = fl_simd_all(); *t; t++)
            for (int split = 0; split <= N; split++) {
                run_split(o, *t, split, &got);
                CHECK(same(&got, &want));
            }
    }
    fleet_destroy(f);
}

/* One step of SGD whose rate is 1. */
static float step_alone(const fl_simd *simd, const fl_update *u, float w,
                        float g)
{
    float many[N], all[N];

    for (int i = 0; i < N; i++) {
        many[i] = w;
        all[i] = g;
    }
    dense_of(simd, FL_RULE_SGD)(u, many, all, NULL, N);
    for (int i = 1; i < N; i++)
        CHECK(memcmp(&many[i], &many[0], sizeof *many) == 0);
    return many[0];
}

TEST(a_clip_by_value_takes_what_is_not_finite_as_pytorch_does)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        const fl_update u = {
            .lr = 1, .scale = 1, .clip = 1, .most = 0.5f, .decay = 0};

        CHECK(step_alone(*t, &u, 0, INFINITY) == -0.5f);
        CHECK(step_alone(*t, &u, 0, -INFINITY) == 0.5f);
        CHECK(step_alone(*t, &u, 0, 0.375f) == -0.375f);
        CHECK(isnan(step_alone(*t, &u, 0, NAN)));
    }
}

/* 2^-149 is the least that a float can be above 0. */
TEST(l1_decay_is_of_the_signs_of_weights_however_small)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        fl_update u = {.lr = 1, .scale = 1, .clip = 1, .l1 = 0.25f};

        CHECK(step_alone(*t, &u, 0x1p-149f, 0) == -0.25f);
        CHECK(step_alone(*t, &u, -0x1p-149f, 0) == 0.25f);
        CHECK(step_alone(*t, &u, 0x1p20f, 0) == 0x1p20f - 0.25f);
        CHECK(step_alone(*t, &u, 0, 0) == 0);
        CHECK(step_alone(*t, &u, 0, INFINITY) == -INFINITY);
        CHECK(isnan(step_alone(*t, &u, NAN, 0)));
        fl_update_change(&u, &(fl_update_rates){1, 0.5f, 0}); /* its own L2 */
        CHECK(step_alone(*t, &u, 1, 0) == 0.25f);
        fl_update_change(&u, &(fl_update_rates){1, 0, 0}); /* no_decay */
        CHECK(step_alone(*t, &u, 1, 0) == 1);
    }
}

/* ((g scale) clip) + decay w, each operation rounded once. */
TEST(scale_clip_and_decay_come_in_their_order)
{
    fleet *f = handle();
    const fleet_optimizer *o = rule(f, 0);
    weights x, before;
    float g[N];

    start(&x, o);
    before = x;
    gradient(g, 0);
    fl_update u = update_of(o, 0);
    u.scale = 1.0f / 3;
    u.clip = 0.7f;
    fl_rule_set_best()->of[FL_RULE_SGD].dense(&u, x.w, g, x.state, N);
    for (int i = 0; i < N; i++) {
        float scaled = g[i] * u.scale, clipped = scaled * u.clip;
        float decay = u.decay * before.w[i], all = clipped + decay;
        float step = u.lr * all;

        CHECK(x.w[i] == before.w[i] - step);
    }
    fleet_destroy(f);
}

TEST(ftrl_has_exact_zeros_where_z_is_within_l1)
{
    fleet *f = handle();
    const fleet_optimizer *o =
        fleet_ftrl(f, 0.1f, &(fleet_ftrl_options){.l1 = 0.5f});
    int zeros = 0;
    weights x;
    float g[N];

    start(&x, o);
    memset(x.w, 0, sizeof x.w);
    for (int t = 0; t < 4; t++) {
        fl_update u;

        fl_optimizer_update(o, t, 1, &u);
        gradient(g, t);
        dense_of(fl_simd_best(), FL_RULE_FTRL)(&u, x.w, g, x.state, N);
    }
    for (int i = 0; i < N; i++) {
        CHECK((x.w[i] == 0) == (fabsf(x.s0[i]) <= 0.5f));
        CHECK(x.w[i] == 0 || (x.w[i] < 0) == (x.s0[i] > 0));
        CHECK(x.w[i] != 0 || !signbit(x.w[i]));
        zeros += x.w[i] == 0;
    }
    CHECK(zeros > 5 && zeros < N - 5);
    fleet_destroy(f);
}

/* With n = 0 and w = 0.5, a gradient of -2 and a rate of 0.25: s = 8,
 * z = -2 - 8 / 2 = -6, and w = 6 / ((1 + 2) / 0.25 + 3). */
TEST(ftrls_first_update_takes_the_initial_weight)
{
    fleet *f = handle();
    const fleet_optimizer *o =
        fleet_ftrl(f, 0.25f, &(fleet_ftrl_options){.l2 = 3});
    float w = 0.5f, z = 0, n = 0, g = -2, nan = NAN;
    fl_update u;

    fl_optimizer_update(o, 0, 1, &u);
    dense_of(fl_simd_best(), FL_RULE_FTRL)(&u, &w, &g, (float *[]){&z, &n}, 1);
    CHECK(z == -6 && n == 4 && w == 6.0f / 15);
    dense_of(fl_simd_best(), FL_RULE_FTRL)(&u, &w, &nan, (float *[]){&z, &n},
                                           1);
    CHECK(isnan(w));
    fleet_destroy(f);
}

/* --- rows ---------------------------------------------------------------- */

/* A row as a table keeps it. */
typedef struct row {
    fl_row_head head;
    float w[3 * N];
} row;

/* The same row as a dense parameter, one step. */
static void step_dense(const fleet_optimizer *o, const fl_simd *simd,
                       const fl_update *u, row *r, const float *g, int dim)
{
    float *state[] = {r->w + dim, r->w + 2 * dim};
    fl_update own = *u;

    r->head.step++;
    r->head.changed_at = u->version;
    if (fl_optimizer_has_row_steps(o)) {
        own.correct_a = o->correct_a[r->head.step];
        own.correct_b = o->correct_b[r->head.step];
    }
    dense_of(simd, o->kind)(&own, r->w, g, state, dim);
}

static void check_rows(const fleet_optimizer *o, const fl_simd *simd, int dim)
{
    enum { ROWS = 12 };
    const uint64_t late = (uint64_t)7 << 32; /* versions have 64 bits */
    static row got[ROWS], want[ROWS];
    float g[N];

    memset(got, 0, sizeof got);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < dim; i++)
            got[r].w[i] = noise(r * 100 + i);
    memcpy(want, got, sizeof got);
    for (int t = 0; t < 20; t++) {
        fl_update u = update_of(o, t);
        const float *gradients[ROWS];
        float *w[ROWS];
        int n = 0;

        u.version += late;
        gradient(g, t);
        for (int r = 0; r < ROWS; r++) {
            if (t % (1 + r % 4)) /* rows have steps of their own */
                continue;
            w[n] = got[r].w;
            gradients[n++] = g + r % (N - dim + 1);
            step_dense(o, simd, &u, &want[r], g + r % (N - dim + 1), dim);
        }
        rows_of(simd, o->kind)(&u, w, gradients, n, dim);
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
    CHECK(got[0].head.step == 20 && got[3].head.step == 5);
    CHECK(got[0].head.changed_at == late + 20);
}

TEST(rows_are_updated_as_dense_weights_are)
{
    fleet *f = handle();

    for (int i = 0; i < N_RULE; i++)
        for (const fl_simd *const *t = fl_simd_all(); *t; t++)
            for (int dim = 1; dim <= 65; dim++)
                check_rows(rule(f, i), *t, dim);
    fleet_destroy(f);
}

/* --- Adam's corrections -------------------------------------------------- */

static void check_correction(float got, float beta, double t)
{
    double want = 1 / (1 - pow((double)beta, t));

    if (!(fabs((double)got - want) <= 1e-7 * want))
        test_fail(__FILE__, __LINE__, "1 / (1 - %g^%g) is %.9g, not %.9g",
                  (double)beta, t, want, (double)got);
}

TEST(adams_bias_corrections_are_those_of_the_paper)
{
    static const int64_t at[] = {1,    2,     3,      10,     100,
                                 1000, 17000, 100000, 5000000};
    fleet *f = handle();
    const fleet_optimizer *o = fleet_adam(f, 0.01f, NULL);

    for (int i = 0; i < 9; i++) {
        fl_update u;

        fl_optimizer_update(o, at[i] - 1, 1, &u);
        check_correction(u.correct_a, 0.9f, (double)at[i]);
        check_correction(u.correct_b, 0.999f, (double)at[i]);
    }
    CHECK(o->correct_a[o->n_correct - 1] == 1);
    CHECK(o->correct_b[o->n_correct - 1] == 1);
    fleet_destroy(f);
}

TEST(a_row_that_was_updated_very_often_has_no_correction_left)
{
    fleet *f = handle();
    const fleet_optimizer *o =
        fleet_adam(f, 0.01f, &(fleet_adam_options){.row_steps = 1});
    fl_update u;
    row a = {.w = {1}}, b = {.w = {1}};
    const float g = 0.5f, *gradients[] = {&g};
    float *w[] = {a.w};

    fl_optimizer_update(o, 7, 1, &u);
    a.head.step = b.head.step = UINT32_MAX - 5;
    fl_rule_set_best()->of[FL_RULE_ADAM].rows(&u, w, gradients, 1, 1);
    u.correct_a = u.correct_b = 1;
    fl_rule_set_best()->of[FL_RULE_ADAM].dense(
        &u, b.w, &g, (float *[]){b.w + 1, b.w + 2}, 1);
    CHECK(memcmp(a.w, b.w, sizeof a.w) == 0);
    fleet_destroy(f);
}

/* --- the scalars of an update -------------------------------------------- */

static float rate_after(const fleet_optimizer *o, int64_t done)
{
    fl_update u;

    fl_optimizer_update(o, done, 1, &u);
    return u.lr;
}

TEST(a_sum_is_divided_by_its_batches_if_the_mean_is_asked_for)
{
    fleet *f = handle();
    const fleet_optimizer *o = rule(f, 0);
    fl_update u;

    fl_optimizer_update(o, 41, 3, &u);
    CHECK(u.scale == 1.0f / 3 && u.clip == 1 && u.version == 42);
    fl_optimizer_update(o, 41, 1, &u);
    CHECK(u.scale == 1);
    fleet_destroy(f);
}

TEST(a_learning_rate_may_change_piece_by_piece)
{
    int64_t boundaries[] = {10, 20};
    float values[] = {1, 0.5f, 0.25f};
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 7);

    CHECK_OK(fleet_optimizer_set_piecewise_decay(o, boundaries, values, 2));
    boundaries[0] = 1; /* arrays were copied */
    values[0] = 9;
    CHECK(rate_after(o, 0) == 1 && rate_after(o, 9) == 1);
    CHECK(rate_after(o, 10) == 0.5f && rate_after(o, 19) == 0.5f);
    CHECK(rate_after(o, 20) == 0.25f && rate_after(o, 1000000) == 0.25f);
    CHECK_OK(fleet_optimizer_set_piecewise_decay(o, (int64_t[]){5},
                                                 (float[]){3, 2}, 1));
    CHECK(rate_after(o, 4) == 3 && rate_after(o, 5) == 2);
    fleet_destroy(f);
}

TEST(a_learning_rate_may_fall_exponentially)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.4f);

    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.5f, 10, 0));
    CHECK(rate_after(o, 0) == 0.4f && rate_after(o, 20) == 0.1f);
    for (int64_t i = 0; i < 100; i++) {
        float got = rate_after(o, i);
        float want = (float)((double)0.4f * pow(0.5, (double)i / 10));

        CHECK_CLOSE(&got, &want, 1, 1e-7);
    }
    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.5f, 10, 1));
    CHECK(rate_after(o, 9) == 0.4f && rate_after(o, 10) == 0.2f);
    CHECK(rate_after(o, 19) == 0.2f && rate_after(o, 29) == 0.1f);
    fleet_destroy(f);
}

/* --- one list ------------------------------------------------------------ */

/* A number that any rule may have at that place. */
static float number_at(int i)
{
    return 0.25f + 0.0625f * (float)i;
}

/* What processes of a job compare, if they train with that. */
static char *job_of(fl_rule_kind kind, const float number[FL_MAX_NUMBER])
{
    fleet *f = handle();
    fleet_program *p = fleet_program_create(f);
    char *text;

    fleet_parameter(p, (int64_t[]){3}, 1, &(fleet_param_attr){.name = "w"});
    CHECK_OK(fl_store_add(f->store, p));
    CHECK_OK(fl_store_train(f->store, fl_handle_optimizer(f, kind, 1, number)));
    text = fl_job_signature_text(f->store);
    fleet_destroy(f);
    return text;
}

TEST(processes_of_a_job_compare_each_number_of_a_rule)
{
    for (int k = 0; k < FL_N_RULE; k++)
        for (int i = 0; i < FL_MAX_NUMBER; i++) {
            float number[FL_MAX_NUMBER] = {0};
            char *ours = job_of((fl_rule_kind)k, number), *theirs, *words;

            number[i] = number_at(i);
            theirs = job_of((fl_rule_kind)k, number);
            words = fl_job_signature_difference("this", ours, "that", theirs);
            if (fl_rule_of((fl_rule_kind)k)->number[i].name)
                CHECK_CONTAINS(words,
                               fl_rule_of((fl_rule_kind)k)->number[i].name);
            else
                CHECK(!words);
            fl_free(ours);
            fl_free(theirs);
            fl_free(words);
        }
}

static void check_settings(void (*set)(fleet_optimizer *o), const char *want)
{
    fl_text ours = {0}, theirs = {0};
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 0.1f);
    char *words;

    fl_job_signature_add_optimizer(&ours, o);
    set(o);
    fl_job_signature_add_optimizer(&theirs, o);
    words = fl_job_signature_difference("rank 0", fl_text_chars(&ours),
                                        "rank 1", fl_text_chars(&theirs));
    CHECK_TEXT(words, want);
    fl_free(words);
    fl_text_done(&ours);
    fl_text_done(&theirs);
    fleet_destroy(f);
}

static void set_decay(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_l2_decay(o, 0.1f));
}

static void set_clip(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_global_norm_clip(o, 1e-30f));
}

static void set_l1(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_l1_decay(o, 0.1f));
}

static void set_norm(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_norm_clip(o, 3));
}

static void set_most(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_value_clip(o, 2));
}

static void set_pieces(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_piecewise_decay(
        o, (int64_t[]){7, 1000000}, (float[]){0.3f, 0.05f, 1e-3f}, 2));
}

static void set_fall(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.97f, 50, 1));
}

TEST(processes_of_a_job_compare_what_each_setter_sets)
{
    check_settings(set_decay,
                   "optimizer: l2_decay is 0 in rank 0, 0.1 in rank 1");
    check_settings(set_clip, "optimizer: global_norm_clip is 0 in rank 0, "
                             "1e-30 in rank 1");
    check_settings(set_l1, "optimizer: l1_decay is 0 in rank 0, 0.1 in rank 1");
    check_settings(set_norm,
                   "optimizer: norm_clip is 0 in rank 0, 3 in rank 1");
    check_settings(set_most,
                   "optimizer: value_clip is 0 in rank 0, 2 in rank 1");
    check_settings(set_pieces,
                   "optimizer: schedule is none in rank 0, piecewise 0.3 below "
                   "7 0.05 below 1000000 then 0.001 in rank 1");
    check_settings(set_fall,
                   "optimizer: schedule is none in rank 0, "
                   "exponential rate 0.97 steps 50 staircase 1 in rank 1");
}

TEST(a_configuration_takes_each_number_of_a_rule_by_its_name)
{
    for (int k = 0; k < FL_N_RULE; k++)
        for (int i = 0; i < FL_MAX_NUMBER; i++) {
            const fl_rule_number *n = &fl_rule_of((fl_rule_kind)k)->number[i];
            fl_config c;
            char text[400];

            if (!n->name)
                continue;
            snprintf(text, sizeof text,
                     "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": "
                     "{\"type\": \"%s\", \"%s\": %s}, \"dataset\": "
                     "{\"format\": \"criteo\", \"train\": [\"a\"]}}",
                     fl_rule_of((fl_rule_kind)k)->name, n->name,
                     n->flag ? "true" : "0.375");
            CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
            CHECK_INT(c.optimizer.type, k);
            CHECK(c.optimizer.number[i] == (n->flag ? 1 : 0.375f));
            fl_config_done(&c);
        }
}

/* --- numbers that cannot be ---------------------------------------------- */

#define REFUSED(optimizer, words)                                              \
    do {                                                                       \
        CHECK((optimizer) == NULL);                                            \
        CHECK_CONTAINS(fleet_last_error(), words);                             \
    } while (0)

TEST(optimizers_of_impossible_numbers_are_refused)
{
    fleet *f = handle();

    REFUSED(fleet_sgd(f, 0), "sgd: the learning rate 0 is not positive");
    REFUSED(fleet_sgd(f, -1), "learning rate -1");
    REFUSED(fleet_adam(f, NAN, NULL), "adam: the learning rate nan");
    REFUSED(fleet_adagrad(f, INFINITY, NULL), "adagrad: the learning rate inf");
    REFUSED(fleet_momentum(f, 1, &(fleet_momentum_options){.momentum = 1}),
            "momentum: 1 is out of range");
    REFUSED(fleet_momentum(f, 1, &(fleet_momentum_options){.momentum = -0.5f}),
            "-0.5 is out of range");
    REFUSED(fleet_adam(f, 1, &(fleet_adam_options){.beta1 = NAN}), "beta1");
    REFUSED(fleet_adam(f, 1, &(fleet_adam_options){.beta2 = 1.5f}),
            "beta2: 1.5");
    REFUSED(fleet_adam(f, 1, &(fleet_adam_options){.beta2 = 0.9999999f}),
            "beta2: 1 is out of range: its bias correction needs");
    REFUSED(fleet_adam(f, 1, &(fleet_adam_options){.epsilon = -1}),
            "epsilon: -1");
    REFUSED(fleet_adagrad(f, 1, &(fleet_adagrad_options){.epsilon = INFINITY}),
            "epsilon: inf");
    REFUSED(fleet_adagrad(f, 1,
                          &(fleet_adagrad_options){.initial_accumulator = -1}),
            "initial_accumulator: -1");
    REFUSED(fleet_ftrl(f, 1, &(fleet_ftrl_options){.beta = -1}), "beta: -1");
    REFUSED(fleet_ftrl(f, 1, &(fleet_ftrl_options){.l1 = NAN}), "l1: nan");
    REFUSED(fleet_ftrl(f, 1, &(fleet_ftrl_options){.l1 = -2}), "l1: -2");
    REFUSED(fleet_ftrl(f, 1, &(fleet_ftrl_options){.l2 = INFINITY}), "l2: inf");
    REFUSED(fleet_sgd(NULL, 1), "handle is NULL");
    REFUSED(fleet_adam(NULL, 1, NULL), "handle is NULL");
    fleet_destroy(f);
}

TEST(impossible_settings_are_refused)
{
    fleet *f = handle();
    fleet_optimizer *o = fleet_sgd(f, 1);

    CHECK_FAILS(fleet_optimizer_set_l2_decay(o, -1), FLEET_EINVAL, "l2_decay");
    CHECK_FAILS(fleet_optimizer_set_l2_decay(o, NAN), FLEET_EINVAL, "l2_decay");
    CHECK_FAILS(fleet_optimizer_set_l1_decay(o, -1), FLEET_EINVAL,
                "l1_decay: -1 is out of range");
    CHECK_FAILS(fleet_optimizer_set_l1_decay(o, INFINITY), FLEET_EINVAL,
                "l1_decay: inf");
    CHECK_FAILS(fleet_optimizer_set_value_clip(o, 0), FLEET_EINVAL,
                "value clip: 0 is out of range");
    CHECK_FAILS(fleet_optimizer_set_value_clip(o, NAN), FLEET_EINVAL,
                "value clip: nan");
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(o, 0), FLEET_EINVAL,
                "global norm: 0");
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(o, INFINITY), FLEET_EINVAL,
                "global norm: inf");
    CHECK_FAILS(fleet_optimizer_set_exponential_decay(o, 0, 1, 0), FLEET_EINVAL,
                "rate: 0");
    CHECK_FAILS(fleet_optimizer_set_exponential_decay(o, 1.5f, 1, 0),
                FLEET_EINVAL, "rate: 1.5");
    CHECK_FAILS(fleet_optimizer_set_exponential_decay(o, NAN, 1, 0),
                FLEET_EINVAL, "rate: nan");
    CHECK_FAILS(fleet_optimizer_set_exponential_decay(o, 0.5f, 0, 0),
                FLEET_EINVAL, "steps: 0");
    CHECK(rate_after(o, 100) == 1 && o->l2_decay == 0 && o->clip_norm == 0);
    CHECK(o->l1_decay == 0 && o->value_clip == 0);
    fleet_destroy(f);
}

static void check_pieces(const int64_t *boundaries, const float *values, int n,
                         const char *words)
{
    fleet *f = handle();

    CHECK_FAILS(fleet_optimizer_set_piecewise_decay(fleet_sgd(f, 1), boundaries,
                                                    values, n),
                FLEET_EINVAL, words);
    fleet_destroy(f);
}

TEST(impossible_pieces_are_refused)
{
    const int64_t good[] = {1, 2}, flat[] = {5, 5}, zero[] = {0, 1};
    const float values[] = {1, 1, 1}, bad[] = {1, 0, 1};

    check_pieces(NULL, values, 2, "no boundaries");
    check_pieces(good, NULL, 2, "no boundaries");
    check_pieces(good, values, 0, "no boundaries");
    check_pieces(flat, values, 2, "boundary 1 does not grow");
    check_pieces(zero, values, 2, "boundary 0 does not grow");
    check_pieces(good, bad, 2, "learning rate: 0 is out of range");
}

TEST(settings_need_an_optimizer)
{
    CHECK_FAILS(fleet_optimizer_set_l2_decay(NULL, 1), FLEET_EINVAL,
                "fleet_optimizer_set_l2_decay: no optimizer");
    CHECK_STATUS(fleet_optimizer_set_global_norm_clip(NULL, 1), FLEET_EINVAL);
    CHECK_FAILS(fleet_optimizer_set_l1_decay(NULL, 1), FLEET_EINVAL,
                "fleet_optimizer_set_l1_decay: no optimizer");
    CHECK_FAILS(fleet_optimizer_set_value_clip(NULL, 1), FLEET_EINVAL,
                "fleet_optimizer_set_value_clip: no optimizer");
    CHECK_STATUS(fleet_optimizer_set_piecewise_decay(NULL, (int64_t[]){1},
                                                     (float[]){1, 1}, 1),
                 FLEET_EINVAL);
    CHECK_STATUS(fleet_optimizer_set_exponential_decay(NULL, 0.5f, 1, 0),
                 FLEET_EINVAL);
}
