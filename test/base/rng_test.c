/* rng_test.c - random numbers: the published vectors, independence of where and
 * in which order they are made, and their moments. */
#define SUITE rng
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* Random123's known answers for philox4x32, 10 rounds. */
static const struct {
    uint64_t seed, stream, block;
    uint32_t want[4];
} known[] = {
    {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {~0ULL, ~0ULL, ~0ULL, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x299f31d0a4093822ULL,
     0x0370734413198a2eULL,
     0x85a308d3243f6a88ULL,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(blocks_are_philoxs)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fl_rng4 r =
            fl_rng_block(known[i].seed, known[i].stream, known[i].block);

        CHECK(memcmp(r.v, known[i].want, sizeof r.v) == 0);
    }
}

/* The ends, the eighths of the circle and what is beside them, and others. */
static uint32_t angle(int i)
{
    return i < 100   ? (uint32_t)i
           : i < 200 ? (uint32_t)(99 - i)
           : i < 240
               ? (uint32_t)(i - 200) / 5 * 0x20000000u + (uint32_t)(i % 5 - 2)
               : fl_rng_block(1, 2, (uint64_t)i).v[0];
}

TEST(logarithms_sines_and_cosines_are_the_librarys_to_the_last_bits)
{
    for (int i = 0; i < 100000; i++) {
        uint32_t a = angle(i);
        double by = log(((double)a + 1) * 0x1p-32), got = fl_rng_log(a);
        double turn = 6.283185307179586 * ((double)a * 0x1p-32), s, c;

        fl_rng_turn(a, &s, &c);
        CHECK(fabs(got - by) <= 4e-16 * fabs(by));
        CHECK(fabs(s - sin(turn)) <= 2e-15);
        CHECK(fabs(c - cos(turn)) <= 2e-15);
    }
}

typedef void fill(uint64_t seed, uint64_t stream, uint64_t index, float a,
                  float b, float *out, int64_t n);

static fill *const fills[] = {fl_rng_uniform, fl_rng_normal,
                              fl_rng_truncated_normal};

/* A range made in pieces, from the last to the first, is the range. */
static void check_pieces(fill *f, int64_t piece)
{
    enum { N = 1000 };
    float whole[N], pieces[N + 64];

    f(5, 6, 0, -1, 1, whole, N);
    for (int64_t at = (N - 1) / piece * piece; at >= 0; at -= piece)
        f(5, 6, (uint64_t)at, -1, 1, pieces + at,
          at + piece < N ? piece : N - at);
    CHECK(memcmp(whole, pieces, sizeof whole) == 0);
}

TEST(an_element_does_not_depend_on_where_a_range_begins)
{
    for (int i = 0; i < 3; i++) {
        check_pieces(fills[i], 4);
        check_pieces(fills[i], 12);
        check_pieces(fills[i], 500);
    }
}

TEST(seed_and_stream_make_other_sequences)
{
    float a[100], b[100], c[100];

    for (int i = 0; i < 3; i++) {
        fills[i](1, 1, 0, 0, 1, a, 100);
        fills[i](2, 1, 0, 0, 1, b, 100);
        fills[i](1, 2, 0, 0, 1, c, 100);
        for (int j = 0; j < 100; j++)
            CHECK(a[j] != b[j] && a[j] != c[j] && b[j] != c[j]);
    }
}

/* --- moments ------------------------------------------------------------- */

enum { MANY = 200000 };

typedef struct moments {
    double mean, deviation, skewness, kurtosis, low, high;
} moments;

static moments moments_of(fill *f, float a, float b)
{
    float *x = malloc(MANY * sizeof *x);
    moments m = {0, 0, 0, 0, 1e9, -1e9};

    f(77, 3, 0, a, b, x, MANY);
    for (int i = 0; i < MANY; i++) {
        m.mean += (double)x[i] / MANY;
        m.low = fmin(m.low, (double)x[i]);
        m.high = fmax(m.high, (double)x[i]);
    }
    for (int i = 0; i < MANY; i++)
        m.deviation += pow((double)x[i] - m.mean, 2) / MANY;
    m.deviation = sqrt(m.deviation);
    for (int i = 0; i < MANY; i++) {
        double z = ((double)x[i] - m.mean) / m.deviation;

        m.skewness += pow(z, 3) / MANY;
        m.kurtosis += pow(z, 4) / MANY;
    }
    free(x);
    return m;
}

TEST(uniform_numbers_have_their_moments)
{
    moments m = moments_of(fl_rng_uniform, -3, 5);

    CHECK_NEAR(m.mean, 1, 0.03);
    CHECK_NEAR(m.deviation, 8 / sqrt(12), 0.02);
    CHECK_NEAR(m.skewness, 0, 0.02);
    CHECK_NEAR(m.kurtosis, 1.8, 0.02);
    CHECK(m.low >= -3 && m.low < -2.99 && m.high < 5 && m.high > 4.99);
}

TEST(normal_numbers_have_their_moments)
{
    moments m = moments_of(fl_rng_normal, 2, 0.5f);

    CHECK_NEAR(m.mean, 2, 0.006);
    CHECK_NEAR(m.deviation, 0.5, 0.004);
    CHECK_NEAR(m.skewness, 0, 0.03);
    CHECK_NEAR(m.kurtosis, 3, 0.06);
    CHECK(m.high > 2 + 3.8 * 0.5 && m.low < 2 - 3.8 * 0.5);
}

TEST(truncated_normal_numbers_stay_within_two_deviations)
{
    moments m = moments_of(fl_rng_truncated_normal, 1, 2);

    CHECK_NEAR(m.mean, 1, 0.02);
    CHECK_NEAR(m.deviation, 2 * 0.8796, 0.02); /* of a normal cut at 2 */
    CHECK_NEAR(m.skewness, 0, 0.02);
    CHECK(m.low >= -3 && m.low < -2.9 && m.high <= 5 && m.high > 4.9);
}

/* Neighbours are independent: no correlation at distances of 1 to 8. */
TEST(neighbours_are_independent)
{
    float *x = malloc(MANY * sizeof *x);

    for (int i = 0; i < 3; i++) {
        fills[i](8, 9, 0, i == 0 ? -1 : 0, 1, x, MANY);
        for (int distance = 1; distance <= 8; distance++) {
            double sum = 0, square = 0;

            for (int j = 0; j + distance < MANY; j++) {
                sum += (double)x[j] * (double)x[j + distance];
                square += (double)x[j] * (double)x[j];
            }
            CHECK_NEAR(sum / square, 0, 0.012);
        }
    }
    free(x);
}

/* In seed 0, stream 0 a word of this block is all ones in its upper 24 bits:
 * the number next below 1, which must not be rounded up to the limit. */
TEST(a_uniform_number_never_reaches_its_upper_limit)
{
    enum { TOP_WORD = 2 };
    const uint64_t block = 2330056;
    static const float limits[][2] = {{1, 2}, {0.1f, 0.3f}, {-1, 1}, {-9, 1}};
    float x[4];

    fl_rng_uniform(0, 0, block * 4, 0, 1, x, 4);
    CHECK(x[TOP_WORD] == 1 - 0x1p-24f);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        fl_rng_uniform(0, 0, block * 4, limits[i][0], limits[i][1], x, 4);
        CHECK(x[TOP_WORD] < limits[i][1] && x[TOP_WORD] > limits[i][0]);
    }
    fl_rng_uniform(0, 0, block * 4, 2, 2, x, 4);
    CHECK(x[TOP_WORD] == 2);
}

TEST(numbers_below_a_limit_are_even)
{
    int count[7] = {0};

    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t x = fl_rng_below(3, 4, i, 7);

        CHECK(x < 7);
        count[x]++;
    }
    for (int i = 0; i < 7; i++)
        CHECK(count[i] > 9600 && count[i] < 10400);
    CHECK_INT(fl_rng_below(3, 4, 5, 1), 0);
    CHECK(fl_rng_below(3, 4, 5, ~0ULL) > 1ULL << 40);
}
