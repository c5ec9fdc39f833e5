/* sequence_pool_test.c - a sample's numbers become one: every combiner against
 * plain sums in double, none and one of them, in a batch of any size, beside
 * other inputs. */
#define SUITE sequence_pool
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 6 };

static double plain(const float *x, int64_t n, fleet_combiner combiner)
{
    double sum = 0, most = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        most = fmax(most, (double)x[i]);
    }
    if (n == 0)
        return 0;
    return combiner == FLEET_FIRST  ? (double)x[0]
           : combiner == FLEET_LAST ? (double)x[n - 1]
           : combiner == FLEET_MAX  ? most
           : combiner == FLEET_MEAN ? sum / (double)n
           : combiner == FLEET_SQRT ? sum / sqrt((double)n)
                                    : sum;
}

/* Alone, and as a column of a concatenation, where it writes straight to. */
static void check(fleet_combiner combiner, int64_t rows, bool beside)
{
    fleet *f = kit_handle(&(kit_options){.threads = 2});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data_ragged_floats(p, "x");
    fleet_var *out = fleet_sequence_pool(p, x, combiner), *part[3];
    kit_batch *b = kit_batch_new(rows);
    const float *number = kit_ragged_floats(b, "x", MOST, 3);
    int64_t cols = beside ? 5 : 1, column = beside ? 2 : 0;
    float *got = malloc((size_t)(rows * cols) * sizeof *got);
    fleet_executor *e;

    if (beside) {
        part[0] = kit_data(p, "left", 2);
        part[1] = out;
        part[2] = kit_data(p, "right", 2);
        out = fleet_concat(p, part, 3, 1);
        kit_floats(b, "left", 2, 1);
        kit_floats(b, "right", 2, 2);
    }
    CHECK_OK(fleet_program_status(p));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    CHECK_OK(kit_fetch(e, b, out, got, rows * cols));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t *at = b->feed[0].offsets + i;

        CHECK_NEAR(got[i * cols + column],
                   plain(number + at[0], at[1] - at[0], combiner), 1e-6);
        CHECK(at[1] > at[0] || got[i * cols + column] == 0.0f);
    }
    free(got);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(agrees_with_plain_sums_for_every_combiner_and_batch)
{
    static const int64_t rows[] = {1, 37, 150};

    for (int c = FLEET_SUM; c <= FLEET_LAST; c++)
        for (int i = 0; i < 3; i++) {
            check((fleet_combiner)c, rows[i], false);
            check((fleet_combiner)c, rows[i], true);
        }
}

TEST(the_largest_of_numbers_below_zero_is_below_zero)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *out =
        fleet_sequence_pool(p, fleet_data_ragged_floats(p, "x"), FLEET_MAX);
    float x[] = {-3, -1, -2}, got[2];
    int64_t dims[] = {2}, offsets[] = {0, 3, 3};
    fleet_feed feed = {"x", FLEET_FLOAT32, x, dims, 1, offsets};
    fleet_fetch fetch = {.var = out, .data = got, .size = sizeof got};
    fleet_executor *e = fleet_executor_create(p, NULL);

    CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
    CHECK(got[0] == -1 && got[1] == 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(takes_ragged_numbers_and_a_combiner_that_exists)
{
    for (int i = 0; i < 4; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *x = i == 0   ? kit_data(p, "x", 1)
                       : i == 1 ? fleet_data_ragged(p, "x")
                                : fleet_data_ragged_floats(p, "x");

        CHECK(fleet_sequence_pool(p, x,
                                  i == 3 ? FLEET_MEAN
                                         : (fleet_combiner)(i * 3)) == NULL ||
              i == 3);
        if (i < 2)
            CHECK_FAILS(fleet_program_status(p), FLEET_EDTYPE,
                        i == 0 ? "\"x\" is float32, not ragged float32"
                               : "\"x\" is ragged int64, not ragged float32");
        if (i == 2)
            CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL,
                        "sequence_pool: combiner 6 does not exist");
        fleet_destroy(f);
    }
}
