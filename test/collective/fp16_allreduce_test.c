/* fp16_allreduce_test.c - float16: every number of it, and gradients that
 * travel so. */
#define SUITE fp16_allreduce
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/simd/simd.h"

/* --- numbers ------------------------------------------------------------- */

/* By its definition. */
static double value_of(uint16_t h)
{
    int exponent = h >> 10 & 31, digits = h & 1023;
    double x = exponent == 0   ? ldexp(digits, -24)
               : exponent < 31 ? ldexp(1024 + digits, exponent - 25)
               : digits        ? (double)NAN
                               : (double)INFINITY;

    return h & 0x8000 ? -x : x;
}

static void check_all_numbers(const fl_simd *t)
{
    static uint16_t h[1 << 16], back[1 << 16];
    static float x[1 << 16];

    for (int i = 0; i < 1 << 16; i++)
        h[i] = (uint16_t)i;
    t->from_half(x, h, 1 << 16);
    t->to_half(back, x, 1 << 16);
    for (int i = 0; i < 1 << 16; i++) {
        double want = value_of(h[i]);

        if (isnan(want)) {
            CHECK(isnan(x[i]) && isnan(value_of(back[i])));
            continue;
        }
        CHECK((double)x[i] == want);
        CHECK(back[i] == h[i]);
    }
}

/* Between two neighbours: the nearer one, or the even one of the two. */
static void check_between(const fl_simd *t, uint16_t low)
{
    double a = value_of(low), b = low == 0x7BFF ? 65536 : value_of(low + 1);
    float middle = (float)((a + b) / 2);
    const float x[] = {middle, nextafterf(middle, 0), nextafterf(middle, 1e30f),
                       -middle};
    const uint16_t up = (uint16_t)(low + 1), even = low & 1 ? up : low;
    uint16_t h[4];

    t->to_half(h, x, 4);
    CHECK_INT(h[0], even);
    CHECK_INT(h[1], low);
    CHECK_INT(h[2], up);
    CHECK_INT(h[3], even | 0x8000);
}

TEST(every_number_of_float16_is_itself_and_others_are_rounded_to_even)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        check_all_numbers(*t);
        for (uint16_t low = 0; low < 0x7C00; low++)
            check_between(*t, low);
    }
}

TEST(what_is_too_large_is_infinite_and_what_is_too_small_is_zero)
{
    const float x[] = {INFINITY, -1e30f, 65520, 65519.996f, 2e-8f, 1e-40f};
    const uint16_t want[] = {0x7C00, 0xFC00, 0x7C00, 0x7BFF, 0, 0};
    uint16_t h[6];

    for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
        (*t)->to_half(h, x, 6);
        for (int i = 0; i < 6; i++)
            CHECK_INT(h[i], want[i]);
    }
}

/* --- gradients ----------------------------------------------------------- */

static double distance(const rank_lesson *a, const rank_lesson *b)
{
    double most = 0;

    for (int i = 0; i < RANK_MOST_FLOATS; i++)
        most =
            fmax(most, fabs((double)a->weight[0][i] - (double)b->weight[0][i]));
    return most;
}

/* An update moves a weight by rate times gradient, whose rounding is relative:
 * 2^-11 of each rank's part and of the sum. */
TEST(one_update_differs_by_no_more_than_the_rounding)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        rank_lesson s = {.how = {.optimizer = "sgd", .learning_rate = 1.0f},
                         .batches = ranks,
                         .last = 50,
                         .passes = 1};
        rank_lesson half = s, none = s;

        half.also.all_reduce.fp16 = true;
        none.how.learning_rate = 1e-30f;
        rank_train(&s, ranks);
        rank_train(&half, ranks);
        rank_train(&none, ranks);
        CHECK(distance(&s, &half) > 0);
        CHECK(distance(&s, &half) <= distance(&s, &none) * 3 * 0x1p-11);
    }
}

/* The last ranks are idle in the last updates; buckets of any size. */
TEST(ranks_whose_gradients_are_float16_stay_equal)
{
    rank_lesson first = {.how = {.optimizer = "adam", .clip = 0.05f},
                         .also.all_reduce.fp16 = true,
                         .batches = 9,
                         .last = 17,
                         .passes = 2};
    rank_lesson other = first;

    rank_train(&first, 4);
    CHECK_INT(first.updates[0], 6);
    other.also.all_reduce.bucket = 700;
    rank_train(&other, 4);
    CHECK(memcmp(first.weight[0], other.weight[0], sizeof first.weight[0]) ==
          0);
    CHECK(other.calls[0] > first.calls[0]);
}

static void make_gradients_large(kit_model *m)
{
    const fl_param *p = fl_store_param(m->f->store, "tower_out.w");

    for (int64_t i = 0; i < p->n; i++)
        p->flat->weight[p->offset + i] *= 1e8f;
}

TEST(a_gradient_too_large_for_float16_fails_all_ranks_and_changes_nothing)
{
    rank_lesson s = {.how.optimizer = "sgd",
                     .also.all_reduce.fp16 = true,
                     .batches = 2,
                     .last = 50,
                     .passes = 1,
                     .prepare = make_gradients_large};
    rank_lesson before = s;
    fake_group g;

    fake_group_open(&g, 2);
    fake_group_run(&g, rank_learn, &s);
    fake_group_close(&g);
    before.passes = 0;
    rank_train(&before, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(s.status[i], FLEET_ENUMERIC);
        CHECK_CONTAINS(s.error[i], "the gradient of \"tower_");
        CHECK_CONTAINS(s.error[i], "strategy.fp16_allreduce");
        CHECK(memcmp(s.weight[i], before.weight[i], sizeof s.weight[i]) == 0);
    }
}
