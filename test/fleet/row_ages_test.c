/* row_ages_test.c - ages of rows in saves: a training that goes on from one
 * lets the rows go that it would have let go. */
#define SUITE row_ages
#include "grown_kit.h"
#include "test.h"

#include <string.h>

#include "fleet/save/row_ages.h"

enum { EACH = 8, KEYS = EACH + 2 };

static void open_life(grown *g, const fleet_table_options *life)
{
    grown_open(g, &(grown_how){.optimizer = "adam",
                               .life = *life,
                               .options = {.seed = 7}});
}

/* n keys of one bucket, growing. */
static void keys_of_a_bucket(int64_t *key, int n)
{
    for (int64_t k = 0, i = 0; i < n; k++)
        if (fl_bucket_of(fl_mix((uint64_t)k)) == fl_bucket_of(fl_mix(0)))
            key[i++] = k;
}

/* --- undisturbed, and gone on from a save --------------------------------- */

/* The higher its key, the older a row, but for the last. */
static void train_first(grown *g)
{
    int64_t key[KEYS];

    keys_of_a_bucket(key, KEYS);
    for (int i = EACH - 1; i >= 0; i--)
        grown_train_ids(g, &key[i], 1);
    grown_train_ids(g, &key[EACH - 1], 1);
    CHECK_OK(fleet_shrink_at(g->f, NULL, 1000));
    grown_train_ids(g, key, 3);
}

static void train_second(grown *g)
{
    int64_t key[KEYS];

    keys_of_a_bucket(key, KEYS);
    CHECK_OK(fleet_shrink_at(g->f, NULL, 4600));
    grown_train_ids(g, &key[3], 1);
    grown_train_ids(g, &key[EACH], 2);
    CHECK_OK(fleet_shrink_at(g->f, NULL, 4700));
    grown_train_ids(g, key, 2);
    CHECK_OK(fleet_shrink_at(g->f, NULL, 9000));
}

static const fleet_table_options lives[] = {
    {.ttl_updates = 6},
    {.ttl_seconds = 3600},
    {.most_rows = EACH * FL_N_BUCKET},
    {.most_bytes = (int64_t)8192 * FL_N_BUCKET},
    {.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 2}, .ttl_updates = 6},
    {.entry = {.kind = FLEET_BLOOM_FILTER_ENTRY,
               .count = 2,
               .most_keys = 1000,
               .false_positive_rate = 0.01},
     .ttl_seconds = 3600},
};

TEST(a_training_that_goes_on_lets_the_same_rows_go)
{
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        const char *path = test_path("saved"), *again = test_path("again");
        grown a, b, c;

        open_life(&a, &lives[i]);
        train_first(&a);
        CHECK_OK(fleet_save_persistables(a.f, path));
        train_second(&a);
        open_life(&b, &lives[i]);
        CHECK_OK(fleet_load_model(b.f, path));
        CHECK_OK(fleet_save_persistables(b.f, again));
        open_life(&c, &lives[i]); /* and once more */
        CHECK_OK(fleet_load_model(c.f, again));
        train_second(&b);
        train_second(&c);
        CHECK_INT(grown_rows(&b, "t"), grown_rows(&a, "t"));
        CHECK(grown_hash(&b) == grown_hash(&a));
        CHECK(grown_hash(&c) == grown_hash(&a));
        grown_close(&a);
        grown_close(&b);
        grown_close(&c);
    }
}

/* What differs if no age is known, of the first three. */
TEST(rows_go_by_what_they_were_before_the_save)
{
    static const int left[] = {5, 3, EACH};

    for (int i = 0; i < 3; i++) {
        const uint64_t oldest = 7;
        int64_t key[KEYS];
        float row[GROWN_DIM];
        int found;
        grown g;

        keys_of_a_bucket(key, KEYS);
        open_life(&g, &lives[i]);
        train_first(&g);
        CHECK_OK(fleet_save_persistables(g.f, test_path("saved")));
        CHECK_OK(fleet_load_model(g.f, test_path("saved")));
        CHECK_OK(fleet_shrink_at(g.f, NULL, 4600));
        grown_train_ids(&g, &key[0], 1);
        if (i == 2)
            grown_train_ids(&g, &key[EACH], 1);
        CHECK_INT(grown_rows(&g, "t"), left[i]);
        CHECK_OK(fleet_table_get(g.f, "t",
                                 (uint64_t[]){(uint64_t)key[oldest - 1]}, 1,
                                 GROWN_DIM, row, NULL, &found));
        CHECK(!found);
        grown_close(&g);
    }
}

/* Marks of a table that keeps them more often are thinned out. */
TEST(marks_of_another_time_to_live_are_as_far_apart_as_its_own)
{
    const fleet_table_options often = {.ttl_seconds = 32};
    const fleet_table_options seldom = {.ttl_seconds = 3200};
    grown a, b;

    open_life(&a, &often);
    grown_train(&a, 4);
    for (int s = 1; s <= 40; s++) {
        CHECK_OK(fleet_shrink_at(a.f, "t", s));
        grown_train(&a, 4);
    }
    CHECK_OK(fleet_save_persistables(a.f, test_path("often")));
    open_life(&b, &seldom);
    CHECK_OK(fleet_load_model(b.f, test_path("often")));
    for (int s = 100; s <= 6000; s += 100) {
        CHECK_OK(fleet_shrink_at(b.f, "t", s));
        grown_train(&b, 1);
        CHECK_INT(grown_rows(&b, "t"), s < 3400 ? 4 : 1);
    }
    grown_close(&a);
    grown_close(&b);
}

/* --- another number of updates -------------------------------------------- */

static const fleet_table_options three = {.ttl_updates = 3};

/* Ids 0 to 3, of which two are two updates old. */
static void save_three_updates(const char *path, bool one_table)
{
    grown g;

    open_life(&g, &three);
    grown_train(&g, 4);
    grown_train(&g, 2);
    grown_train(&g, 2);
    CHECK_OK(one_table ? fleet_save_one_table(g.f, "t", path)
                       : fleet_save_persistables(g.f, path));
    grown_close(&g);
}

TEST(a_table_that_is_loaded_elsewhere_is_as_old_as_it_was)
{
    save_three_updates(test_path("one"), true);
    for (int updates = 1; updates < 9; updates += 7) {
        grown g;

        open_life(&g, &three);
        for (int i = 0; i < updates; i++)
            grown_train_keys(&g, 50, 3);
        CHECK_OK(fleet_load_one_table(g.f, "t", test_path("one"), NULL));
        CHECK_OK(fleet_shrink(g.f, "t"));
        CHECK_INT(grown_rows(&g, "t"), 4);
        grown_train_keys(&g, 60, 1);
        CHECK_OK(fleet_shrink(g.f, "t"));
        /* before the first update nothing has an age */
        CHECK_INT(grown_rows(&g, "t"), updates > 3 ? 3 : 5);
        grown_close(&g);
    }
}

TEST(rows_beside_those_that_stay_bring_their_ages)
{
    const fleet_load_options more = {.keep_rows = 1};
    grown g;

    save_three_updates(test_path("all"), false);
    open_life(&g, &three);
    grown_train_keys(&g, 50, 3);
    grown_train_keys(&g, 50, 2);
    CHECK_OK(fleet_load_model_with(g.f, test_path("all"), &more));
    CHECK_OK(fleet_shrink(g.f, "t")); /* 52 is one update old */
    CHECK_INT(grown_rows(&g, "t"), 7);
    grown_train_keys(&g, 60, 1);
    CHECK_OK(fleet_shrink(g.f, "t")); /* 2 and 3 go */
    CHECK_INT(grown_rows(&g, "t"), 6);
    grown_train_keys(&g, 60, 1);
    CHECK_OK(fleet_shrink(g.f, "t")); /* 52 */
    CHECK_INT(grown_rows(&g, "t"), 5);
    grown_close(&g);
}

TEST(ages_count_back_from_the_updates_of_the_save)
{
    CHECK_INT(fl_row_age(7, 10), 3);
    CHECK_INT(fl_row_age(11, 10), -1); /* by hand, after the tenth */
    CHECK(fl_row_age(0, 10) == FL_NO_AGE);
    CHECK_INT((int64_t)fl_row_changed_at(3, 20), 17);
    CHECK_INT((int64_t)fl_row_changed_at(-1, 20), 21);
    CHECK_INT((int64_t)fl_row_changed_at(30, 20), 0);
    CHECK_INT((int64_t)fl_row_changed_at(FL_NO_AGE, 20), 0);
    CHECK_INT((int64_t)fl_row_changed_at(INT64_MIN, 20), 21); /* of no save */
}
