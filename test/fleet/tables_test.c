/* tables_test.c - rows and weights by hand, in one process: what is got is what
 * is there, what is set is what is trained on, and what cannot be is named. */
#define SUITE tables
#include "grown_kit.h"
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 };

static const uint64_t all[N] = {0, 1, 2, 3, 77, UINT64_MAX};

static bool same(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* --- reading -------------------------------------------------------------- */

TEST(rows_are_got_as_they_are_trained_and_unknown_ones_as_they_would_begin)
{
    float row[N][GROWN_DIM], states[N][2 * GROWN_DIM], want[GROWN_DIM];
    int found[N];
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "adam"});
    grown_train(&g, 3);
    CHECK_OK(
        fleet_table_get(g.f, "t", all, N, GROWN_DIM, row[0], states[0], found));
    for (int i = 0; i < N; i++) {
        CHECK_INT(found[i], i < 3);
        grown_row(&g, (int64_t)all[i], want);
        CHECK(same(row[i], want, GROWN_DIM));
        CHECK((states[i][0] != 0) == (i < 3));
    }
    CHECK_INT(grown_rows(&g, "t"), 3);
    CHECK_OK(fleet_table_get(g.f, "t", NULL, 0, GROWN_DIM, NULL, NULL, NULL));
    grown_close(&g);
}

TEST(a_key_may_be_asked_for_twice)
{
    static const uint64_t key[] = {1, 2, 1};
    float row[3][GROWN_DIM];
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd"});
    grown_train(&g, 3);
    CHECK_OK(fleet_table_get(g.f, "t", key, 3, GROWN_DIM, row[0], NULL, NULL));
    CHECK(same(row[0], row[2], GROWN_DIM));
    CHECK(!same(row[0], row[1], GROWN_DIM));
    grown_close(&g);
}

TEST(a_table_says_what_it_has)
{
    fleet_table_statistics s;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "adam", .larger = true});
    grown_train(&g, 5);
    CHECK_OK(fleet_table_stat(g.f, "more", &s));
    CHECK_INT(s.rows, 5);
    CHECK_INT(s.most_rows, 5);
    CHECK_INT(s.parts, 1);
    CHECK_INT(s.dim, GROWN_DIM);
    CHECK_INT(s.n_state, 2);
    CHECK(s.row_bytes >= 5 * 3 * GROWN_DIM * (int64_t)sizeof(float));
    CHECK(s.index_bytes > 0);
    grown_close(&g);
}

TEST(parameters_and_tables_are_listed)
{
    fleet_parameter_info list[4];
    grown g;
    int n;

    grown_open(&g, &(grown_how){.optimizer = "adam", .rows = 50});
    CHECK_OK(fleet_parameter_list(g.f, NULL, 0, &n));
    CHECK_INT(n, 2);
    CHECK_OK(fleet_parameter_list(g.f, list, 1, &n));
    CHECK_INT(n, 2);
    CHECK_OK(fleet_parameter_list(g.f, list, 4, &n));
    CHECK_TEXT(list[0].name, "w");
    CHECK_INT(list[0].is_table, 0);
    CHECK_INT(list[0].n_dim, 1);
    CHECK_INT(list[0].dims[0], GROWN_W);
    CHECK_INT(list[0].n_state, 2);
    CHECK_TEXT(list[1].name, "t");
    CHECK_INT(list[1].is_table, 1);
    CHECK_INT(list[1].dims[0], 50);
    CHECK_INT(list[1].dims[1], GROWN_DIM);
    CHECK_FAILS(fleet_parameter_list(g.f, NULL, 1, &n), FLEET_EINVAL,
                "nowhere to put 1");
    grown_close(&g);
}

/* --- writing -------------------------------------------------------------- */

/* Another process's rows, with their states, and weights: then both are alike
 * and go on alike, but for what counts updates. */
TEST(what_is_got_of_one_handle_and_set_in_another_trains_on_alike)
{
    float row[4][GROWN_DIM], states[4][GROWN_DIM], w[GROWN_W];
    grown a, b;

    grown_open(&a, &(grown_how){.optimizer = "adagrad", .options.seed = 3});
    grown_open(&b, &(grown_how){.optimizer = "adagrad", .options.seed = 3});
    for (int i = 0; i < 3; i++)
        grown_train(&a, 4);
    grown_train(&b, 4); /* w's state is not set: the same gradients */
    CHECK(grown_hash(&a) != grown_hash(&b));
    CHECK_OK(
        fleet_table_get(a.f, "t", all, 4, GROWN_DIM, row[0], states[0], NULL));
    CHECK_OK(fleet_parameter_get(a.f, "w", w, GROWN_W));
    CHECK_OK(fleet_table_set(b.f, "t", all, 4, GROWN_DIM, row[0], states[0]));
    CHECK_OK(fleet_parameter_set(b.f, "w", w, GROWN_W));
    CHECK(grown_hash(&a) == grown_hash(&b));
    grown_train(&a, 4);
    grown_train(&b, 4);
    CHECK_OK(
        fleet_table_get(b.f, "t", all, 4, GROWN_DIM, row[0], states[0], NULL));
    for (int i = 0; i < 4; i++) {
        float want[GROWN_DIM];

        grown_row(&a, i, want);
        CHECK(same(want, row[i], GROWN_DIM));
    }
    grown_close(&a);
    grown_close(&b);
}

TEST(a_row_that_is_set_without_states_keeps_them_and_a_new_one_begins_anew)
{
    static const uint64_t key[] = {1, 50};
    float row[2][GROWN_DIM] = {{1, 2}, {3, -0.0f}}, got[2][GROWN_DIM];
    float before[2][GROWN_DIM], states[2][GROWN_DIM];
    int found[2];
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "momentum"});
    grown_train(&g, 3);
    CHECK_OK(
        fleet_table_get(g.f, "t", key, 2, GROWN_DIM, got[0], before[0], found));
    CHECK_INT(found[1], 0);
    CHECK_OK(fleet_table_set(g.f, "t", key, 2, GROWN_DIM, row[0], NULL));
    CHECK_OK(
        fleet_table_get(g.f, "t", key, 2, GROWN_DIM, got[0], states[0], found));
    CHECK_INT(found[0] + found[1], 2);
    CHECK(same(got[0], row[0], 2 * GROWN_DIM));
    CHECK(same(before[0], states[0], GROWN_DIM));
    CHECK(states[0][0] != 0 && states[1][0] == 0);
    CHECK_INT(grown_rows(&g, "t"), 4);
    grown_close(&g);
}

/* More than travels at once. */
TEST(a_hundred_thousand_rows_are_set_and_got)
{
    enum { MANY = 200000 };
    uint64_t *key = malloc(MANY * sizeof *key);
    float(*row)[GROWN_DIM] = malloc(MANY * sizeof *row);
    float(*got)[GROWN_DIM] = malloc(MANY * sizeof *got);
    int *found = malloc(MANY * sizeof *found);
    grown g;

    for (int i = 0; i < MANY; i++) {
        key[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
        row[i][0] = (float)i;
        row[i][1] = -1 / (float)(i + 1);
    }
    grown_open(&g, &(grown_how){.optimizer = "adam"});
    CHECK_OK(fleet_table_set(g.f, "t", key, MANY, GROWN_DIM, row[0], NULL));
    CHECK_INT(grown_rows(&g, "t"), MANY);
    CHECK_OK(
        fleet_table_get(g.f, "t", key, MANY, GROWN_DIM, got[0], NULL, found));
    CHECK(same(row[0], got[0], (size_t)MANY * GROWN_DIM));
    for (int i = 0; i < MANY; i++)
        CHECK_INT(found[i], 1);
    grown_close(&g);
    free(key);
    free(row);
    free(got);
    free(found);
}

/* --- what cannot be ------------------------------------------------------- */

TEST(calls_that_cannot_be_are_named_and_change_nothing)
{
    static const uint64_t twice[] = {4, 7, 4};
    float x[3][GROWN_DIM] = {{0}}, w[GROWN_W + 1] = {0};
    uint64_t before;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd", .rows = 10});
    grown_train(&g, 3);
    before = grown_hash(&g);
    CHECK_FAILS(fleet_table_get(g.f, "u", all, 1, 2, x[0], NULL, NULL),
                FLEET_ENOENT, "there is no table \"u\"");
    CHECK_FAILS(fleet_table_get(g.f, "t", all, 1, 3, x[0], NULL, NULL),
                FLEET_ESHAPE, "\"t\" has rows of 2 numbers, not of 3");
    CHECK_FAILS(fleet_table_get(g.f, "t", all, -1, 2, x[0], NULL, NULL),
                FLEET_EINVAL, "-1 rows");
    CHECK_FAILS(fleet_table_get(g.f, "t", NULL, 1, 2, x[0], NULL, NULL),
                FLEET_EINVAL, "1 rows");
    CHECK_FAILS(fleet_table_get(g.f, NULL, all, 1, 2, x[0], NULL, NULL),
                FLEET_EINVAL, "NULL");
    CHECK_FAILS(fleet_table_get(g.f, "t", all, 1, 2, x[0], x[1], NULL),
                FLEET_EINVAL, "no states");
    CHECK_FAILS(fleet_table_get(g.f, "t", all, 5, 2, x[0], NULL, NULL),
                FLEET_EINVAL, "key 77: \"t\" has the rows 0 to 9");
    CHECK_FAILS(fleet_table_set(g.f, "t", twice, 3, 2, x[0], NULL),
                FLEET_EINVAL, "key 4 stands twice");
    x[1][1] = NAN;
    CHECK_FAILS(fleet_table_set(g.f, "t", all, 2, 2, x[0], NULL),
                FLEET_ENUMERIC, "key 1, column 1: nan");
    CHECK_FAILS(fleet_table_stat(g.f, "w", &(fleet_table_statistics){0}),
                FLEET_ENOENT, "no table \"w\"");
    CHECK_FAILS(fleet_parameter_get(g.f, "t", w, 1), FLEET_ENOENT,
                "there is no parameter \"t\"");
    CHECK_FAILS(fleet_parameter_get(g.f, "w", w, GROWN_W + 1), FLEET_ESHAPE,
                "\"w\" has 3 weights, not 4");
    CHECK_FAILS(fleet_parameter_set(g.f, "w", NULL, GROWN_W), FLEET_EINVAL,
                "NULL");
    w[2] = INFINITY;
    CHECK_FAILS(fleet_parameter_set(g.f, "w", w, GROWN_W), FLEET_ENUMERIC,
                "\"w\", weight 2: inf");
    CHECK(grown_hash(&g) == before);
    grown_close(&g);
}

typedef struct writer {
    scene *s;
    int calls;
} writer;

/* The table's rows are of 8 numbers, however many: the pass is asked first. */
static int write_within(void *user, int64_t batch, int64_t samples)
{
    static const float row[8] = {1};
    static const uint64_t key = 3;
    static const char words[] = "a pass over a dataset is under way: call it "
                                "between two passes";
    writer *w = user;
    fleet *f = w->s->f;

    (void)batch, (void)samples;
    CHECK_FAILS(fleet_table_set(f, "embedding", &key, 1, 8, row, NULL),
                FLEET_ESTATE, words);
    CHECK_FAILS(fleet_parameter_set(f, "none", row, 1), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_shrink(f, "embedding"), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_load_one_table(f, "embedding", "none", NULL),
                FLEET_ESTATE, words);
    CHECK_FAILS(fleet_import_table(f, "embedding", "none", NULL), FLEET_ESTATE,
                words);
    CHECK_CONTAINS(fleet_last_error(), "fleet_import_table");
    w->calls++;
    return 0;
}

static int shrink_in_test(void *user, int64_t batch, int64_t samples)
{
    writer *w = user;

    (void)batch, (void)samples;
    CHECK_OK(fleet_shrink(w->s->f, NULL));
    w->calls++;
    return 0;
}

/* Rows of the next batch may be there already. */
TEST(writes_are_refused_within_a_training_pass_and_change_nothing)
{
    const fleet_options o = {.seed = 5, .num_threads = 1};
    const char *file = scene_file("a.txt", 100, 1);
    uint64_t hash[2];

    for (int i = 0; i < 2; i++) {
        scene s;
        writer w = {&s, 0};
        fleet_train_options callback = {.on_batch = write_within, .user = &w};

        scene_open(&s, &o, "sgd");
        scene_data(&s, file, 32, 1, 0);
        s.e = fleet_executor_create(s.p, NULL);
        CHECK_OK(
            fleet_train_from_dataset(s.e, s.data, i ? &callback : NULL, NULL));
        CHECK_INT(w.calls, i ? 4 : 0);
        hash[i] = scene_hash(&s);
        CHECK_OK(fleet_shrink(s.f, NULL));
        scene_close(&s);
    }
    CHECK(hash[0] == hash[1]);
}

TEST(a_pass_for_test_takes_writes)
{
    scene s;
    writer w = {&s, 0};
    fleet_train_options callback = {.on_batch = shrink_in_test, .user = &w};

    scene_trained(&s, "sgd", 7);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_infer_from_dataset(s.tester, s.data, &callback, NULL));
    CHECK(w.calls > 0);
    scene_close(&s);
}

/* --- whole parameters ----------------------------------------------------- */

TEST(a_large_parameter_is_set_and_got_in_all_its_blocks)
{
    enum { BLOCKS_AND_A_BIT = 300001 };
    float *x = malloc(BLOCKS_AND_A_BIT * sizeof *x);
    float *got = malloc(BLOCKS_AND_A_BIT * sizeof *got);
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    CHECK(fleet_parameter(p, (int64_t[]){BLOCKS_AND_A_BIT}, 1,
                          &(fleet_param_attr){.name = "w"}));
    for (int i = 0; i < BLOCKS_AND_A_BIT; i++)
        x[i] = (float)i;
    CHECK_OK(fleet_parameter_set(f, "w", x, BLOCKS_AND_A_BIT));
    CHECK_OK(fleet_parameter_get(f, "w", got, BLOCKS_AND_A_BIT));
    CHECK(same(x, got, BLOCKS_AND_A_BIT));
    fleet_destroy(f);
    free(x);
    free(got);
}
