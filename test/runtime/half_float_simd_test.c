/* half_float_simd_test.c - the vector kernels that read or write bfloat16: each
 * against a plain formula, for all small sizes, on every instruction set. */
#define SUITE bf16_simd
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <fleet/nn.h>

#include "runtime/simd/simd.h"

enum { MOST = 70, ROOM = MOST + 8 };

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898 + 1) * 1.7f;
}

static void on_all(void (*body)(const fl_simd *t))
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        fprintf(stderr, "on %s\n", (*t)->isa);
        body(*t);
    }
}

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t top_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* The nearest, of two equally near ones the even one, by trying both. */
static uint16_t nearest(float x)
{
    uint16_t down = top_of(x), up = (uint16_t)(down + 1);
    double below = fabs((double)x - (double)widen(down));
    double above = fabs((double)widen(up) - (double)x);

    if (isinf(x) || below < above || (below == above && down % 2 == 0))
        return down;
    return up;
}

static void try_cast(const fl_simd *t)
{
    static const float odd[] = {0.0f,        -0.0f,        1.0f,   1.00390625f,
                                1.01171875f, -1.00390625f, 1e-40f, -3e38f,
                                INFINITY,    -INFINITY,    1e-30f, 65280.5f};
    enum { N_ODD = sizeof odd / sizeof *odd };
    float a[ROOM];
    uint16_t out[ROOM];

    for (int n = 0; n <= MOST; n++) {
        for (int i = 0; i < ROOM; i++)
            a[i] = noise(i + 1000 * n);
        memcpy(a + 5, odd, sizeof odd);
        memset(out, 0x77, sizeof out);
        t->cast(out + 1, a + 3, n);
        for (int i = 0; i < n; i++)
            CHECK_INT(out[1 + i], nearest(a[3 + i]));
        CHECK(out[0] == 0x7777 && out[1 + n] == 0x7777);
    }
}

/* 3.4e38 is beyond the largest number of bfloat16; a NaN whose upper half is
 * that of infinity must not become it. */
static void try_cast_ends(const fl_simd *t)
{
    uint32_t low_nan = 0x7f800001;
    float a[3] = {3.4e38f, NAN};
    uint16_t out[3];

    memcpy(&a[2], &low_nan, sizeof low_nan);
    t->cast(out, a, 3);
    CHECK_INT(out[0], top_of(INFINITY));
    CHECK(isnan(widen(out[1])) && isnan(widen(out[2])));
}

TEST(a_cast_to_bfloat16_gives_the_nearest)
{
    on_all(try_cast);
    on_all(try_cast_ends);
}

static void try_relu_bf16(const fl_simd *t)
{
    uint16_t x[ROOM], before[ROOM];

    for (int n = 0; n <= MOST; n++) {
        for (int i = 0; i < ROOM; i++)
            before[i] = top_of(i % 7 == 3 ? NAN : noise(i + n));
        memcpy(x, before, sizeof x);
        t->activation[FLEET_RELU].forward_bf16(x + 2, 0, n);
        for (int i = 0; i < ROOM; i++) {
            bool in = i >= 2 && i < 2 + n;

            if (in && isnan(widen(before[i])))
                CHECK(isnan(widen(x[i])));
            else
                CHECK_INT(x[i], in && before[i] >> 15 ? 0 : before[i]);
        }
    }
}

TEST(relu_of_bfloat16_keeps_nan)
{
    on_all(try_relu_bf16);
}

/* Each operand of either type; the result in place of b. */
static void check_any(const fl_activation_simd *s, bool a16, bool b16)
{
    float a[MOST], b[MOST], w[MOST];
    uint16_t a_half[MOST], b_half[MOST];
    fl_numbers x = {a16 ? (void *)a_half : (void *)a, a16};
    fl_numbers y = {b16 ? (void *)b_half : (void *)b, b16};

    for (int i = 0; i < MOST; i++) {
        a[i] = widen(a_half[i] = nearest(noise(i)));
        b[i] = widen(b_half[i] = nearest(noise(i + 100)));
    }
    s->gradient(w, a, b, 0.3f, MOST);
    s->gradient_any(y, x, y, 0.3f, MOST);
    for (int i = 0; i < MOST; i++)
        CHECK(b16 ? b_half[i] == nearest(w[i]) : b[i] == w[i]);
}

static void try_any(const fl_simd *t)
{
    for (int types = 0; types < 4; types++)
        for (int kind = FLEET_LINEAR + 1; kind < FL_N_ACTIVATION; kind++)
            check_any(&t->activation[kind], types & 1, types & 2);
}

TEST(gradients_of_activations_take_either_type)
{
    on_all(try_any);
}

static void try_col_sum_bf16(const fl_simd *t)
{
    enum { ROWS = 9, LD = 80 };
    uint16_t half[ROWS * LD];
    float x[ROWS * LD], got[ROOM], want[ROOM];

    for (int i = 0; i < ROWS * LD; i++)
        x[i] = widen(half[i] = nearest(noise(i)));
    for (int n = 0; n <= MOST; n++) {
        memset(got, 0, sizeof got);
        memset(want, 0, sizeof want);
        t->col_sum_bf16(got, half + 1, LD, ROWS, n);
        t->col_sum(want, x + 1, LD, ROWS, n);
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
}

TEST(column_sums_of_bfloat16_are_of_float)
{
    on_all(try_col_sum_bf16);
}
