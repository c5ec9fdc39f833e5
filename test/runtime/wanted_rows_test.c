/* wanted_rows_test.c - lookups in tables that have rows out of memory: they
 * wait for them, and train to the bits of tables that have all rows. */
#define SUITE wanted_rows
#include "away_rows.h"
#include "lookup_kit.h"
#include "test.h"

#include <limits.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/snapshot.h"

static const lookup_case mixed = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"three", 0, 3, FLEET_SUM, 60},
             {"other", 1, 1, FLEET_SUM, 30},
             {"some", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50}},
    .n = 5,
    .dim = {9, 4},
    .concat = true,
    .batch = 37,
    .threads = 2,
    .make_rows = away_rows_make,
};

TEST(lookups_wait_for_their_rows)
{
    lookup_case c = mixed;

    lookup_check(&c);
    c.threads = 1;
    c.concat = false;
    lookup_check(&c);
    away_rows_looks = 0; /* ready when they are asked for */
    lookup_check(&c);
}

static void check_same(lookup_case c)
{
    uint64_t got = lookup_hash(&c);

    c.make_rows = NULL;
    CHECK(got == lookup_hash(&c));
}

TEST(updates_merged_and_clipped_are_those_of_rows_in_memory)
{
    static const char *const rule[] = {"adagrad", "adam", KIT_ROW_ADAM, "ftrl"};
    lookup_case c = mixed;

    for (int i = 0; i < 4; i++) {
        c.optimizer = rule[i];
        c.merge = 1;
        c.clip = 0;
        check_same(c);
        c.merge = 3;
        check_same(c);
        c.clip = 0.01f;
        check_same(c);
    }
}

/* Between batches no rows are in memory, but for those of the last lookup of a
 * plan that updates nothing. */
TEST(rows_go_when_their_update_is_over)
{
    fl_rows *rows;
    lookup_scene s;

    lookup_open(&s, &mixed);
    rows = lookup_rows(&s, 0);
    for (int step = 0; step < 3; step++) {
        kit_batch *b = lookup_batch(&s, step);
        uint64_t epoch = fl_rows_epoch(rows);

        CHECK_OK(kit_run(s.e, b));
        CHECK_INT(away_rows_near(rows), 0);
        CHECK(fl_rows_epoch(rows) > epoch);
        kit_batch_free(b);
    }
    CHECK(away_rows_came(rows) > 0);
    lookup_close(&s);
}

/* Of a program that updates nothing: the next batch, or the executor's end,
 * gives them back. */
TEST(an_executor_that_ends_gives_its_rows_back)
{
    fleet_executor *tester;
    fl_rows *rows;
    float loss;
    lookup_scene s;
    kit_batch *b;

    lookup_open(&s, &mixed);
    rows = lookup_rows(&s, 0);
    b = lookup_batch(&s, 0);
    CHECK_OK(kit_run(s.e, b));
    tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(tester, b, s.loss, &loss, 1));
    CHECK(away_rows_near(rows) > 0);
    fleet_executor_destroy(tester);
    CHECK_INT(away_rows_near(rows), 0);
    kit_batch_free(b);
    lookup_close(&s);
}

TEST(rows_that_do_not_come_end_the_step_by_name)
{
    lookup_scene s;
    kit_batch *b;

    lookup_open(&s, &mixed);
    for (int t = 0; t < 2; t++)
        lookup_rows(&s, t)->wait_ms = 60;
    b = lookup_batch(&s, 0);
    away_rows_looks = INT_MAX;
    CHECK_FAILS(kit_run(s.e, b), FLEET_ETIMEDOUT,
                "rows that are wanted have not come into memory within 0.1 s");
    away_rows_looks = 3;
    CHECK_OK(kit_run(s.e, b));
    kit_batch_free(b);
    lookup_close(&s);
}

TEST(a_save_goes_into_a_table_whose_rows_are_away)
{
    const char *path = test_path("save");
    lookup_scene a, b;

    lookup_open(&a, &mixed);
    lookup_open(&b, &mixed);
    for (int step = 0; step < 2; step++) {
        kit_batch *batch = lookup_batch(&a, step);

        CHECK_OK(kit_run(a.e, batch));
        kit_batch_free(batch);
    }
    CHECK_OK(fleet_save_persistables(a.f, path));
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK_INT(away_rows_near(lookup_rows(&b, 0)), 0);
    CHECK(kit_hash(a.f) == kit_hash(b.f));
    lookup_close(&a);
    lookup_close(&b);
}

/* Rows are read in the background, from memory that stays. */
TEST(a_save_beside_training_refuses_rows_that_are_away)
{
    const uint64_t done = 1;
    lookup_scene s;

    lookup_open(&s, &mixed);
    CHECK_FAILS(fl_snapshot_begin(s.f->store, 1, &done, 1), FLEET_EUNSUPPORTED,
                "not in this process's memory");
    CHECK(s.f->store->snapshot == NULL);
    CHECK_OK(fleet_save_persistables(s.f, test_path("save")));
    lookup_close(&s);
}

TEST(a_table_that_has_its_rows_is_not_asked)
{
    lookup_case c = mixed;
    fl_wanted_rows w = {0};
    uint64_t key = 7;
    lookup_scene s;

    c.make_rows = NULL;
    lookup_open(&s, &c);
    CHECK_OK(fl_rows_bring(&w, lookup_rows(&s, 0), &key, 1));
    CHECK(w.rows == NULL);
    fl_wanted_rows_done(&w);
    lookup_close(&s);
}
