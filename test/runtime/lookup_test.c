/* lookup_test.c - sparse_embedding: against rows kept in a plain list, to the
 * bit, for every kind of slot; what reads and what makes rows. */
#define SUITE lookup
#include "lookup_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

/* Two tables, slots of one, three and any number of ids, sum and mean. */
static const lookup_case mixed = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"three", 0, 3, FLEET_SUM, 60},
             {"other", 1, 1, FLEET_SUM, 30},
             {"some", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50},
             {"more", 1, -1, FLEET_MEAN, 20}},
    .n = 6,
    .dim = {9, 3},
    .concat = true,
    .batch = 37,
    .threads = 2,
};

/* Only slots of fixed width: another path through the kernels. */
static const lookup_case fixed = {
    .slot = {{"a", 0, 1, FLEET_SUM, 50},
             {"b", 0, 1, FLEET_SUM, 50},
             {"c", 0, 3, FLEET_SUM, 50},
             {"d", 1, 2, FLEET_SUM, 20}},
    .n = 4,
    .dim = {8, 17},
    .concat = true,
    .batch = 37,
    .threads = 2,
};

TEST(pools_as_a_plain_list_does_for_every_width_of_rows)
{
    static const int64_t dims[] = {1, 3, 8, 9, 16, 17, 64};

    for (int i = 0; i < 7; i++) {
        lookup_case a = lookup_kit_pooled;

        a.dim[0] = dims[i];
        a.dim[1] = dims[6 - i];
        lookup_check(&a);
        a.concat = false;
        lookup_check(&a);
        a.weighted =
            ~a.weighted & 0x3e; /* of the ragged slots, those without */
        lookup_check(&a);
    }
}

TEST(pools_as_a_plain_list_does_for_every_size_of_batch)
{
    static const int64_t batches[] = {1, 16, 150, 1024};

    for (int i = 0; i < 4; i++) {
        lookup_case a = lookup_kit_pooled;

        a.batch = batches[i];
        lookup_check(&a);
    }
}

TEST(agrees_with_a_plain_list_for_every_width_of_rows)
{
    static const int64_t dims[] = {1, 3, 8, 9, 16, 17, 64};

    for (int i = 0; i < 7; i++) {
        lookup_case a = mixed, b = fixed;

        a.dim[0] = b.dim[1] = dims[i];
        a.dim[1] = b.dim[0] = dims[6 - i];
        lookup_check(&a);
        lookup_check(&b);
    }
}

TEST(agrees_with_a_plain_list_for_every_size_of_batch)
{
    static const int64_t batches[] = {1, 16, 37, 150, 1024};

    for (int i = 0; i < 5; i++) {
        lookup_case a = mixed, b = fixed;

        a.batch = b.batch = batches[i];
        lookup_check(&a);
        lookup_check(&b);
    }
}

TEST(agrees_with_a_plain_list_when_outputs_are_not_concatenated)
{
    lookup_case a = mixed, b = fixed;

    a.concat = b.concat = false;
    lookup_check(&a);
    lookup_check(&b);
}

TEST(takes_ids_modulo_the_rows_of_a_table)
{
    lookup_case a = mixed, b = fixed;

    a.rows = b.rows = 17;
    for (int i = 0; i < 6; i++)
        a.slot[i].below = b.slot[i].below = INT64_MAX;
    lookup_check(&a);
    lookup_check(&b);
}

TEST(has_a_learning_rate_and_a_decay_for_each_table)
{
    lookup_case a = mixed;

    a.learning_rate = 0.25f;
    a.l2_decay = 0.125f;
    lookup_check(&a);
}

/* --- threads ------------------------------------------------------------- */

static uint64_t hash_with(const lookup_case *like, int64_t batch, int threads)
{
    lookup_case c = *like;

    c.batch = batch;
    c.threads = threads;
    return lookup_hash(&c);
}

TEST(results_do_not_depend_on_the_number_of_threads)
{
    static const int64_t batches[] = {1, 37, 150, 1024};

    for (int i = 0; i < 4; i++) {
        uint64_t a = hash_with(&mixed, batches[i], 1);
        uint64_t b = hash_with(&fixed, batches[i], 1);
        uint64_t c = hash_with(&lookup_kit_pooled, batches[i], 1);

        CHECK(a != b);
        for (int threads = 2; threads <= 4; threads++) {
            CHECK(hash_with(&lookup_kit_pooled, batches[i], threads) == c);
            CHECK(hash_with(&mixed, batches[i], threads) == a);
            CHECK(hash_with(&fixed, batches[i], threads) == b);
        }
    }
}

/* --- what reads and what makes rows -------------------------------------- */

/* One slot of three ids, and batches of two samples. */
static const lookup_case three = {.slot = {{"ids", 0, 3, FLEET_SUM, 5}},
                                  .n = 1,
                                  .dim = {4, 4},
                                  .concat = true,
                                  .batch = 2,
                                  .threads = 1};

static kit_batch *batch_of_ids(const lookup_scene *s, const int64_t ids[6])
{
    kit_batch *b = kit_batch_new(2);

    memcpy(kit_ids(b, "ids", 3, 5, 0), ids, 6 * sizeof *ids);
    kit_floats(b, "by", s->cols, 3);
    return b;
}

static void train_on(lookup_scene *s, const int64_t ids[6])
{
    kit_batch *b = batch_of_ids(s, ids);

    CHECK_OK(kit_run(s->e, b));
    kit_batch_free(b);
}

static int64_t count_rows(const lookup_scene *s)
{
    fl_rows *rows = lookup_rows(s, 0);

    return rows->methods->count(rows);
}

static const float *row_of(const lookup_scene *s, uint64_t key)
{
    fl_rows *rows = lookup_rows(s, 0);
    float *row;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    return row;
}

TEST(ids_are_64_unsigned_bits)
{
    lookup_scene s;

    lookup_open(&s, &three);
    train_on(&s, (int64_t[]){0, -1, INT64_MIN, INT64_MAX, 5, 7});
    CHECK(row_of(&s, 0) && row_of(&s, UINT64_MAX) && row_of(&s, 1ULL << 63));
    CHECK_INT(count_rows(&s), 6);
    lookup_close(&s);
}

TEST(negative_ids_are_large_ones_modulo_the_rows)
{
    lookup_case c = three;
    lookup_scene s;

    c.rows = 10;
    lookup_open(&s, &c);
    train_on(&s, (int64_t[]){-1, -1, -1, 15, 25, 5});
    CHECK(row_of(&s, 5) != NULL); /* 2^64 - 1 modulo 10 */
    CHECK_INT(count_rows(&s), 1);
    lookup_close(&s);
}

TEST(unknown_rows_read_as_their_initial_values_and_are_not_made)
{
    lookup_scene s;
    kit_batch *b;
    fleet_executor *tester;
    float got[24], want[4];

    lookup_open(&s, &three);
    b = batch_of_ids(&s, (int64_t[]){1, 2, 3, 4, 5, -6});
    tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    for (int i = 0; i < 3; i++)
        CHECK_OK(kit_fetch(tester, b, s.all, got, 24));
    fl_filler_row(&s.table[0].filler, (uint64_t)-6, want, 4);
    CHECK(memcmp(got + 20, want, sizeof want) == 0);
    CHECK_INT(count_rows(&s), 0);
    CHECK_OK(kit_run(s.e, b));
    CHECK_INT(count_rows(&s), 6);
    kit_batch_free(b);
    fleet_executor_destroy(tester);
    lookup_close(&s);
}

TEST(evaluation_sees_what_training_has_made_of_a_row)
{
    lookup_scene s;
    kit_batch *b;
    fleet_executor *tester;
    float got[24];

    lookup_open(&s, &three);
    tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    b = batch_of_ids(&s, (int64_t[]){1, 2, 3, 4, 5, 6});
    CHECK_OK(kit_run(tester, b));
    CHECK_OK(kit_run(s.e, b));
    CHECK_OK(kit_fetch(tester, b, s.all, got, 24));
    for (uint64_t k = 1; k <= 6; k++)
        CHECK(memcmp(got + (k - 1) * 4, row_of(&s, k), 16) == 0);
    kit_batch_free(b);
    fleet_executor_destroy(tester);
    lookup_close(&s);
}

TEST(samples_without_ids_read_as_zeros_and_train_nothing)
{
    lookup_case c = three;
    lookup_scene s;
    kit_batch *b = kit_batch_new(2);
    float got[8];

    c.slot[0].width = -1;
    lookup_open(&s, &c);
    kit_ragged(b, "ids", 0, 5, 1);
    b->feed[0].data = (free((void *)(uintptr_t)b->feed[0].data), NULL);
    kit_floats(b, "by", 4, 1);
    CHECK_OK(kit_fetch(s.e, b, s.all, got, 8));
    for (int i = 0; i < 8; i++)
        CHECK(got[i] == 0);
    CHECK_INT(count_rows(&s), 0);
    kit_batch_free(b);
    lookup_close(&s);
}

/* --- outputs that are not used, tables that are not trained --------------- */

/* Two slots of one table; the loss depends on the one that `used` says. */
typedef struct pair {
    fleet *f;
    fleet_program *p;
    fleet_var *out[2];
    fleet_executor *e;
} pair;

static void open_pair(pair *s, int used, int frozen)
{
    static const char *const names[] = {"left", "right"};
    fleet_sparse_embedding_options o = {.table = "t", .frozen = frozen};

    s->f = kit_handle(&(kit_options){0});
    s->p = fleet_program_create(s->f);
    for (int i = 0; i < 2; i++)
        s->out[i] = fleet_sparse_embedding(
            s->p,
            fleet_data(s->p, names[i], FLEET_INT64, (int64_t[]){-1, 1}, 2), 4,
            &o);
    CHECK_OK(fleet_minimize(
        fleet_sgd(s->f, 1),
        fleet_mean(s->p, fleet_fc(s->p, s->out[used], 1, NULL))));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
}

/* A batch with id 1 to the left and 2 to the right; is there a row now? */
static void run_pair(pair *s, const fleet_var *fetch, bool row[3])
{
    fl_rows *rows = fl_store_rows(s->f->store, "t");
    kit_batch *b = kit_batch_new(1);
    float out[4];

    *kit_ids(b, "left", 1, 5, 0) = 1;
    *kit_ids(b, "right", 1, 5, 0) = 2;
    CHECK_OK(kit_fetch(s->e, b, fetch, out, 4));
    for (uint64_t k = 0; k < 3; k++) {
        float *at;

        CHECK_OK(rows->methods->find(rows, &k, 1, &at));
        row[k] = at != NULL;
    }
    kit_batch_free(b);
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

TEST(a_slot_whose_output_is_only_fetched_trains_nothing_and_hinders_nobody)
{
    for (int used = 0; used < 2; used++)
        for (int fetched = 0; fetched < 2; fetched++) {
            bool row[3];
            pair s;

            open_pair(&s, used, 0);
            run_pair(&s, s.out[fetched], row);
            CHECK(row[1] == (used == 0) && row[2] == (used == 1));
        }
}

TEST(a_frozen_table_is_read_and_never_changed)
{
    bool row[3];
    pair s;

    open_pair(&s, 0, 1);
    run_pair(&s, s.out[0], row);
    CHECK(!row[0] && !row[1] && !row[2]);
}

/* --- no memory ------------------------------------------------------------ */

/* Training steps while the n-th allocation fails, and then to the end. */
static bool train_without_memory(int64_t n, uint64_t want)
{
    bool failed = false;
    lookup_scene s;

    lookup_open(&s, &mixed);
    for (int step = 0; step < 3; step++) {
        kit_batch *b = lookup_batch(&s, step);

        fl_memory_fail_at(step == 1 ? n : 0, false);
        if (kit_run(s.e, b) != FLEET_OK) {
            failed = true;
            CHECK_CONTAINS(fleet_last_error(), "out of memory");
        }
        fl_memory_fail_at(0, false);
        kit_batch_free(b);
    }
    CHECK(failed || kit_hash(s.f) == want);
    lookup_close(&s);
    return failed;
}

TEST(a_step_without_memory_fails_and_the_next_one_works)
{
    uint64_t want = lookup_hash(&mixed);
    int64_t n = 1;

    while (train_without_memory(n, want))
        n += n < 40 ? 1 : 7;
    CHECK(n > 10);
}
