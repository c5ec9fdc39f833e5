/* row_storage_test.c - weights of rows in fewer bits: which number becomes
 * which at which random bits, that the mean is kept, the same bits on every
 * instruction set; rows of a table that are kept so, made, updated, read. */
#define SUITE row_storage
#include "test.h"

#include <math.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/hash.h"
#include "runtime/optim/narrow_rows.h"
#include "runtime/simd/half_float.h"
#include "runtime/simd/simd.h"
#include "runtime/store/table.h"

enum { MOST = 67, N_NARROW = 3 };
static const fleet_row_storage narrow[N_NARROW] = {
    FLEET_ROW_FLOAT16, FLEET_ROW_BFLOAT16, FLEET_ROW_INT8};

static void pass(fleet_row_storage s, const fl_simd *t, float *out,
                 const float *w, int64_t n, const uint64_t *seed)
{
    float row[MOST + 1];

    memset(row, 0xAB, sizeof row);
    t->write_weights(s, row, w, n, seed);
    for (int64_t i = fl_storage_words(s, n); i < MOST + 1; i++)
        CHECK(fl_bits_of(row[i]) == 0xABABABABu); /* the next one's */
    t->read_weights(s, out, row, n);
}

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898) * 0.99f;
}

/* Numbers of many sizes. */
static float number(int64_t i)
{
    return ldexpf(noise(i), (int)(i % 23) - 16);
}

/* --- what becomes of a number --------------------------------------------- */

/* The two numbers beside x that can be kept, x itself twice if it can. */
static void neighbours(fleet_row_storage s, double x, double largest,
                       double *low, double *high)
{
    double step = 0;
    int e;

    (void)frexp(x, &e);
    if (s == FLEET_ROW_BFLOAT16)
        step = ldexp(1, e - 8);
    if (s == FLEET_ROW_FLOAT16)
        step = ldexp(1, (e < -13 ? -13 : e) - 11);
    if (s == FLEET_ROW_INT8)
        for (step = 1; largest > 127 * step || largest <= 127 * step / 2;)
            step *= largest > 127 * step ? 2 : 0.5;
    *low = floor(x / step) * step;
    *high = ceil(x / step) * step;
}

static double largest_of(const float *w, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, fabs((double)w[i]));
    return most;
}

/* Over many seeds each number becomes one of its neighbours, the upper one as
 * often as it is near. */
static void check_means(fleet_row_storage s)
{
    enum { SEEDS = 4000, N = 23 };
    double sum[N] = {0}, low, high;
    float w[N], out[N];

    for (int i = 0; i < N; i++)
        w[i] = s == FLEET_ROW_INT8 ? noise(i) : number(i);
    for (uint64_t k = 0; k < SEEDS; k++) {
        uint64_t seed = fl_rounding_seed(5, k, 7);

        pass(s, fl_simd_best(), out, w, N, &seed);
        for (int i = 0; i < N; i++) {
            neighbours(s, (double)w[i], largest_of(w, N), &low, &high);
            if ((double)out[i] != low && (double)out[i] != high)
                test_fail(__FILE__, __LINE__, "%.9g becomes %.9g", (double)w[i],
                          (double)out[i]);
            sum[i] += (double)out[i];
        }
    }
    for (int i = 0; i < N; i++) {
        neighbours(s, (double)w[i], largest_of(w, N), &low, &high);
        /* four times the deviation of a mean of draws at p = 1/2 */
        if (!(fabs(sum[i] / SEEDS - (double)w[i]) <=
              4 * 0.5 * (high - low) / sqrt(SEEDS)))
            test_fail(__FILE__, __LINE__,
                      "storage %d: the mean of %.9g is %.9g", (int)s,
                      (double)w[i], sum[i] / SEEDS);
    }
}

TEST(a_number_becomes_a_neighbour_and_its_mean_stays)
{
    for (int i = 0; i < N_NARROW; i++)
        check_means(narrow[i]);
}

TEST(without_a_seed_it_becomes_the_nearer_one)
{
    double low, high;
    float w[MOST], out[MOST];

    for (int k = 0; k < N_NARROW; k++)
        for (int n = 1; n <= MOST; n++) {
            for (int i = 0; i < n; i++)
                w[i] = narrow[k] == FLEET_ROW_INT8 ? noise(n * 70 + i)
                                                   : number(n * 70 + i);
            pass(narrow[k], fl_simd_best(), out, w, n, NULL);
            for (int i = 0; i < n; i++) {
                neighbours(narrow[k], (double)w[i], largest_of(w, n), &low,
                           &high);
                CHECK(fabs((double)(out[i] - w[i])) <= (high - low) / 2);
            }
        }
}

/* Saves, texts and calls by hand carry floats. */
TEST(what_was_read_is_written_as_it_was)
{
    for (int k = 0; k < N_NARROW; k++)
        for (int n = 1; n <= MOST; n++) {
            uint64_t seed = fl_mix((uint64_t)n);
            float w[MOST], once[MOST], again[MOST];

            for (int i = 0; i < n; i++)
                w[i] = ldexpf(noise(n * 70 + i), n % 40 - 30);
            pass(narrow[k], fl_simd_best(), once, w, n, &seed);
            pass(narrow[k], fl_simd_best(), again, once, n, NULL);
            CHECK(memcmp(once, again, (size_t)n * sizeof *once) == 0);
            pass(narrow[k], fl_simd_best(), again, once, n, &seed);
            CHECK(memcmp(once, again, (size_t)n * sizeof *once) == 0);
        }
}

TEST(all_instruction_sets_have_the_same_bits)
{
    for (int k = 0; k < N_NARROW; k++)
        for (int n = 1; n <= MOST; n++)
            for (int how = 0; how < 2; how++) {
                uint64_t seed = fl_mix((uint64_t)n + 99);
                float w[MOST], want[MOST], got[MOST];

                for (int i = 0; i < n; i++)
                    w[i] = number(n * 71 + i);
                pass(narrow[k], fl_simd_best(), want, w, n, how ? &seed : NULL);
                for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
                    pass(narrow[k], *t, got, w, n, how ? &seed : NULL);
                    CHECK(memcmp(want, got, (size_t)n * sizeof *got) == 0);
                }
            }
}

/* A training that has diverged must not look as if it had not. */
TEST(what_is_no_number_stays_it_and_what_is_too_large_is_the_largest)
{
    const uint64_t seed = 3;

    for (int how = 0; how < 2; how++) {
        const uint64_t *at = how ? &seed : NULL;
        float w[] = {1, NAN, -INFINITY, 3e38f, -7e4f, 65519}, out[6];

        pass(FLEET_ROW_FLOAT16, fl_simd_best(), out, w, 6, at);
        CHECK(out[0] == 1 && isnan(out[1]) && out[2] == -INFINITY);
        CHECK(out[3] == 65504 && out[4] == -65504 && out[5] == 65504);
        w[3] = 3.4028235e38f;
        pass(FLEET_ROW_BFLOAT16, fl_simd_best(), out, w, 4, at);
        CHECK(out[0] == 1 && isnan(out[1]) && out[2] == -INFINITY);
        CHECK(isfinite(out[3]) && out[3] > 3.3e38f);
        pass(FLEET_ROW_INT8, fl_simd_best(), out, w, 2, at);
        CHECK(isnan(out[0]) && isnan(out[1]));
        w[1] = INFINITY;
        pass(FLEET_ROW_INT8, fl_simd_best(), out, w, 2, at);
        CHECK(!isfinite(out[0]) && !isfinite(out[1]));
        w[0] = w[1] = 0;
        pass(FLEET_ROW_INT8, fl_simd_best(), out, w, 2, at);
        CHECK(out[0] == 0 && out[1] == 0);
        w[0] = 1e-45f;
        pass(FLEET_ROW_INT8, fl_simd_best(), out, w, 1, at);
        CHECK(fabsf(out[0]) <= 0x1p-126f);
    }
}

TEST(seed_key_version_and_column_all_matter)
{
    const uint64_t all[] = {
        fl_rounding_seed(1, 2, 3), fl_rounding_seed(9, 2, 3),
        fl_rounding_seed(1, 9, 3), fl_rounding_seed(1, 2, 9)};
    float w[MOST], out[4][MOST];
    int ups = 0;

    for (int i = 0; i < MOST; i++)
        w[i] = 1.00006f; /* half-way between two of float16 */
    for (int k = 0; k < 4; k++)
        pass(FLEET_ROW_FLOAT16, fl_simd_best(), out[k], w, MOST, &all[k]);
    for (int k = 1; k < 4; k++)
        CHECK(memcmp(out[0], out[k], sizeof out[0]) != 0);
    for (int i = 0; i < MOST; i++)
        ups += out[0][i] > 1;
    CHECK(ups < MOST && (ups > 0 || out[1][0] > 0));
}

/* --- rows of a table ------------------------------------------------------ */

enum { DIM = 9, KEYS = 300 };

static fl_rows *table_in(fleet_row_storage s, int n_state, int n_row)
{
    fleet_initializer uniform = {FLEET_INIT_UNIFORM, -1, 1};
    fl_filler filler = fl_filler_make(&uniform, DIM, DIM, 5, "t");
    fl_rows *r;

    CHECK_OK(fl_table_make("t", DIM, 0, &filler, &r));
    CHECK_OK(r->methods->set_state(r, n_state, n_row, 0.25f));
    CHECK_OK(r->methods->set_storage(r, s));
    return r;
}

static float *make(fl_rows *r, uint64_t key)
{
    float *row;

    CHECK_OK(r->methods->make(r, &key, 1, &row));
    return row;
}

TEST(a_row_begins_as_an_unknown_one_reads_and_has_its_states_behind)
{
    for (int k = 0; k < N_NARROW; k++) {
        fl_rows *r = table_in(narrow[k], 1, 1);
        float first[DIM], got[DIM + DIM + 1];

        for (uint64_t key = 0; key < KEYS; key++) {
            fl_rows_first(r, key, first);
            fl_rows_read_all(r, got, make(r, key), true);
            CHECK(memcmp(first, got, sizeof first) == 0);
            for (int i = DIM; i < 2 * DIM + 1; i++)
                CHECK(got[i] == 0.25f);
        }
        CHECK_FAILS(r->methods->set_storage(r, FLEET_ROW_FLOAT32), FLEET_ESTATE,
                    "table \"t\" has rows");
        r->methods->destroy(r);
    }
}

TEST(a_row_takes_less_memory)
{
    static const int64_t floats[] = {9, 5, 5, 1 + 3};
    static const fleet_row_storage all[] = {FLEET_ROW_FLOAT32,
                                            FLEET_ROW_FLOAT16,
                                            FLEET_ROW_BFLOAT16, FLEET_ROW_INT8};

    for (int k = 0; k < 4; k++) {
        fl_rows *r = table_in(all[k], 2, 1);
        fl_rows_stat stat;

        CHECK_INT(fl_rows_record(r), floats[k] + 2 * DIM + 1);
        for (uint64_t key = 0; key < KEYS; key++)
            make(r, key);
        CHECK_OK(r->methods->stat(r, &stat));
        CHECK(stat.row_bytes / KEYS <=
              sizeof(fl_row_head) + 8 + 16 +
                  (size_t)fl_rows_record(r) * sizeof(float));
        r->methods->destroy(r);
    }
}

/* The rule on floats, rounded by hand. */
static void update_by_hand(const fl_rows *r, const fleet_optimizer *o,
                           const fl_update *u, uint64_t key, float *w,
                           const float *g)
{
    uint64_t seed =
        fl_rounding_seed(fl_filler_row_seed(&r->filler), key, u->version);
    float row[DIM];

    fl_optimizer_rows(o)(u, &w, &g, 1, DIM);
    fl_simd_best()->write_weights(r->storage, row, w, DIM, &seed);
    fl_simd_best()->read_weights(r->storage, w, row, DIM);
}

typedef struct wide_row {
    fl_row_head head;
    float w[DIM * 3];
} wide_row;

/* More rows than are changed at a time; each twice. */
TEST(an_update_is_the_rules_on_floats_then_rounded)
{
    fleet *f;
    fleet_optimizer *o;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    o = fleet_adam(f, 0.01f, NULL);
    for (int k = 0; k < N_NARROW; k++) {
        static wide_row want[KEYS];
        static float g[KEYS][DIM];
        fl_rows *r = table_in(narrow[k], 2, 0);
        uint64_t key[KEYS];
        float *row[KEYS], got[3 * DIM];
        const float *grad[KEYS];

        for (int i = 0; i < KEYS; i++) {
            key[i] = (uint64_t)i * 7;
            row[i] = make(r, key[i]);
            fl_rows_read_all(r, want[i].w, row[i], true);
            want[i].head = *fl_row_of(row[i]);
            grad[i] = g[i];
            for (int j = 0; j < DIM; j++)
                g[i][j] = noise(i * DIM + j);
        }
        for (int t = 0; t < 2; t++) {
            fl_update u;

            fl_optimizer_update(o, t, 1, &u);
            fl_rows_change(r, o, &u, key, row, grad, KEYS);
            for (int i = 0; i < KEYS; i++)
                update_by_hand(r, o, &u, key[i], want[i].w, g[i]);
        }
        for (int i = 0; i < KEYS; i++) {
            fl_rows_read_all(r, got, row[i], true);
            CHECK(memcmp(got, want[i].w, sizeof got) == 0);
            CHECK(fl_row_of(row[i])->step == 2);
            CHECK(fl_row_of(row[i])->changed_at == 2);
        }
        r->methods->destroy(r);
    }
    fleet_destroy(f);
}

/* Of a step that is a hundredth of what can be kept. */
TEST(small_updates_are_not_lost)
{
    fleet *f;
    fleet_optimizer *o;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    o = fleet_sgd(f, 1);
    for (int k = 0; k < N_NARROW; k++) {
        static const float begin[DIM] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        const float each = narrow[k] == FLEET_ROW_FLOAT16 ? 1e-5f : 8e-5f;
        fl_rows *r = table_in(narrow[k], 0, 0);
        float g[DIM], got[DIM], *row = make(r, 4);
        const float *grad = g;
        const uint64_t key = 4;
        double mean = 0;

        for (int i = 0; i < DIM; i++)
            g[i] = -each;
        fl_rows_write(r, row, begin);
        for (int t = 0; t < 2000; t++) {
            fl_update u;

            fl_optimizer_update(o, t, 1, &u);
            fl_rows_change(r, o, &u, &key, &row, &grad, 1);
        }
        fl_rows_read(r, got, row);
        for (int i = 0; i < DIM; i++)
            mean += (double)got[i] / DIM;
        CHECK(fabs(mean - 1 - 2000 * (double)each) < 0.5 * 2000 * (double)each);
        r->methods->destroy(r);
    }
    fleet_destroy(f);
}

/* --- bounds --------------------------------------------------------------- */

typedef struct bounds {
    float low, high;
    float least[N_NARROW], most[N_NARROW]; /* that can be kept; 0: any */
} bounds;

static const bounds bounds_of[] = {
    {-0.3f,
     0.3f,
     {-0.2998046875f, -0.298828125f, -0.296875f},
     {0.2998046875f, 0.298828125f, 0.296875f}},
    {0.2f, 0.3f, {0}, {0.2998046875f, 0.298828125f, 0.296875f}},
    {-0.3f, -0.2f, {-0.2998046875f, -0.298828125f, -0.296875f}, {0}},
    {-1e-6f, 3.3e-5f, {0}, {0}},
    {0, 1e30f, {0}, {65504, 0, 0}},
};

/* A row that is pulled up and down beyond its bounds, with the sizes of its
 * weights apart; rounding must not leave them, whatever is drawn. */
static void pull(const fl_rows *r, const fleet_optimizer *o, float *row,
                 const bounds *b, float *least, float *most)
{
    float g[DIM], got[DIM];
    const float *grad = g;
    const uint64_t key = 4;

    for (int t = 0; t < 300; t++) {
        fl_update u;

        for (int i = 0; i < DIM; i++)
            g[i] = noise(t / 20 * DIM + i) * 0.1f * (b->high - b->low) *
                   (i % 2 ? 1.0f : 1e-3f);
        fl_optimizer_update(o, t, 1, &u);
        fl_rows_change(r, o, &u, &key, &row, &grad, 1);
        fl_rows_read(r, got, row);
        for (int i = 0; i < DIM; i++) {
            CHECK(got[i] >= b->low && got[i] <= b->high);
            *least = fminf(*least, got[i]);
            *most = fmaxf(*most, got[i]);
        }
    }
}

TEST(no_rounding_leaves_the_bounds_and_they_are_the_next_that_can_be_kept)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    for (size_t i = 0; i < sizeof bounds_of / sizeof *bounds_of; i++)
        for (int k = 0; k < N_NARROW; k++) {
            const bounds *b = &bounds_of[i];
            fleet_optimizer *o = fleet_sgd(f, 1);
            fl_rows *r = table_in(narrow[k], 0, 0);
            float least = INFINITY, most = -INFINITY;

            CHECK_OK(fleet_optimizer_set_row_bounds(o, b->low, b->high));
            pull(r, o, make(r, 4), b, &least, &most);
            CHECK(b->least[k] == 0 || least == b->least[k]);
            CHECK(b->most[k] == 0 || most == b->most[k]);
            r->methods->destroy(r);
        }
    fleet_destroy(f);
}

TEST(bounds_between_which_nothing_can_be_kept_are_known)
{
    static const struct {
        float low, high;
        bool any[N_NARROW];
    } said[] = {{0.3f, 0.30001f, {false, false, false}},
                {0.3f, 0.3005f, {true, false, false}},
                {-0.301f, -0.3f, {true, true, true}},
                {70000, 80000, {false, true, true}},
                {-1e-30f, 1e-30f, {true, true, true}}};

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        for (int k = 0; k < N_NARROW; k++) {
            float low = said[i].low, high = said[i].high;
            float size = fmaxf(fabsf(low), fabsf(high));

            CHECK_INT(fl_narrow_bounds(narrow[k], size, &low, &high),
                      said[i].any[k]);
            CHECK(!said[i].any[k] ||
                  (low >= said[i].low && high <= said[i].high));
        }
}
