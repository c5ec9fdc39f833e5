/* initializer_test.c - first values of parameters: each kind's statistics, and
 * that they are a function of seed and name alone. */
#define SUITE initializer
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "fleet/job/handle.h"

enum { IN = 300, OUT = 200, N = IN * OUT };

static fleet *handle(uint64_t seed)
{
    fleet_options o = {.seed = seed, .num_threads = 1};
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    return f;
}

/* The first values of the handle's parameter; they live as long as it. */
static const float *first_values(fleet *f, fleet_program *p, const char *name)
{
    fleet_executor *e = fleet_executor_create(p, NULL);
    const fl_param *param;

    CHECK(e != NULL);
    fleet_executor_destroy(e);
    param = fl_store_param(f->store, name);
    CHECK(param != NULL);
    return param->flat->weight + param->offset;
}

typedef struct moments {
    double mean, deviation, low, high;
} moments;

static moments moments_of(const float *x, int64_t n)
{
    moments m = {0, 0, 1e9, -1e9};

    for (int64_t i = 0; i < n; i++) {
        m.mean += (double)x[i] / (double)n;
        m.low = fmin(m.low, (double)x[i]);
        m.high = fmax(m.high, (double)x[i]);
    }
    for (int64_t i = 0; i < n; i++)
        m.deviation += pow((double)x[i] - m.mean, 2) / (double)n;
    m.deviation = sqrt(m.deviation);
    return m;
}

/* Of a weight [300, 200] with this initializer. */
static moments moments_with(fleet_initializer_kind kind, float a, float b)
{
    fleet_param_attr attr = {.name = "w", .initializer = {kind, a, b}};
    fleet *f = handle(1);
    fleet_program *p = fleet_program_create(f);
    moments m;

    CHECK(fleet_parameter(p, (int64_t[]){IN, OUT}, 2, &attr) != NULL);
    m = moments_of(first_values(f, p, "w"), N);
    fleet_destroy(f);
    return m;
}

/* A uniform distribution in [low, high), to its ends. */
static void check_uniform(moments m, double low, double high)
{
    double width = high - low;

    CHECK_NEAR(m.mean, (low + high) / 2, width / 200);
    CHECK_NEAR(m.deviation, width / sqrt(12), width / 300);
    CHECK(m.low >= low && m.low < low + width / 1000);
    CHECK(m.high < high && m.high > high - width / 1000);
}

static void check_normal(moments m, double mean, double deviation)
{
    CHECK_NEAR(m.mean, mean, deviation / 40);
    CHECK_NEAR(m.deviation, deviation, deviation / 60);
    CHECK(m.low < mean - 3.3 * deviation && m.high > mean + 3.3 * deviation);
}

TEST(a_constant_is_one_everywhere)
{
    moments m = moments_with(FLEET_INIT_CONSTANT, 0.25f, 0);

    CHECK(m.low == 0.25 && m.high == 0.25);
}

TEST(uniform_and_normal_are_as_asked_for)
{
    check_uniform(moments_with(FLEET_INIT_UNIFORM, -0.5f, 2), -0.5, 2);
    check_normal(moments_with(FLEET_INIT_NORMAL, 3, 0.5f), 3, 0.5);
}

TEST(a_truncated_normal_ends_at_two_deviations)
{
    moments m = moments_with(FLEET_INIT_TRUNCATED_NORMAL, 1, 0.5f);

    CHECK_NEAR(m.mean, 1, 0.01);
    CHECK_NEAR(m.deviation, 0.5 * 0.8796, 0.005);
    CHECK(m.low >= 0 && m.low < 0.01 && m.high <= 2 && m.high > 1.99);
}

TEST(xavier_and_kaiming_scale_with_the_fans)
{
    double both = sqrt(6.0 / (IN + OUT)), in = sqrt(6.0 / IN);

    check_uniform(moments_with(FLEET_INIT_XAVIER_UNIFORM, 0, 0), -both, both);
    check_normal(moments_with(FLEET_INIT_XAVIER_NORMAL, 0, 0), 0,
                 sqrt(2.0 / (IN + OUT)));
    check_uniform(moments_with(FLEET_INIT_KAIMING_UNIFORM, 0, 0), -in, in);
    check_normal(moments_with(FLEET_INIT_KAIMING_NORMAL, 0, 0), 0,
                 sqrt(2.0 / IN));
}

/* --- layers' own choices ------------------------------------------------- */

TEST(layers_start_as_their_documentation_says)
{
    fleet *f = handle(1);
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, IN}, 2);
    fleet_var *ids = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    double both = sqrt(6.0 / (IN + OUT)), rows = sqrt(1.0 / 1000);
    moments m;

    fleet_fc(p, x, OUT, &(fleet_fc_options){.name = "fc"});
    fleet_embedding(p, ids, 1000, 60, &(fleet_embedding_options){.name = "e"});
    fleet_parameter(p, (int64_t[]){IN, OUT}, 2,
                    &(fleet_param_attr){.name = "bare"});
    check_uniform(moments_of(first_values(f, p, "fc.w"), N), -both, both);
    m = moments_of(first_values(f, p, "fc.b"), OUT);
    CHECK(m.low == 0 && m.high == 0);
    check_uniform(moments_of(first_values(f, p, "e.w"), 60000), -rows, rows);
    check_uniform(moments_of(first_values(f, p, "bare"), N), -both, both);
    fleet_destroy(f);
}

TEST(rows_start_uniform_within_one_over_the_root_of_their_width)
{
    fleet *f = handle(1);
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    static float x[16 * 4000];
    const fl_rows *r;

    CHECK(fleet_sparse_embedding(p, ids, 16, NULL) != NULL);
    fleet_executor_destroy(fleet_executor_create(p, NULL));
    r = fl_store_rows(f->store, "embedding");
    for (uint64_t key = 0; key < 4000; key++)
        fl_filler_row(&r->filler, key, x + key * 16, 16);
    check_uniform(moments_of(x, 64000), -0.25, 0.25);
    fleet_destroy(f);
}

/* --- a function of seed and name ----------------------------------------- */

/* The first values of a parameter, made after or before another one. */
static float *values(uint64_t seed, const char *name, bool last)
{
    fleet *f = handle(seed);
    fleet_program *p = fleet_program_create(f);
    fleet_param_attr attr = {.name = name,
                             .initializer = {FLEET_INIT_NORMAL, 0, 1}};
    fleet_param_attr other = {.name = "other"};
    float *copy = malloc(N * sizeof *copy);

    if (last)
        fleet_parameter(p, (int64_t[]){77}, 1, &other);
    fleet_parameter(p, (int64_t[]){IN, OUT}, 2, &attr);
    if (!last)
        fleet_parameter(p, (int64_t[]){77}, 1, &other);
    memcpy(copy, first_values(f, p, name), N * sizeof *copy);
    fleet_destroy(f);
    return copy;
}

static int count_equal(const float *a, const float *b)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += a[i] == b[i];
    return n;
}

TEST(first_values_depend_on_seed_and_name_alone)
{
    float *w = values(5, "w", true), *again = values(5, "w", false);
    float *seed = values(6, "w", true), *name = values(5, "v", true);

    CHECK_INT(count_equal(w, again), N);
    CHECK(count_equal(w, seed) < 10);
    CHECK(count_equal(w, name) < 10);
    free(w);
    free(again);
    free(seed);
    free(name);
}

TEST(first_values_do_not_depend_on_what_else_the_handle_has)
{
    fleet *f = handle(5);
    fleet_program *a = fleet_program_create(f), *b = fleet_program_create(f);
    fleet_param_attr attr = {.name = "w",
                             .initializer = {FLEET_INIT_NORMAL, 0, 1}};
    float *want = values(5, "w", true);

    fleet_parameter(a, (int64_t[]){9}, 1, &(fleet_param_attr){.name = "first"});
    first_values(f, a, "first");
    fleet_parameter(b, (int64_t[]){IN, OUT}, 2, &attr);
    CHECK_INT(count_equal(first_values(f, b, "w"), want), N);
    free(want);
    fleet_destroy(f);
}

/* --- fillers ------------------------------------------------------------- */

TEST(a_filler_without_spread_is_its_mean)
{
    fleet_initializer flat[] = {{FLEET_INIT_UNIFORM, 3, 3},
                                {FLEET_INIT_NORMAL, 3, 0},
                                {FLEET_INIT_TRUNCATED_NORMAL, 3, 0}};

    for (int i = 0; i < 3; i++) {
        fl_filler f = fl_filler_make(&flat[i], 1, 1, 5, "w");
        float x[9];

        CHECK_OK(fl_initializer_check("w", &flat[i]));
        fl_filler_dense(&f, 0, x, 9);
        for (int j = 0; j < 9; j++)
            CHECK(x[j] == 3);
    }
}

TEST(a_shorter_row_is_the_beginning_of_a_longer_one)
{
    fleet_initializer i = {FLEET_INIT_UNIFORM, -1, 1};
    fl_filler f = fl_filler_make(&i, 1, 1, 5, "t");
    float longer[64], x[64];

    fl_filler_row(&f, 99, longer, 64);
    for (int n = 1; n < 64; n++) {
        fl_filler_row(&f, 99, x, n);
        CHECK(memcmp(x, longer, (size_t)n * sizeof *x) == 0);
    }
}
