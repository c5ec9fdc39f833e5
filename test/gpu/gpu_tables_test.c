/* gpu_tables_test.c - tables whose rows are in a GPU's memory: the bits of the
 * CPU's for every kind of slot, optimizer and first values; who reads and who
 * makes rows; both copies of a table in turn. */
#define SUITE gpu_tables
#include "gpu_kit.h"
#include "rule_kit.h"
#include "table_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/optim/rule.h"
#include "runtime/exec/executor.h"

/* One slot of three ids, and batches of two samples. */
static const lookup_case three = {.slot = {{"ids", 0, 3, FLEET_SUM, 5}},
                                  .n = 1,
                                  .dim = {4, 4},
                                  .concat = true,
                                  .batch = 2,
                                  .threads = 1,
                                  .device = "gpu:0"};

/* --- the bits of the CPU -------------------------------------------------- */

TEST(lookups_agree_with_a_plain_list_to_the_bit)
{
    static const int64_t batches[] = {1, 37, 150}, dims[] = {1, 8, 17};

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        lookup_case c = rows_kit_mixed;

        c.batch = batches[i];
        c.dim[0] = dims[i];
        c.dim[1] = dims[2 - i];
        lookup_check(&c);
        c.concat = false;
        lookup_check(&c);
    }
    gpu_kit_close();
}

static lookup_case pooled(void)
{
    lookup_case c = lookup_kit_pooled;

    c.dim[1] = 4;
    c.device = "gpu:0";
    return c;
}

TEST(slots_are_pooled_as_a_plain_list_does_it_to_the_bit)
{
    static const int64_t batches[] = {1, 37, 150}, dims[] = {1, 8, 17};

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        lookup_case c = pooled();

        c.batch = batches[i];
        c.dim[0] = dims[i];
        c.dim[1] = dims[2 - i];
        lookup_check(&c);
        c.concat = false;
        lookup_check(&c);
        c.weighted = ~c.weighted & 0x3e;
        lookup_check(&c);
    }
    gpu_kit_close();
}

TEST(ids_are_taken_modulo_the_rows_of_a_table)
{
    lookup_case c = rows_kit_mixed;

    gpu_kit_open();
    for (c.rows = 1; c.rows <= 17; c.rows += 8) {
        for (int i = 0; i < 6; i++)
            c.slot[i].below = INT64_MAX;
        lookup_check(&c);
    }
    gpu_kit_close();
}

TEST(a_table_that_checks_ids_says_which_sample_and_updates_nothing)
{
    lookup_case c = rows_kit_mixed;
    lookup_scene s;
    kit_batch *b;
    uint64_t before;

    c.rows = 60;
    c.check_ids = 1;
    gpu_kit_open();
    lookup_check(&c);
    lookup_open(&s, &c);
    rows_kit_train(&s, s.e, 0);
    CHECK_OK(fleet_executor_flush(s.e));
    before = kit_hash(s.f);
    b = lookup_batch(&s, 1);
    ((int64_t *)(uintptr_t)b->feed[1].data)[3 * 7] = 60;
    CHECK_OK(kit_run(s.e, b));
    CHECK_FAILS(fleet_executor_flush(s.e), FLEET_EINVAL,
                "of sample 7 is out of range (lookup.keys");
    CHECK(kit_hash(s.f) == before);
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}

TEST(a_table_has_its_own_learning_rate_and_decay)
{
    lookup_case c = rows_kit_mixed;

    c.learning_rate = 0.25f;
    c.l2_decay = 0.125f;
    gpu_kit_open();
    lookup_check(&c);
    gpu_kit_close();
}

static void check_hash(const lookup_case *there)
{
    lookup_case here = *there;

    here.device = NULL;
    CHECK(lookup_hash(there) == lookup_hash(&here));
}

TEST(rows_are_those_of_the_cpu_with_each_optimizer_merged_and_clipped)
{
    const lookup_case pools = pooled();

    gpu_kit_open();
    for (int i = 0; kit_rule_name(i); i++) {
        lookup_case c = rows_kit_mixed;

        c.optimizer = kit_rule_name(i);
        check_hash(&c);
    }
    for (int i = 0; kit_rule_of_shape(i); i++) {
        lookup_case c = rows_kit_mixed;

        c.optimizer = kit_rule_of_shape(i);
        c.merge = 2;
        check_hash(&c);
        c.clip = 0.001f;
        check_hash(&c);
        c.merge = 0;
        check_hash(&c);
        c.clip = 0;
        c.norm_clip = 0.001f;
        check_hash(&c);
        c.merge = 3;
        check_hash(&c);
    }
    check_hash(&pools);
    gpu_kit_close();
}

/* Rows begin alike: the first id of a sample has won all columns. */
TEST(of_equal_numbers_the_first_wins_as_on_the_cpu)
{
    lookup_case c = pooled();

    c.first = (fleet_initializer){FLEET_INIT_CONSTANT, 0.5f, 0};
    c.weighted = 0;
    gpu_kit_open();
    check_hash(&c);
    gpu_kit_close();
}

TEST(first_values_of_every_kind_are_those_of_the_cpu)
{
    static const fleet_initializer all[] = {
        {FLEET_INIT_CONSTANT, 0.5f, 0},     {FLEET_INIT_UNIFORM, -2, 1},
        {FLEET_INIT_NORMAL, 1, 0.1f},       {FLEET_INIT_TRUNCATED_NORMAL, 0, 1},
        {.kind = FLEET_INIT_XAVIER_NORMAL},
    };

    gpu_kit_open();
    for (int i = 0; i < 5; i++) {
        lookup_case c = rows_kit_mixed;

        c.first = all[i];
        check_hash(&c);
        c.device = "gpu:0";
        lookup_hash(&c);
    }
    gpu_kit_close();
}

/* --- where rows are ------------------------------------------------------- */

/* The same program, trained elsewhere; NULL place: where it is. */
static fleet_executor *other_executor(const lookup_scene *s, fleet_place place,
                                      int for_test)
{
    fleet_executor *e = fleet_executor_create(
        s->p, &(fleet_executor_options){.place = place, .for_test = for_test});

    CHECK(e != NULL);
    return e;
}

TEST(rows_stay_on_the_gpu_until_somebody_reads_them)
{
    lookup_scene s;

    gpu_kit_open();
    lookup_open(&s, &rows_kit_mixed);
    for (int i = 0; i < 3; i++)
        rows_kit_train(&s, s.e, i);
    CHECK_INT(rows_kit_here(&s), 0);
    CHECK(rows_kit_there(&s)->mirror.host_is_old);
    CHECK(rows_kit_count(&s) > 50);
    CHECK(!rows_kit_there(&s)->mirror.host_is_old);
    lookup_close(&s);
    gpu_kit_close();
}

/* Histograms come to the CPU, and go back; rows need not. */
TEST(metrics_are_read_and_reset_and_rows_stay_where_they_are)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    kit_batch *b = kit_batch_new(20);
    const fl_mirror *rows;
    fleet_executor *e;
    fleet_var *x, *auc;
    double got;

    gpu_kit_open();
    CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
    x = fleet_sparse_embedding(
        p, fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2), 1, NULL);
    auc =
        fleet_auc(p, fleet_sigmoid(p, x),
                  fleet_data(p, "y", FLEET_INT64, (int64_t[]){-1, 1}, 2), 100);
    CHECK_OK(fleet_minimize(fleet_sgd(f, 1), fleet_mean(p, x)));
    kit_ids(b, "ids", 1, 9, 0);
    kit_ids(b, "y", 1, 2, 1);
    e = fleet_executor_create(p, NULL);
    CHECK_OK(kit_run(e, b));
    CHECK_OK(fleet_executor_flush(e));
    CHECK_OK(fleet_metrics_auc(f, auc, &got));
    CHECK(got > 0 && got != 0.5);
    CHECK_OK(fleet_metrics_reset(f));
    CHECK_OK(fleet_metrics_auc(f, auc, &got));
    CHECK_NEAR(got, 0.5, 1e-9);
    rows = rows_kit_mirror(f->store, fl_store_rows(f->store, "embedding"));
    CHECK(rows->host_is_old && !rows->gpu_is_old);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    gpu_kit_close();
}

/* A lookup that is guarded keeps its table on the CPU, whoever else uses it. */
TEST(a_guarded_lookup_keeps_its_table_on_the_cpu)
{
    static const char *const guards[][2] = {
        {NULL, NULL}, {"cpu", NULL}, {NULL, "cpu"}, {"cpu", "cpu"}};

    gpu_kit_open();
    for (int i = 0; i < 4; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *out[2];
        char *text;

        CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
        for (int j = 0; j < 2; j++) {
            CHECK_OK(fleet_device_guard(p, guards[i][j]));
            out[j] = fleet_sparse_embedding(p,
                                            fleet_data(p, j ? "right" : "left",
                                                       FLEET_INT64,
                                                       (int64_t[]){-1, 1}, 2),
                                            4, NULL);
        }
        CHECK_OK(fleet_device_guard(p, NULL));
        CHECK_OK(fleet_minimize(fleet_sgd(f, 1),
                                fleet_mean(p, fleet_add(p, out[0], out[1]))));
        text = fleet_program_dump(p, FLEET_DUMP_PLAN, 8);
        CHECK((strstr(text, "lookup.update") != NULL) == (i == 0));
        CHECK((strstr(text, "rows.update") != NULL) == (i > 0));
        fleet_free(text);
        fleet_destroy(f);
    }
    gpu_kit_close();
}

TEST(unknown_rows_read_as_their_first_values_and_are_not_made)
{
    fleet_executor *tester;
    float got[24], want[4];
    lookup_scene s;
    kit_batch *b;

    gpu_kit_open();
    lookup_open(&s, &three);
    tester = other_executor(&s, 0, 1);
    b = lookup_batch(&s, 0);
    ((int64_t *)(void *)(uintptr_t)b->feed[0].data)[5] = -6;
    for (int i = 0; i < 3; i++)
        CHECK_OK(kit_fetch(tester, b, s.all, got, 24));
    fl_filler_row(&s.table[0].filler, (uint64_t)-6, want, 4);
    CHECK(memcmp(got + 20, want, sizeof want) == 0);
    CHECK_INT(rows_kit_count(&s), 0);
    CHECK_OK(kit_run(s.e, b));
    CHECK(rows_kit_count(&s) > 1);
    kit_batch_free(b);
    fleet_executor_destroy(tester);
    lookup_close(&s);
    gpu_kit_close();
}

/* Two slots of one table, one with a gradient; ids 1 and 2. */
TEST(a_slot_without_a_gradient_makes_no_row)
{
    gpu_kit_open();
    for (int used = 0; used < 2; used++) {
        fleet *f = kit_handle(&(kit_options){.device = "gpu:0"});
        fleet_program *p = fleet_program_create(f);
        kit_batch *b = kit_batch_new(1);
        fleet_executor *e;
        fleet_var *out[2];
        uint64_t key[] = {1, 2};
        float row[4], *at[2];
        fl_rows *rows;

        CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
        for (int i = 0; i < 2; i++)
            out[i] = fleet_sparse_embedding(
                p, fleet_data_ragged(p, i ? "right" : "left"), 4, NULL);
        CHECK_OK(fleet_minimize(fleet_sgd(f, 1), fleet_mean(p, out[used])));
        e = fleet_executor_create(p, NULL);
        *kit_ids(b, "left", 1, 5, 0) = 1;
        *kit_ids(b, "right", 1, 5, 0) = 2;
        for (int i = 0; i < 2; i++) {
            int64_t *offsets = calloc(2, sizeof *offsets);

            offsets[1] = 1;
            b->feed[i].offsets = offsets;
            b->feed[i].n_dim = 1;
        }
        CHECK_OK(kit_fetch(e, b, out[!used], row, 4));
        CHECK_OK(fl_store_to_host(f->store));
        rows = fl_store_rows(f->store, "embedding");
        for (int i = 0; i < 2; i++)
            CHECK_OK(rows->methods->find(rows, &key[i], 1, &at[i]));
        CHECK(at[used] != NULL && at[!used] == NULL);
        kit_batch_free(b);
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
    gpu_kit_close();
}

/* Three slots of a table by their maximum, of which the first has no gradient:
 * what the other two have won is found again. */
static uint64_t train_two_of_three(const char *device)
{
    static const char *const names[] = {"a", "b", "c"};
    const kit_options o = {.device = device, .threads = 2, .optimizer = "sgd"};
    fleet *f = kit_handle(&o);
    fleet_program *p = fleet_program_create(f);
    fleet_var *out[3];
    fleet_executor *e;
    uint64_t hash;

    kit_place(p, &o);
    for (int i = 0; i < 3; i++)
        out[i] = fleet_sparse_embedding(
            p, i ? fleet_data_weighted(p, names[i]) : fleet_data_ragged(p, "a"),
            5, &(fleet_sparse_embedding_options){.combiner = FLEET_MAX});
    CHECK_OK(fleet_minimize(
        fleet_sgd(f, 1),
        fleet_mean(p, fleet_square(p, fleet_add(p, out[1], out[2])))));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    for (int i = 0; i < 3; i++) {
        kit_batch *b = kit_batch_new(40);
        float got[200];

        kit_ragged(b, "a", 5, 30, i);
        kit_ragged(b, "b", 5, 30, i + 10);
        kit_weights(b, "b.weights", 1, i + 20);
        kit_ragged(b, "c", 5, 30, i + 30);
        kit_weights(b, "c.weights", 3, i + 40);
        CHECK_OK(kit_fetch(e, b, out[0], got, 200));
        kit_batch_free(b);
    }
    hash = kit_hash(f);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return hash;
}

TEST(maxima_of_which_some_are_not_trained_have_the_bits_of_the_cpu)
{
    gpu_kit_open();
    CHECK(train_two_of_three("gpu:0") == train_two_of_three(NULL));
    gpu_kit_close();
}

/* --- both copies, in turn ------------------------------------------------- */

/* Executors of one program, on the GPU (twice) and on the CPU: step counts and
 * states go along. */
TEST(training_goes_on_with_the_rows_that_the_other_side_has_left)
{
    lookup_case c = rows_kit_mixed;
    fleet_executor *e[3];
    lookup_scene there, here;

    c.optimizer = "adam";
    gpu_kit_open();
    lookup_open(&there, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    e[0] = there.e;
    e[1] = other_executor(&there, FLEET_CPU, 0);
    e[2] = other_executor(&there, 0, 0);
    for (int i = 0; i < 9; i++) {
        rows_kit_train(&there, e[i % 3], i);
        rows_kit_train(&here, here.e, i);
    }
    CHECK(kit_hash(there.f) == kit_hash(here.f));
    fleet_executor_destroy(e[1]);
    fleet_executor_destroy(e[2]);
    lookup_close(&there);
    lookup_close(&here);
    gpu_kit_close();
}

/* Saved here, loaded there, trained, saved there, loaded here: each time what
 * one that stays here has. */
TEST(saves_go_round_with_the_same_bits)
{
    const char *path = test_path("save");
    lookup_case c = rows_kit_mixed;
    lookup_scene there, here, one;

    c.optimizer = "adagrad";
    gpu_kit_open();
    lookup_open(&there, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    lookup_open(&one, &c);
    for (int i = 0; i < 6; i++) {
        const lookup_scene *from = i % 2 ? &there : &here;
        const lookup_scene *to = i % 2 ? &here : &there;

        rows_kit_train(from, from->e, i);
        rows_kit_train(&one, one.e, i);
        CHECK_OK(fleet_save_persistables(from->f, path));
        CHECK_OK(fleet_load_model(to->f, path));
        CHECK(kit_hash(to->f) == kit_hash(one.f));
    }
    lookup_close(&there);
    lookup_close(&here);
    lookup_close(&one);
    gpu_kit_close();
}

/* A save of another seed: unknown rows are its, from then on. */
TEST(a_load_brings_the_first_values_of_unknown_rows)
{
    const char *path = test_path("save");
    kit_model a, b;
    kit_batch *batch;
    float x, y;

    gpu_kit_open();
    a = gpu_kit_model(KIT_CTR, (kit_options){.seed = 1});
    b = gpu_kit_model(KIT_CTR, (kit_options){.seed = 2});
    gpu_kit_train(&a, 1);
    gpu_kit_train(&b, 2);
    CHECK_OK(fleet_save_persistables(a.f, path));
    CHECK_OK(fleet_load_model(b.f, path));
    batch = kit_batch_for(&a, 40, 9);
    x = kit_step(a.e, batch, a.m.loss);
    y = kit_step(b.e, batch, b.m.loss);
    CHECK(x == y);
    kit_batch_free(batch);
    kit_close(&a);
    kit_close(&b);
    gpu_kit_close();
}

/* A program that only looks up has made the table before there were states. */
TEST(a_table_that_was_read_there_can_be_trained_there)
{
    static const int64_t id[] = {3, 3, 4};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p[2];
    fleet_executor *e[2];
    kit_batch *b = kit_batch_new(3);
    fl_rows *rows;
    float *row;
    uint64_t key = 3;

    gpu_kit_open();
    memcpy(kit_ids(b, "ids", 1, 5, 0), id, sizeof id);
    for (int i = 0; i < 2; i++) {
        fleet_var *out;

        p[i] = fleet_program_create(f);
        CHECK_OK(fleet_program_place(p[i], FLEET_GPU(0), NULL));
        out = fleet_sparse_embedding(
            p[i], fleet_data(p[i], "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2),
            3, NULL);
        out = fleet_mean(p[i], out);
        if (i == 1)
            CHECK_OK(fleet_minimize(fleet_adam(f, 0.1f, NULL), out));
        e[i] = fleet_executor_create(p[i], NULL);
        CHECK(isfinite(kit_step(e[i], b, out)));
    }
    CHECK(isfinite(kit_step(e[0], b, p[0]->node[1]->out[0])));
    rows = fl_store_rows(f->store, "embedding");
    CHECK_OK(fl_store_to_host(f->store));
    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    CHECK_INT(fl_row_of(row)->step, 1);
    CHECK(row[3] > 0 && row[6] > 0); /* Adam's */
    kit_batch_free(b);
    fleet_executor_destroy(e[0]);
    fleet_executor_destroy(e[1]);
    fleet_destroy(f);
    gpu_kit_close();
}
