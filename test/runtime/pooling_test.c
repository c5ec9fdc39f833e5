/* pooling_test.c - ragged ids that are pooled, with weights and without:
 * against what a script has worked out (pooling_ref.py), against numeric
 * differences; equal numbers, samples without ids, ids out of bounds, feeds
 * that do not fit. lookup_test.c has the same to the bit. */
#define SUITE pooling
#include "golden.h"
#include "lookup_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

enum { DIM = 3, MOST_SAMPLES = 9, MOST_IDS = 40, MOST_TABLE = 8 };

/* A slot of a table, whose output is multiplied by "by" and averaged. */
typedef struct bag {
    fleet *f;
    fleet_program *p;
    fleet_var *ids, *out, *loss;
    fleet_executor *e, *tester;
    fl_rows *rows;
} bag;

static void bag_open(bag *s, fleet_combiner combiner, bool weighted)
{
    fleet_var *by;

    *s = (bag){.f = kit_handle(&(kit_options){.threads = 2})};
    s->p = fleet_program_create(s->f);
    s->ids = weighted ? fleet_data_weighted(s->p, "ids")
                      : fleet_data_ragged(s->p, "ids");
    s->out = fleet_sparse_embedding(
        s->p, s->ids, DIM,
        &(fleet_sparse_embedding_options){.combiner = combiner});
    by = kit_data(s->p, "by", DIM);
    s->loss = fleet_mean(s->p, fleet_mul(s->p, s->out, by));
    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(fleet_sgd(s->f, 1), s->loss));
    s->e = fleet_executor_create(s->p, NULL);
    s->tester =
        fleet_executor_create(s->p, &(fleet_executor_options){.for_test = 1});
    CHECK(s->e && s->tester);
    s->rows = fl_store_rows(s->f->store, "embedding");
}

static void bag_close(bag *s)
{
    fleet_executor_destroy(s->tester);
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

/* The row of a key, which is made if it is not there; or NULL. */
static float *row_of(const bag *s, uint64_t key, bool makes)
{
    float *row;

    CHECK_OK((makes ? s->rows->methods->make
                    : s->rows->methods->find)(s->rows, &key, 1, &row));
    return row;
}

/* What a bag is fed with. */
typedef struct sack {
    int64_t id[MOST_IDS], offsets[MOST_SAMPLES + 1];
    float weight[MOST_IDS], by[MOST_SAMPLES * DIM];
    int64_t rows, dims[2];
} sack;

static void add_id(sack *k, int64_t id, float weight)
{
    int64_t at = k->offsets[k->rows + 1]++;

    CHECK(at < MOST_IDS);
    k->id[at] = id;
    k->weight[at] = weight;
}

static void end_sample(sack *k)
{
    k->rows++;
    CHECK(k->rows <= MOST_SAMPLES);
    if (k->rows < MOST_SAMPLES)
        k->offsets[k->rows + 1] = k->offsets[k->rows];
}

static fleet_status run(const bag *s, sack *k, bool trains,
                        const fleet_var *var, float *out, size_t n)
{
    fleet_fetch fetch = {.var = var, .data = out, .size = n * sizeof *out};
    int n_feed = fleet_var_weights(s->ids) ? 3 : 2;
    fleet_feed feed[3] = {
        {"ids", FLEET_INT64, k->id, k->dims, 1, k->offsets},
        {"by", FLEET_FLOAT32, k->by, k->dims, 2, NULL},
        {"ids.weights", FLEET_FLOAT32, k->weight, k->dims, 1, k->offsets}};

    k->dims[0] = k->rows;
    k->dims[1] = DIM;
    return fleet_executor_run(trains ? s->e : s->tester, feed, n_feed, &fetch,
                              var != NULL);
}

/* --- what a script says -------------------------------------------------- */

typedef struct script {
    char *text, *rest;
} script;

static const char *word(script *s)
{
    const char *w = strtok_r(s->text, " \n", &s->rest);

    s->text = NULL;
    CHECK(w != NULL);
    return w;
}

static double number(script *s)
{
    return strtod(word(s), NULL);
}

static fleet_combiner combiner_of(const char *name)
{
    return strcmp(name, "sum") == 0    ? FLEET_SUM
           : strcmp(name, "mean") == 0 ? FLEET_MEAN
           : strcmp(name, "sqrt") == 0 ? FLEET_SQRT
                                       : FLEET_MAX;
}

static void read_sample(script *t, sack *k, double *out)
{
    int n;

    CHECK_TEXT(word(t), "sample");
    n = (int)number(t);
    for (int i = 0; i < n; i++) {
        int64_t id = (int64_t)number(t);

        add_id(k, id, (float)number(t));
    }
    for (int i = 0; i < DIM; i++)
        k->by[k->rows * DIM + i] = (float)number(t);
    for (int i = 0; i < DIM; i++)
        out[i] = number(t);
    end_sample(k);
}

static void check_gradients(script *t, const bag *s,
                            float first[MOST_TABLE][DIM], int n)
{
    for (int i = 0; i < n; i++) {
        const float *row = row_of(s, (uint64_t)i, false);
        bool used;

        CHECK_TEXT(word(t), "gradient");
        used = number(t) != 0;
        for (int c = 0; c < DIM; c++) {
            double want = number(t);

            CHECK_NEAR(first[i][c] - row[c], want, 1e-6);
            CHECK(used || want == 0);
        }
    }
}

/* The rest of a case, behind its combiner. */
static void check_script(script *t, fleet_combiner combiner)
{
    bool weighted = number(t) != 0;
    int n = (int)number(t), batch = (int)number(t);
    float first[MOST_TABLE][DIM], got[MOST_SAMPLES * DIM];
    double want[MOST_SAMPLES * DIM];
    sack k = {0};
    bag s;

    bag_open(&s, combiner, weighted);
    for (int i = 0; i < n; i++) {
        CHECK_TEXT(word(t), "row");
        for (int c = 0; c < DIM; c++)
            first[i][c] = (float)number(t);
        memcpy(row_of(&s, (uint64_t)i, true), first[i], sizeof *first);
    }
    for (int i = 0; i < batch; i++)
        read_sample(t, &k, want + i * DIM);
    CHECK_OK(run(&s, &k, true, s.out, got, MOST_SAMPLES * DIM));
    for (int i = 0; i < batch * DIM; i++)
        CHECK_NEAR(got[i], want[i], 1e-6);
    check_gradients(t, &s, first, n);
    bag_close(&s);
}

TEST(outputs_and_gradients_are_those_of_an_independent_script)
{
    char *text = golden_read("pooling.txt");
    script t = {.text = text};
    const char *name;
    int n = 0;

    while (strcmp(word(&t), "case") == 0) {
        name = word(&t);
        check_script(&t, combiner_of(name));
        n++;
    }
    CHECK_INT(n, 24);
    fl_free(text);
}

/* --- numeric differences ------------------------------------------------- */

/* Rows whose numbers are farther apart than the differences are large, and ids
 * that stand in several samples. */
static void fill(const bag *s, sack *k, bool weighted)
{
    for (uint64_t i = 0; i < MOST_TABLE; i++)
        for (int c = 0; c < DIM; c++)
            row_of(s, i, true)[c] =
                (float)((i * 5 + (uint64_t)c * 3) % MOST_TABLE) * 0.25f - 0.9f;
    for (int r = 0; r < MOST_SAMPLES; r++) {
        for (int j = 0; j < r % 4; j++)
            add_id(k, (r * 3 + j * 5) % MOST_TABLE,
                   weighted ? 0.5f + 0.13f * (float)((r + j) % 5) : 1);
        for (int c = 0; c < DIM; c++)
            k->by[r * DIM + c] = kit_noise(r * DIM + c, 3);
        end_sample(k);
    }
}

static double loss_of(const bag *s, sack *k)
{
    float out[MOST_SAMPLES * DIM];
    double sum = 0;

    CHECK_OK(run(s, k, false, s->out, out, MOST_SAMPLES * DIM));
    for (int i = 0; i < MOST_SAMPLES * DIM; i++)
        sum += (double)out[i] * (double)k->by[i];
    return sum / (MOST_SAMPLES * DIM);
}

static void check_numeric(fleet_combiner combiner, bool weighted)
{
    enum { STEPS = 64 }; /* of a unit: exact in float32 */
    double want[MOST_TABLE][DIM];
    float first[MOST_TABLE][DIM];
    sack k = {0};
    bag s;

    bag_open(&s, combiner, weighted);
    fill(&s, &k, weighted);
    for (uint64_t i = 0; i < MOST_TABLE; i++)
        for (int c = 0; c < DIM; c++) {
            float *x = &row_of(&s, i, false)[c], h = 1.0f / STEPS, was = *x;
            double up, down;

            *x = was + h;
            up = loss_of(&s, &k);
            *x = was - h;
            down = loss_of(&s, &k);
            *x = first[i][c] = was;
            want[i][c] = (up - down) * STEPS / 2;
        }
    CHECK_OK(run(&s, &k, true, NULL, NULL, 0));
    for (uint64_t i = 0; i < MOST_TABLE; i++)
        for (int c = 0; c < DIM; c++)
            CHECK_NEAR(first[i][c] - row_of(&s, i, false)[c], want[i][c], 2e-6);
    bag_close(&s);
}

TEST(gradients_are_numeric_differences)
{
    for (int c = FLEET_SUM; c <= FLEET_MAX; c++) {
        check_numeric((fleet_combiner)c, false);
        check_numeric((fleet_combiner)c, true);
    }
}

/* --- equal numbers, and none --------------------------------------------- */

TEST(of_equal_numbers_the_first_has_the_gradient_alone)
{
    static const float rows[3][DIM] = {{1, 2, -1}, {1, 2, 3}, {0, 2, 3}};
    float out[DIM];
    sack k = {.by = {3, 3, 3}};
    bag s;

    bag_open(&s, FLEET_MAX, false);
    for (uint64_t i = 0; i < 3; i++)
        memcpy(row_of(&s, i, true), rows[i], sizeof rows[i]);
    for (int i = 2; i >= 0; i--)
        add_id(&k, i, 1);
    end_sample(&k);
    CHECK_OK(run(&s, &k, true, s.out, out, DIM));
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
    /* 2, 1, 0 in this order: 1 is first in column 0, 2 in columns 1 and 2 */
    CHECK(row_of(&s, 0, false)[0] == 1 && row_of(&s, 1, false)[0] == 0);
    CHECK(row_of(&s, 2, false)[1] == 1 && row_of(&s, 1, false)[1] == 2);
    CHECK(row_of(&s, 2, false)[2] == 2 && row_of(&s, 1, false)[2] == 3);
    CHECK(row_of(&s, 0, false)[1] == 2 && row_of(&s, 0, false)[2] == -1);
    bag_close(&s);
}

/* An id that stands twice is first where it stands first, and one that wins
 * nothing has a row from now on, with a gradient of zeros. */
TEST(an_id_that_wins_no_column_has_a_row_that_stays_as_it_began)
{
    float out[DIM];
    const float *row;
    sack k = {.by = {1, 1, 1}};
    float first[DIM];
    bag s;

    bag_open(&s, FLEET_MAX, false);
    for (int c = 0; c < DIM; c++)
        row_of(&s, 1, true)[c] = 100;
    add_id(&k, 1, 1);
    add_id(&k, 5, 1);
    add_id(&k, 1, 1);
    end_sample(&k);
    CHECK(row_of(&s, 5, false) == NULL);
    CHECK_OK(run(&s, &k, true, s.out, out, DIM));
    row = row_of(&s, 5, false);
    CHECK(row != NULL);
    fl_filler_row(&s.rows->filler, 5, first, DIM);
    CHECK(memcmp(row, first, sizeof first) == 0);
    for (int c = 0; c < DIM; c++)
        CHECK_NEAR(row_of(&s, 1, false)[c], 100 - 1.0 / 3, 1e-5);
    bag_close(&s);
}

TEST(a_sample_without_ids_is_zeros_and_trains_nothing)
{
    for (int c = FLEET_SUM; c <= FLEET_MAX; c++)
        for (int weighted = 0; weighted < 2; weighted++) {
            float out[3 * DIM];
            sack k = {.by = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
            bag s;

            bag_open(&s, (fleet_combiner)c, weighted != 0);
            end_sample(&k);
            add_id(&k, 4, 2);
            end_sample(&k);
            end_sample(&k);
            CHECK_OK(run(&s, &k, true, s.out, out, 3 * DIM));
            for (int i = 0; i < DIM; i++) {
                CHECK(out[i] == 0 && out[2 * DIM + i] == 0);
                CHECK(out[DIM + i] != 0);
            }
            CHECK_INT(s.rows->methods->count(s.rows), 1);
            bag_close(&s);
        }
}

/* --- what is refused ----------------------------------------------------- */

TEST(weights_are_as_many_as_their_ids)
{
    int64_t dims[] = {2, DIM}, id[] = {1, 2, 3}, some[] = {0, 1, 3},
            other[] = {0, 2, 3};
    float x[6] = {0};
    fleet_feed feed[] = {{"ids", FLEET_INT64, id, dims, 1, some},
                         {"by", FLEET_FLOAT32, x, dims, 2, NULL},
                         {"ids.weights", FLEET_FLOAT32, x, dims, 1, other}};
    bag s;

    bag_open(&s, FLEET_SUM, true);
    CHECK_FAILS(fleet_executor_run(s.e, feed, 3, NULL, 0), FLEET_EINVAL,
                "feed \"ids.weights\": 2 weights in row 0, but \"ids\" has 1");
    CHECK_FAILS(fleet_executor_run(s.e, feed, 2, NULL, 0), FLEET_ENOENT,
                "feed \"ids.weights\" is missing");
    memcpy(other, some, sizeof some); /* equal, and elsewhere */
    CHECK_OK(fleet_executor_run(s.e, feed, 3, NULL, 0));
    bag_close(&s);
}

/* A table with ids in [0, 10), of one id, or of any number. */
static void check_bound(int64_t width, int64_t id, const char *words)
{
    const lookup_case c = {.slot = {{"good", 0, 1, FLEET_SUM, 10},
                                    {"ids", 0, width, FLEET_SUM, 10}},
                           .n = 2,
                           .dim = {4, 4},
                           .rows = 10,
                           .check_ids = 1,
                           .concat = true,
                           .batch = 40,
                           .threads = 2};
    lookup_scene s;
    kit_batch *b;

    lookup_open(&s, &c);
    b = lookup_batch(&s, 1);
    CHECK_OK(kit_run(s.e, b));
    CHECK(b->feed[1].offsets == NULL || b->feed[1].offsets[38] > 0);
    ((int64_t *)(uintptr_t)b->feed[1]
         .data)[b->feed[1].offsets ? b->feed[1].offsets[38] - 1 : 37] = id;
    CHECK_FAILS(kit_run(s.e, b), FLEET_EINVAL, words);
    kit_batch_free(b);
    lookup_close(&s);
}

TEST(a_table_that_checks_ids_names_slot_row_and_id)
{
    check_bound(1, 10,
                "table \"first\": id 10 of \"ids\" in row 37 of the batch is "
                "not in [0, 10)");
    check_bound(1, -1, "id -1 of \"ids\" in row 37 of the batch");
    check_bound(-1, INT64_MAX, "id 9223372036854775807 of \"ids\" in row 3");
}
