/* simd_test.c - the vector kernels but the update rules: each against a plain
 * loop, for all small sizes, unaligned, on every instruction set. */
#define SUITE simd
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/nn.h>

#include "runtime/simd/simd.h"

enum { MOST = 70, ROOM = MOST + 8 };

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898 + 1) * 1.7f;
}

static void fill(float *x, int64_t n, int64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = noise(seed * 1000 + i);
}

/* A test body for each instruction set. */
static void on_all(void (*body)(const fl_simd *t))
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        fprintf(stderr, "on %s\n", (*t)->isa);
        body(*t);
    }
}

TEST(plain_c_is_always_among_the_instruction_sets)
{
    const fl_simd *const *t = fl_simd_all();

    CHECK(fl_simd_best() == t[0]);
    while (t[1])
        t++;
    CHECK_TEXT(t[0]->isa, "plain");
}

TEST(the_environment_may_ask_for_less)
{
    setenv("FLEET_ISA", "plain", 1);
    CHECK_TEXT(fl_simd_best()->isa, "plain");
}

/* --- elementwise --------------------------------------------------------- */

typedef float formula(float out, float a, float b);

/* The kernel must give the formula's bits, and touch nothing else. */
static void check_binary(fl_binary *kernel, formula *want)
{
    float a[ROOM], b[ROOM], out[ROOM], before[ROOM];

    for (int n = 0; n <= MOST; n++)
        for (int at = 0; at < 4; at++) {
            fill(a, ROOM, n);
            fill(b, ROOM, n + 100);
            fill(out, ROOM, n + 200);
            memcpy(before, out, sizeof out);
            kernel(out + at, a + at, b + at, n);
            for (int i = 0; i < ROOM; i++) {
                bool in = i >= at && i < at + n;
                float w = in ? want(before[i], a[i], b[i]) : before[i];

                CHECK(memcmp(&out[i], &w, sizeof w) == 0);
            }
        }
}

/* The same with the result in place of an input. */
static void check_in_place(fl_binary *kernel, formula *want)
{
    float a[ROOM], b[ROOM], out[ROOM];

    fill(a, ROOM, 1);
    fill(b, ROOM, 2);
    memcpy(out, a, sizeof a);
    kernel(out, out, b, MOST);
    for (int i = 0; i < MOST; i++)
        CHECK(out[i] == want(a[i], a[i], b[i]));
    memcpy(out, b, sizeof b);
    kernel(out, a, out, MOST);
    for (int i = 0; i < MOST; i++)
        CHECK(out[i] == want(b[i], a[i], b[i]));
}

#define FORMULA(name, expression)                                              \
    static float want_##name(float out, float a, float b)                      \
    {                                                                          \
        (void)out, (void)a, (void)b;                                           \
        return expression;                                                     \
    }                                                                          \
                                                                               \
    static void try_##name(const fl_simd *t)                                   \
    {                                                                          \
        check_binary(t->name, want_##name);                                    \
        check_in_place(t->name, want_##name);                                  \
    }

static float product(float a, float b) /* rounded on its own */
{
    volatile float x = a * b;

    return x;
}

FORMULA(add, a + b)
FORMULA(sub, a - b)
FORMULA(mul, a *b)
FORMULA(add_mul, out + product(a, b))

/* Gradients of activations: a is the output, b its gradient. */
#define GRADIENT(name, kind, expression)                                       \
    static float want_##name##_grad(float out, float a, float b)               \
    {                                                                          \
        (void)out;                                                             \
        return expression;                                                     \
    }                                                                          \
                                                                               \
    static const fl_simd *name##_simd;                                         \
                                                                               \
    static void name##_grad(float *out, const float *a, const float *b,        \
                            int64_t n)                                         \
    {                                                                          \
        name##_simd->activation[kind].gradient(out, a, b, 0, n);               \
    }                                                                          \
                                                                               \
    static void try_##name##_grad(const fl_simd *t)                            \
    {                                                                          \
        name##_simd = t;                                                       \
        check_binary(name##_grad, want_##name##_grad);                         \
        check_in_place(name##_grad, want_##name##_grad);                       \
    }

GRADIENT(relu, FLEET_RELU, a > 0 ? b : 0)
GRADIENT(tanh, FLEET_TANH, (1 - product(a, a)) * b)
GRADIENT(sigmoid, FLEET_SIGMOID, product(a, 1 - a) * b)

TEST(binary_kernels_do_their_formula)
{
    on_all(try_add);
    on_all(try_sub);
    on_all(try_mul);
    on_all(try_add_mul);
    on_all(try_relu_grad);
    on_all(try_tanh_grad);
    on_all(try_sigmoid_grad);
}

static void try_scalars(const fl_simd *t)
{
    float a[ROOM], out[ROOM], before[ROOM];

    for (int n = 0; n <= MOST; n++) {
        fill(a, ROOM, n);
        fill(before, ROOM, n + 100);
        memcpy(out, before, sizeof out);
        t->scale(out + 3, a + 1, 1.7f, -0.3f, n);
        for (int i = 0; i < n; i++)
            CHECK(out[3 + i] == product(1.7f, a[1 + i]) + -0.3f);
        CHECK(out[2] == before[2] && out[3 + n] == before[3 + n]);
        memcpy(out, before, sizeof out);
        t->add_scaled(out + 2, a + 3, 1.7f, NAN, n);
        for (int i = 0; i < n; i++)
            CHECK(out[2 + i] == before[2 + i] + product(1.7f, a[3 + i]));
        CHECK(out[1] == before[1] && out[2 + n] == before[2 + n]);
    }
}

TEST(scaling_kernels_do_their_formula)
{
    on_all(try_scalars);
}

static void try_relu(const fl_simd *t)
{
    const fl_activation_simd *relu = &t->activation[FLEET_RELU];
    float a[ROOM], out[ROOM];

    for (int n = 0; n <= MOST; n++) {
        fill(a, ROOM, n);
        fill(out, ROOM, n + 1);
        float after = out[1 + n];
        relu->forward(out + 1, a + 2, 0, n);
        for (int i = 0; i < n; i++)
            CHECK(out[1 + i] == (a[2 + i] > 0 ? a[2 + i] : 0));
        CHECK(out[1 + n] == after);
    }
    relu->forward(out, (float[]){INFINITY, -INFINITY, NAN, -0.0f}, 0, 4);
    CHECK(isinf(out[0]) && out[1] == 0 && isnan(out[2]) && out[3] == 0);
}

TEST(relu_keeps_what_is_positive_and_nan)
{
    on_all(try_relu);
}

/* --- exp, tanh, sigmoid -------------------------------------------------- */

/* Numbers all over the range: every exponent, both signs, and the extremes. */
static int64_t all_over(float **x)
{
    int64_t n = 0;

    *x = malloc(300000 * sizeof **x);
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 16001) {
        float y;

        memcpy(&y, &bits, sizeof y);
        (*x)[n++] = y;
        (*x)[n++] = -y;
    }
    (*x)[n++] = INFINITY;
    (*x)[n++] = -INFINITY;
    (*x)[n++] = -0.0f;
    return n;
}

/* |got - want| <= relative |want| + absolute everywhere. */
static void check_curve(const fl_activation_simd *s, double (*want)(double),
                        double relative, double absolute)
{
    float *x, *y;
    int64_t n = all_over(&x);

    y = malloc((size_t)n * sizeof *y);
    s->forward(y, x, 0, n);
    for (int64_t i = 0; i < n; i++) {
        double w = want((double)x[i]), by = relative * fabs(w) + absolute;

        if (!(fabs((double)y[i] - w) <= by))
            test_fail(__FILE__, __LINE__, "of %.9g it is %.9g, not %.9g",
                      (double)x[i], (double)y[i], w);
    }
    free(x);
    free(y);
}

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static void try_curves(const fl_simd *t)
{
    check_curve(&t->activation[FLEET_TANH], tanh, 4e-7, 1e-44);
    check_curve(&t->activation[FLEET_SIGMOID], sigmoid, 6e-7, 4e-39);
}

TEST(tanh_and_sigmoid_are_accurate_over_the_whole_range)
{
    on_all(try_curves);
}

static void try_limits(const fl_simd *t)
{
    static const float x[] = {NAN, 1e30f, -1e30f, 0, INFINITY, -INFINITY};
    float y[6];

    t->activation[FLEET_TANH].forward(y, x, 0, 6);
    CHECK(isnan(y[0]) && y[1] == 1 && y[2] == -1 && y[3] == 0);
    CHECK(y[4] == 1 && y[5] == -1);
    t->activation[FLEET_SIGMOID].forward(y, x, 0, 6);
    CHECK(isnan(y[0]) && y[1] == 1 && y[2] >= 0 && y[2] < 1e-37f);
    CHECK(y[3] == 0.5f && y[4] == 1 && y[5] >= 0 && y[5] < 1e-37f);
}

TEST(tanh_and_sigmoid_reach_their_limits_and_keep_nan)
{
    on_all(try_limits);
}

static void try_same_everywhere(const fl_simd *t)
{
    float x[MOST], whole[MOST], part[MOST];

    fill(x, MOST, 5);
    for (int kind = FLEET_LINEAR + 1; kind < FL_N_ACTIVATION; kind++) {
        const fl_activation_simd *s = &t->activation[kind];

        s->forward(whole, x, 0.3f, MOST);
        for (int split = 0; split <= MOST; split++) {
            s->forward(part, x, 0.3f, split);
            s->forward(part + split, x + split, 0.3f, MOST - split);
            CHECK(memcmp(whole, part, sizeof whole) == 0);
        }
    }
}

TEST(an_element_has_the_same_bits_wherever_a_split_falls)
{
    on_all(try_same_everywhere);
}

/* --- softmax ------------------------------------------------------------- */

static void check_softmax(const fl_simd *t, const float *x, int n)
{
    float y[ROOM];
    double sum = 0, most = -1e300;

    t->softmax(y + 1, x, n);
    for (int i = 0; i < n; i++)
        most = fmax(most, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    for (int i = 0; i < n; i++) {
        float want = (float)(exp((double)x[i] - most) / sum);

        CHECK_CLOSE(&y[1 + i], &want, 1, 1e-6);
    }
}

static void try_softmax(const fl_simd *t)
{
    float x[ROOM], y[4];

    for (int n = 1; n <= MOST; n++) {
        fill(x, n, n);
        check_softmax(t, x, n);
        for (int i = 0; i < n; i++)
            x[i] = x[i] * 1e4f;
        check_softmax(t, x, n);
    }
    t->softmax(y, (float[]){1, NAN, 2, 3}, 4);
    for (int i = 0; i < 4; i++)
        CHECK(isnan(y[i]));
}

TEST(softmax_is_safe_for_large_numbers_and_keeps_nan)
{
    on_all(try_softmax);
}

/* --- sums ---------------------------------------------------------------- */

static void try_col_sum(const fl_simd *t)
{
    enum { ROWS = 9, LD = ROOM };
    float x[ROWS * LD], out[ROOM];

    fill(x, ROWS * LD, 3);
    for (int cols = 0; cols <= MOST; cols++) {
        out[cols] = 77;
        t->col_sum(out, x + 1, LD, ROWS, cols);
        for (int c = 0; c < cols; c++) {
            float sum = 0;

            for (int r = 0; r < ROWS; r++)
                sum += x[1 + r * LD + c];
            CHECK(out[c] == sum); /* in the rows' order, to the bit */
        }
        CHECK(out[cols] == 77);
    }
    t->col_sum(out, x, LD, 0, 5);
    CHECK(out[0] == 0 && out[4] == 0);
}

static void try_row_sum(const fl_simd *t)
{
    float x[ROOM];

    fill(x, ROOM, 3);
    for (int n = 0; n <= MOST; n++) {
        float got = t->row_sum(x + 1, n), want;
        double sum = 0;

        for (int i = 0; i < n; i++)
            sum += (double)x[1 + i];
        want = (float)sum;
        CHECK_CLOSE(&got, &want, 1, 1e-5);
    }
}

TEST(columns_and_rows_are_summed)
{
    on_all(try_col_sum);
    on_all(try_row_sum);
}

/* --- gather -------------------------------------------------------------- */

static void check_gather(const fl_simd *t, int dim)
{
    enum { SAMPLES = 5, LANES = 3, LD0 = 3 * MOST + 5 };
    static float rows[20][MOST], a[SAMPLES * LD0], b[SAMPLES * (MOST + 1)];
    const float *row[SAMPLES * LANES];
    float *out[LANES] = {a, a + 2 * dim + 1, b};
    int64_t ld[LANES] = {LD0, LD0, dim + 1};

    fill(rows[0], 20 * MOST, 9);
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    for (int i = 0; i < SAMPLES * LANES; i++)
        row[i] = rows[i * 7 % 20];
    t->gather(&(fl_gather_args){out, ld, row, SAMPLES, LANES, dim});
    for (int i = 0; i < SAMPLES; i++)
        for (int l = 0; l < LANES; l++) {
            const float *at = out[l] + i * ld[l];

            CHECK(memcmp(at, row[i * LANES + l], (size_t)dim * sizeof *at) ==
                  0);
            CHECK(at[dim] == 0); /* the gap behind it */
        }
}

static void try_gather(const fl_simd *t)
{
    for (int dim = 1; dim <= MOST; dim++)
        check_gather(t, dim);
}

TEST(rows_are_gathered_into_their_columns)
{
    on_all(try_gather);
}

/* --- fc with few units --------------------------------------------------- */

enum { ROWS = 6, LDX = ROOM + 3, LDY = 11 };

typedef struct small {
    float x[ROWS * LDX], y[ROWS * LDY], wt[FL_SMALL_N * MOST], bias[FL_SMALL_N];
} small;

static fl_small_fc_args small_of(small *s, int k, int n)
{
    fill(s->x, ROWS * LDX, 1);
    fill(s->y, ROWS * LDY, 2);
    fill(s->wt, FL_SMALL_N * MOST, 3);
    fill(s->bias, FL_SMALL_N, 4);
    return (fl_small_fc_args){.x = s->x,
                              .ldx = LDX,
                              .y = s->y,
                              .ldy = LDY,
                              .wt = s->wt,
                              .bias = s->bias,
                              .rows = ROWS,
                              .k = k,
                              .n = n};
}

static void check_one(float got, double want)
{
    float w = (float)want;

    CHECK_CLOSE(&got, &w, 1, 1e-5);
}

static void check_small_forward(const fl_simd *t, int k, int n, bool bias)
{
    static small s;
    fl_small_fc_args a = small_of(&s, k, n);
    float after = s.y[n];

    if (!bias)
        a.bias = NULL;
    t->small_forward(&a);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < n; j++) {
            double sum = bias ? (double)s.bias[j] : 0;

            for (int c = 0; c < k; c++)
                sum += (double)s.x[r * LDX + c] * (double)s.wt[j * k + c];
            check_one(s.y[r * LDY + j], sum);
        }
    CHECK(s.y[n] == after);
}

static void check_small_dx(const fl_simd *t, int k, int n)
{
    static small s;
    fl_small_fc_args a = small_of(&s, k, n);
    float after = s.x[k];

    t->small_dx(&a);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < k; c++) {
            double sum = 0;

            for (int j = 0; j < n; j++)
                sum += (double)s.y[r * LDY + j] * (double)s.wt[j * k + c];
            check_one(s.x[r * LDX + c], sum);
        }
    CHECK(s.x[k] == after);
}

static void check_small_dw(const fl_simd *t, int k, int n)
{
    static small s;
    fl_small_fc_args a = small_of(&s, k, n);
    float dw[MOST * FL_SMALL_N + 1];

    dw[k * n] = 77;
    t->small_dw(&a, dw);
    for (int c = 0; c < k; c++)
        for (int j = 0; j < n; j++) {
            double sum = 0;

            for (int r = 0; r < ROWS; r++)
                sum += (double)s.x[r * LDX + c] * (double)s.y[r * LDY + j];
            check_one(dw[c * n + j], sum);
        }
    CHECK(dw[k * n] == 77);
}

static void try_small_fc(const fl_simd *t)
{
    for (int k = 1; k <= MOST; k++)
        for (int n = 1; n <= FL_SMALL_N; n++) {
            check_small_forward(t, k, n, true);
            check_small_forward(t, k, n, false);
            check_small_dx(t, k, n);
            check_small_dw(t, k, n);
        }
}

TEST(layers_of_few_units_are_plain_products)
{
    on_all(try_small_fc);
}

static void try_transpose(const fl_simd *t)
{
    static float x[MOST * ROOM], out[MOST * ROOM];

    fill(x, MOST * ROOM, 1);
    for (int rows = 1; rows <= MOST; rows += 3)
        for (int cols = 1; cols <= MOST; cols += 3) {
            out[rows] = 77;
            t->transpose(out, ROOM, x, ROOM, rows, cols);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < cols; c++)
                    CHECK(out[c * ROOM + r] == x[r * ROOM + c]);
            CHECK(out[rows] == 77);
        }
}

TEST(matrices_are_transposed)
{
    on_all(try_transpose);
}
