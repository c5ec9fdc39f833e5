/* unary_simd_test.c - the kernels of unaries.def: within units in the last
 * place of functions in double over their range, on every instruction set;
 * what is not a number stays so; an element has the same bits wherever a
 * split falls. */
#define SUITE unary_simd
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/simd/simd.h"

static double gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2));
}

static double gelu_tanh(double x)
{
    double t = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    return x / (1 + exp(-2 * t)); /* (1 + tanh t) / 2, without cancelling */
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double swish(double x)
{
    return x / (1 + exp(-1.5 * x));
}

static double elu(double x)
{
    return x > 0 ? x : 1.5 * expm1(x);
}

static double power(double x)
{
    return pow(x, 1.5);
}

typedef struct range {
    int kind;
    double (*want)(double x);
    double low, high;
    double units;    /* in the last place */
    double absolute; /* or so much off */
} range;

static const range ranges[] = {
    {FL_UNARY_EXP, exp, -87, 88.6, 3, 0},
    {FL_UNARY_LOG, log, 1e-6, 100, 4, 1e-7},
    {FL_UNARY_LOG, log, 1e-38, 1e38, 4, 0},
    {FL_UNARY_LOG, log, 1e-44, 1e-38, 4, 0}, /* denormals */
    {FL_UNARY_SQRT, sqrt, 0, 1e10, 1, 0},
    {FL_UNARY_ABS, fabs, -10, 10, 0, 0},
    {FL_UNARY_POW, power, 0, 100, 2, 0},
    {FL_UNARY_ELU, elu, -20, 1, 6, 0},
    {FL_UNARY_ELU, elu, -1e-4, 0, 6, 0},
    {FL_UNARY_GELU, gelu, -1, 6, 8, 0},
    {FL_UNARY_GELU, gelu, -8, -1, 0, 1e-6},
    {FL_UNARY_GELU_TANH, gelu_tanh, -1, 6, 8, 0},
    {FL_UNARY_GELU_TANH, gelu_tanh, -8, -1, 0, 1e-6},
    {FL_UNARY_SWISH, swish, -30, 30, 30, 0},
    {FL_UNARY_SOFTPLUS, softplus, -30, 30, 6, 0},
};

static double off_by(const range *r, float x, float got)
{
    double want = r->want((double)x), off = fabs((double)got - want);
    double unit = fmax(fabs(want), 1.2e-38) * 1.2e-7;

    return off <= r->absolute ? 0 : off / unit;
}

TEST(agree_with_double_within_units_in_the_last_place)
{
    enum { N = 4001 };

    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            const range *r = &ranges[i];
            float x[N], y[N];

            for (int j = 0; j < N; j++)
                x[j] = (float)(r->low + (r->high - r->low) * j / (N - 1));
            (*t)->unary[r->kind].forward(y, x, 1.5f, 0, N);
            for (int j = 0; j < N; j++)
                if (!(off_by(r, x[j], y[j]) <= r->units))
                    test_fail(__FILE__, __LINE__,
                              "%s, range %zu: of %.9g %.9g, not %.9g: %.1f "
                              "units",
                              (*t)->isa, i, (double)x[j], (double)y[j],
                              r->want((double)x[j]), off_by(r, x[j], y[j]));
        }
}

static float of(const fl_simd *t, int kind, float x)
{
    float y;

    t->unary[kind].forward(&y, &x, 0.5f, 2.0f, 1);
    return y;
}

TEST(what_is_not_finite_stays_so)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        for (int kind = 0; kind < FL_N_UNARY; kind++)
            CHECK(isnan(of(*t, kind, NAN)));
        CHECK(of(*t, FL_UNARY_EXP, 89) == INFINITY);
        CHECK(of(*t, FL_UNARY_EXP, -200) == 0);
        CHECK(of(*t, FL_UNARY_EXP, -INFINITY) == 0);
        CHECK(of(*t, FL_UNARY_LOG, INFINITY) == INFINITY);
        CHECK(of(*t, FL_UNARY_LOG, 0.0f) == -INFINITY);
        CHECK(of(*t, FL_UNARY_LOG, -0.0f) == -INFINITY);
        CHECK(isnan(of(*t, FL_UNARY_LOG, -1)));
        CHECK(isnan(of(*t, FL_UNARY_SQRT, -1)));
        CHECK(of(*t, FL_UNARY_ABS, -INFINITY) == INFINITY);
        CHECK(of(*t, FL_UNARY_SOFTPLUS, INFINITY) == INFINITY);
        CHECK(of(*t, FL_UNARY_SOFTPLUS, -INFINITY) == 0);
        CHECK(of(*t, FL_UNARY_GELU, INFINITY) == INFINITY);
        CHECK(of(*t, FL_UNARY_CLIP, INFINITY) == 2);
    }
}

/* Of x and y: x == y, x < y, and both not 0. */
TEST(comparisons_are_exact_and_keep_nan)
{
    static const float x[] = {0,        1,         1e-45f, -3e38f,
                              INFINITY, -INFINITY, NAN,    2};
    static const float y[] = {-0.0f, 2, 0, 3e38f, INFINITY, INFINITY, 1, NAN};
    enum { N = sizeof x / sizeof *x, FINITE = N - 2 };
    static const struct {
        int kind;
        float want[N];
    } all[] = {{FL_BINARY_EQUAL, {1, 0, 0, 0, 1, 0}},
               {FL_BINARY_NOT_EQUAL, {0, 1, 1, 1, 0, 1}},
               {FL_BINARY_LESS_THAN, {0, 1, 0, 1, 0, 1}},
               {FL_BINARY_LESS_EQUAL, {1, 1, 0, 1, 1, 1}},
               {FL_BINARY_GREATER_THAN, {0, 0, 1, 0, 0, 0}},
               {FL_BINARY_GREATER_EQUAL, {1, 0, 1, 0, 1, 0}},
               {FL_BINARY_LOGICAL_AND, {0, 1, 0, 1, 1, 1}},
               {FL_BINARY_LOGICAL_OR, {0, 1, 1, 1, 1, 1}},
               {FL_BINARY_LOGICAL_XOR, {0, 0, 1, 0, 0, 0}}};

    CHECK_INT(sizeof all / sizeof *all, FL_N_FORMULA - FL_N_BINARY);
    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            const fl_binary_simd *b = &(*t)->binary[all[i].kind];
            float out[N];

            CHECK(b->gradient[0] == NULL && b->gradient[1] == NULL);
            b->forward(out, &(fl_operand_pair){x, y, false, false, N});
            CHECK_CLOSE(out, all[i].want, FINITE, 0);
            for (int j = FINITE; j < N; j++)
                CHECK(isnan(out[j]));
        }
}

TEST(an_element_has_its_bits_wherever_a_split_falls)
{
    enum { N = 41 };

    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (int kind = 0; kind < FL_N_UNARY; kind++) {
            float x[N], whole[N], y[N + 2];

            for (int i = 0; i < N; i++)
                x[i] = 0.07f * (float)(i + 1);
            (*t)->unary[kind].forward(whole, x, 0.5f, 2.0f, N);
            for (int at = 0; at < N; at++)
                for (int n = 1; at + n <= N && n < 20; n++) {
                    memset(y, 0x55, sizeof y);
                    (*t)->unary[kind].forward(y + 1, x + at, 0.5f, 2.0f, n);
                    CHECK(memcmp(y + 1, whole + at, (size_t)n * sizeof *y) ==
                          0);
                    CHECK(memcmp(y, y + n + 1, sizeof *y) == 0 ||
                          n + 1 > N + 1);
                }
        }
}

/* Each mode of a gradient of two operands, by the same terms. */
TEST(gradients_of_two_operands_are_set_added_and_summed)
{
    enum { N = 37 };

    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (int i = 0; i < 2 * FL_N_BINARY; i++) {
            const fl_binary_simd *b = &(*t)->binary[i / 2];
            float x[N], y[N], g[N], set[N], add[N], sum = 3;
            double want = 3;
            fl_operand_pair o = {x, y, false, false, N};

            for (int j = 0; j < N; j++) {
                x[j] = sinf((float)j), y[j] = 1.5f + cosf((float)j);
                g[j] = 0.1f * (float)j, add[j] = 7;
            }
            b->gradient[i % 2](set, FL_TERMS_SET, g, &o);
            b->gradient[i % 2](add, FL_TERMS_ADD, g, &o);
            b->gradient[i % 2](&sum, FL_TERMS_SUM, g, &o);
            for (int j = 0; j < N; j++) {
                CHECK(add[j] == 7 + set[j]);
                want += (double)set[j];
            }
            CHECK_CLOSE(&sum, &(float){(float)want}, 1, 1e-5);
        }
}
