/* test_gpu_tables.c - tables whose rows are in a GPU's memory: the bits of the
 * CPU's for every kind of slot, optimizer and first values; who reads and who
 * makes rows; room for rows and ids; both copies of a table in turn. */
#define SUITE gpu_tables
#include "gpu_kit.h"
#include "lookup_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/handle.h"
#include "runtime/executor.h"
#include "runtime/rows_there.h"

/* Two tables, slots of one, three and any number of ids, sum and mean. */
static const lookup_case mixed = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"three", 0, 3, FLEET_SUM, 60},
             {"other", 1, 1, FLEET_SUM, 30},
             {"some", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50},
             {"more", 1, -1, FLEET_MEAN, 20}},
    .n = 6,
    .dim = {9, 4},
    .concat = true,
    .batch = 37,
    .threads = 2,
    .device = "gpu:0",
};

/* One slot of three ids, and batches of two samples. */
static const lookup_case three = {.slot = {{"ids", 0, 3, FLEET_SUM, 5}},
                                  .n = 1,
                                  .dim = {4, 4},
                                  .concat = true,
                                  .batch = 2,
                                  .threads = 1,
                                  .device = "gpu:0"};

/* --- the bits of the CPU ---------------------------------------------------
 */

TEST(lookups_agree_with_a_plain_list_to_the_bit)
{
    static const int64_t batches[] = {1, 37, 150}, dims[] = {1, 8, 17};

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        lookup_case c = mixed;

        c.batch = batches[i];
        c.dim[0] = dims[i];
        c.dim[1] = dims[2 - i];
        lookup_check(&c);
        c.concat = false;
        lookup_check(&c);
    }
    gpu_kit_close();
}

TEST(ids_are_taken_modulo_the_rows_of_a_table)
{
    lookup_case c = mixed;

    gpu_kit_open();
    for (c.rows = 1; c.rows <= 17; c.rows += 8) {
        for (int i = 0; i < 6; i++)
            c.slot[i].below = INT64_MAX;
        lookup_check(&c);
    }
    gpu_kit_close();
}

TEST(a_table_has_its_own_learning_rate_and_decay)
{
    lookup_case c = mixed;

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
    static const char *const all[] = {"sgd", "momentum", "adagrad", "adam"};

    gpu_kit_open();
    for (int i = 0; i < 4; i++) {
        lookup_case c = mixed;

        c.optimizer = all[i];
        check_hash(&c);
        c.merge = 2;
        check_hash(&c);
        c.clip = 0.001f;
        check_hash(&c);
        c.merge = 0;
        check_hash(&c);
    }
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
        lookup_case c = mixed;

        c.first = all[i];
        check_hash(&c);
        c.device = "gpu:0";
        lookup_hash(&c);
    }
    gpu_kit_close();
}

/* --- where rows are --------------------------------------------------------
 */

static const fl_mirror *mirror_of(const fl_store *s, const void *here)
{
    const fl_mirror *m = s->mirrors;

    while (m && m->here != here)
        m = m->next;
    CHECK(m != NULL);
    return m;
}

static const fl_rows_there *there_of(const lookup_scene *s)
{
    const fl_mirror *m = mirror_of(s->f->store, lookup_rows(s, 0));

    return (const fl_rows_there *)(const void *)m;
}

static int64_t rows_here(const lookup_scene *s)
{
    fl_rows *rows = lookup_rows(s, 0);

    return rows->methods->count(rows);
}

static int64_t rows_now(const lookup_scene *s)
{
    CHECK_OK(fl_store_here(s->f->store));
    return rows_here(s);
}

/* The same program, trained elsewhere; NULL place: where it is. */
static fleet_executor *other_executor(const lookup_scene *s, fleet_place place,
                                      int for_test)
{
    fleet_executor *e = fleet_executor_create(
        s->p, &(fleet_executor_options){.place = place, .for_test = for_test});

    CHECK(e != NULL);
    return e;
}

static void train(const lookup_scene *s, fleet_executor *e, int step)
{
    kit_batch *b = lookup_batch(s, step);

    CHECK_OK(kit_run(e, b));
    kit_batch_free(b);
}

TEST(rows_stay_on_the_gpu_until_somebody_reads_them)
{
    lookup_scene s;

    gpu_kit_open();
    lookup_open(&s, &mixed);
    for (int i = 0; i < 3; i++)
        train(&s, s.e, i);
    CHECK_INT(rows_here(&s), 0);
    CHECK(there_of(&s)->mirror.here_is_old);
    CHECK(rows_now(&s) > 50);
    CHECK(!there_of(&s)->mirror.here_is_old);
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
    rows = mirror_of(f->store, fl_store_rows(f->store, "embedding"));
    CHECK(rows->here_is_old && !rows->there_is_old);
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
    CHECK_INT(rows_now(&s), 0);
    CHECK_OK(kit_run(s.e, b));
    CHECK(rows_now(&s) > 1);
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
        CHECK_OK(fl_store_here(f->store));
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

/* --- both copies, in turn ---------------------------------------------------
 */

/* Executors of one program, on the GPU (twice) and on the CPU: step counts and
 * states go along. */
TEST(training_goes_on_with_the_rows_that_the_other_side_has_left)
{
    lookup_case c = mixed;
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
        train(&there, e[i % 3], i);
        train(&here, here.e, i);
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
    lookup_case c = mixed;
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

        train(from, from->e, i);
        train(&one, one.e, i);
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
    CHECK_OK(fl_store_here(f->store));
    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    CHECK_INT(fl_row_of(row)->step, 1);
    CHECK(row[3] > 0 && row[6] > 0); /* Adam's */
    kit_batch_free(b);
    fleet_executor_destroy(e[0]);
    fleet_executor_destroy(e[1]);
    fleet_destroy(f);
    gpu_kit_close();
}

/* --- room ------------------------------------------------------------------
 */

TEST(a_table_grows_and_keeps_its_rows)
{
    lookup_case c = mixed;
    lookup_scene s, here;
    int64_t first = 0;

    for (int i = 0; i < 6; i++)
        c.slot[i].below = 1000000;
    gpu_kit_open();
    lookup_open(&s, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    for (int i = 0; i < 12; i++) {
        train(&s, s.e, i);
        train(&here, here.e, i);
        if (i == 0)
            first = there_of(&s)->now.room;
        if (i % 5 == 0) /* room without a wait that says how many there are */
            CHECK_OK(fleet_executor_flush(s.e));
    }
    CHECK(there_of(&s)->now.room > first);
    CHECK(kit_hash(s.f) == kit_hash(here.f));
    CHECK(rows_now(&s) <= there_of(&s)->now.room);
    lookup_close(&s);
    lookup_close(&here);
    gpu_kit_close();
}

TEST(a_table_with_a_number_of_rows_has_no_room_for_more)
{
    lookup_case c = mixed;
    lookup_scene s;

    c.rows = 17;
    gpu_kit_open();
    lookup_open(&s, &c);
    for (int i = 0; i < 3; i++)
        train(&s, s.e, i);
    CHECK_INT(there_of(&s)->now.room, 17);
    CHECK_INT(rows_now(&s), 17);
    lookup_close(&s);
    gpu_kit_close();
}

/* Batches of more and more ids, also inside a merge group, whose sums stay. */
static uint64_t hash_of_growing_batches(const char *device, int merge)
{
    lookup_case c = {.slot = {{"ids", 0, -1, FLEET_SUM, 90}},
                     .n = 1,
                     .dim = {5, 5},
                     .concat = true,
                     .batch = 8,
                     .threads = 1,
                     .device = device,
                     .merge = merge};
    lookup_scene s;
    uint64_t hash;

    lookup_open(&s, &c);
    for (int i = 0; i < 6; i++) {
        kit_batch *b = kit_batch_new(8);

        kit_ragged(b, "ids", 1 + 7 * i * i, 90, i);
        kit_floats(b, "by", 5, i);
        CHECK_OK(kit_run(s.e, b));
        kit_batch_free(b);
    }
    CHECK_OK(fleet_executor_flush(s.e));
    hash = kit_hash(s.f);
    lookup_close(&s);
    return hash;
}

TEST(batches_may_have_more_ids_than_those_before)
{
    gpu_kit_open();
    for (int merge = 1; merge <= 4; merge++)
        CHECK(hash_of_growing_batches("gpu:0", merge) ==
              hash_of_growing_batches(NULL, merge));
    gpu_kit_close();
}

TEST(more_ids_than_can_be_numbered_are_refused)
{
    lookup_case c = mixed;
    lookup_scene s;
    kit_batch *b;
    int64_t *offsets, n;

    gpu_kit_open();
    lookup_open(&s, &c);
    train(&s, s.e, 0);
    b = lookup_batch(&s, 1);
    offsets = (int64_t *)(uintptr_t)b->feed[3].offsets;
    n = offsets[c.batch];
    offsets[c.batch] = INT64_C(1) << 31; /* and no such memory */
    CHECK_FAILS(kit_run(s.e, b), FLEET_EINVAL,
                "table \"first\": too many ids in a batch");
    offsets[c.batch] = n;
    CHECK_OK(kit_run(s.e, b));
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}

/* --- no wait ---------------------------------------------------------------
 */

/* The GPU does nothing for a while: two iterations are queued all the same, and
 * only the third one waits for the first. */
TEST(iterations_are_queued_and_not_waited_for)
{
    lookup_scene s;
    kit_batch *b;

    gpu_kit_open();
    lookup_open(&s, &mixed);
    b = lookup_batch(&s, 0);
    for (int i = 0; i < 4; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_OK(fleet_executor_flush(s.e));
    s.e->placing.gpu->deadline_ms = 20;
    gpu_kit_control()->set_busy(true);
    for (int i = 0; i < 2; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_FAILS(kit_run(s.e, b), FLEET_ETIMEDOUT, "was not done after 20 ms");
    gpu_kit_control()->set_busy(false);
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}

/* --- what fails ------------------------------------------------------------
 */

/* With ids that nobody has seen before. */
TEST(a_batch_whose_loss_is_not_finite_makes_and_changes_no_row)
{
    lookup_case c = mixed;
    fleet_status status;
    lookup_scene s;
    uint64_t hash;
    int64_t rows;
    kit_batch *b;

    gpu_kit_open();
    for (c.merge = 1; c.merge <= 2; c.merge++) {
        lookup_open(&s, &c);
        for (int i = 0; i < 2; i++)
            train(&s, s.e, i);
        hash = kit_hash(s.f);
        rows = rows_now(&s);
        b = lookup_batch(&s, 2);
        for (int i = 0; i < 37; i++)
            ((int64_t *)(void *)(uintptr_t)b->feed[0].data)[i] = 1000 + i;
        ((float *)(void *)(uintptr_t)b->feed[6].data)[5] = NAN;
        status = kit_run(s.e, b);
        for (int i = 0; i < 3 && status == FLEET_OK; i++)
            status = kit_run(s.e, b);
        CHECK_INT(status, FLEET_ENUMERIC);
        CHECK_CONTAINS(fleet_last_error(), "batch 3: the loss is not finite");
        CHECK_OK(fleet_executor_flush(s.e));
        CHECK_INT(rows_now(&s), rows);
        CHECK(kit_hash(s.f) == hash);
        kit_batch_free(b);
        for (int i = 0; i < 2; i++)
            train(&s, s.e, i);
        CHECK(kit_hash(s.f) != hash);
        lookup_close(&s);
    }
    gpu_kit_close();
}

/* New ids in slots of a fixed number, and always the same number of others. */
static kit_batch *batch_of_new_ids(const lookup_scene *s, int step, int most)
{
    const lookup_case *c = s->c;
    kit_batch *b = kit_batch_new(c->batch);

    for (int i = 0; i < c->n; i++) {
        const lookup_slot *slot = &c->slot[i];

        if (slot->width < 0)
            kit_ragged(b, slot->name, most, slot->below, i);
        else
            kit_ids(b, slot->name, slot->width, slot->below, 10 * step + i);
    }
    kit_floats(b, "by", s->cols, 1);
    return b;
}

TEST(a_table_that_cannot_grow_says_what_for_and_keeps_its_rows)
{
    fleet_status status = FLEET_OK;
    lookup_case c = mixed;
    lookup_scene s, here;

    for (int i = 0; i < 3; i++)
        c.slot[i].below = 1000000;
    gpu_kit_open();
    lookup_open(&s, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    for (int i = 0; i < 20 && status == FLEET_OK; i++) {
        kit_batch *b = batch_of_new_ids(&s, i, 4);

        if (i == 4) /* all is prepared and captured, for both slots */
            gpu_kit_control()->fail_at(1);
        status = kit_run(s.e, b);
        if (status == FLEET_OK)
            CHECK_OK(kit_run(here.e, b));
        kit_batch_free(b);
    }
    CHECK_INT(status, FLEET_ENOMEM);
    CHECK_CONTAINS(fleet_last_error(), "table \"first\", room for ");
    CHECK_CONTAINS(fleet_last_error(), " rows: cuda: no ");
    gpu_kit_control()->fail_at(0);
    for (int i = 0; i < 6; i++) {
        CHECK(kit_hash(s.f) == kit_hash(here.f));
        train(&s, s.e, i);
        train(&here, here.e, i);
    }
    lookup_close(&s);
    lookup_close(&here);
    gpu_kit_close();
}

/* A batch with more ids inside a merge group, while the n-th allocation of the
 * GPU's memory fails: that group is lost, and no other one. */
static bool grow_without_memory(int n, uint64_t *hash)
{
    lookup_case c = mixed;
    kit_batch *small, *large;
    fleet_status status;
    lookup_scene s;

    c.merge = 3;
    lookup_open(&s, &c);
    small = batch_of_new_ids(&s, 0, 1);
    large = batch_of_new_ids(&s, 1, 40);
    CHECK_OK(kit_run(s.e, small));
    gpu_kit_control()->fail_at(n);
    status = kit_run(s.e, large);
    gpu_kit_control()->fail_at(0);
    if (status != FLEET_OK) {
        CHECK_INT(status, FLEET_ENOMEM);
        CHECK_OK(kit_run(s.e, small)); /* of a new group */
        CHECK_OK(kit_run(s.e, large));
    }
    CHECK_OK(kit_run(s.e, small));
    CHECK_OK(fleet_executor_flush(s.e));
    *hash = kit_hash(s.f);
    kit_batch_free(small);
    kit_batch_free(large);
    lookup_close(&s);
    return status != FLEET_OK;
}

TEST(room_for_ids_that_is_not_there_is_said_and_nothing_is_lost)
{
    uint64_t want, hash;
    int n = 1;

    gpu_kit_open();
    CHECK(!grow_without_memory(0, &want));
    while (n < 300 && grow_without_memory(n, &hash)) {
        CHECK(hash == want);
        n++;
    }
    CHECK(n > 20 && n < 300);
    gpu_kit_close();
}
