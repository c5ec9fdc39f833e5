/* table_age_test.c - rows that go by the clock, tables bounded in bytes, and
 * rows in use. */
#define SUITE table_age
#include "grown_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/life/age.h"

static void open_life(grown *g, fleet_table_options life, const char *optimizer)
{
    const grown_how how = {
        .optimizer = optimizer, .life = life, .options = {.seed = 7}};

    grown_open(g, &how);
}

/* --- seconds -------------------------------------------------------------- */

static const fleet_table_options hour = {.ttl_seconds = 3600};

TEST(rows_go_that_were_not_changed_for_as_long)
{
    grown g;

    open_life(&g, hour, "sgd");
    grown_train_keys(&g, 0, 9);
    CHECK_OK(fleet_shrink_at(g.f, "t", 1000));
    grown_train_keys(&g, 0, 5);
    CHECK_OK(fleet_shrink_at(g.f, "t", 4599));
    CHECK_INT(grown_rows(&g, "t"), 9);
    CHECK_OK(fleet_shrink_at(g.f, NULL, 4600));
    CHECK_INT(grown_rows(&g, "t"), 5);
    CHECK_OK(fleet_shrink_at(g.f, "t", 8198));
    CHECK_INT(grown_rows(&g, "t"), 5);
    CHECK_OK(fleet_shrink_at(g.f, "t", 8199)); /* an hour after 4599 */
    CHECK_INT(grown_rows(&g, "t"), 0);
    grown_close(&g);
}

TEST(a_clock_that_goes_back_stands_still)
{
    grown g;

    open_life(&g, hour, "sgd");
    CHECK_OK(fleet_shrink_at(g.f, "t", 9000));
    grown_train_keys(&g, 0, 4);
    CHECK_OK(fleet_shrink_at(g.f, "t", 1000));
    CHECK_OK(fleet_shrink_at(g.f, "t", 4600));
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_OK(fleet_shrink(g.f, "t")); /* years later, but never before */
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_OK(fleet_shrink_at(g.f, "t", (int64_t)1 << 53));
    CHECK_INT(grown_rows(&g, "t"), 0);
    grown_close(&g);
}

TEST(keys_that_wait_and_filters_go_by_it_too)
{
    fleet_table_options waits = hour, filters = hour;
    grown w, f;

    waits.entry = (fleet_entry){.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3};
    filters.entry = (fleet_entry){.kind = FLEET_BLOOM_FILTER_ENTRY,
                                  .count = 3,
                                  .most_keys = 100,
                                  .false_positive_rate = 0.01};
    open_life(&w, waits, "sgd");
    open_life(&f, filters, "sgd");
    grown_train_keys(&w, 0, 9);
    grown_train_keys(&f, 0, 9);
    for (int64_t at = 0; at <= 3600; at += 1800) {
        CHECK_INT(grown_rows(&w, "t.waiting"), 9);
        CHECK(grown_rows(&f, "t.filter") > 0);
        CHECK_OK(fleet_shrink_at(w.f, NULL, at));
        CHECK_OK(fleet_shrink_at(f.f, NULL, at));
    }
    CHECK_INT(grown_rows(&w, "t.waiting"), 0);
    CHECK_INT(grown_rows(&f, "t.filter"), 0);
    grown_close(&w);
    grown_close(&f);
}

/* Which are as old as the load, where the save has no ages. */
TEST(a_load_without_ages_is_a_change_of_all_rows_now)
{
    const fleet_table_options none = {0};
    const char *path = test_path("saved");
    grown g, before;

    open_life(&before, none, "sgd");
    grown_train_keys(&before, 0, 4);
    CHECK_OK(fleet_save_persistables(before.f, path));
    grown_close(&before);
    open_life(&g, hour, "sgd");
    grown_train_keys(&g, 0, 4);
    CHECK_OK(fleet_shrink_at(g.f, "t", 100));
    CHECK_OK(fleet_load_model(g.f, path));
    grown_train_keys(&g, 0, 1);
    CHECK_OK(fleet_shrink_at(g.f, "t", 4000));
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_OK(fleet_shrink_at(g.f, "t", 7600));
    CHECK_INT(grown_rows(&g, "t"), 0);
    grown_close(&g);
}

/* Beside all calls' marks: it is never too early, and at most a 32nd of the
 * time and a call late. */
TEST(few_marks_are_as_good_as_all)
{
    enum { CALLS = 2000, TTL = 1000, STEP = 60 };
    static fl_life_mark all[CALLS];
    fl_life life = {.o = {.ttl_seconds = TTL}};
    uint64_t x = 11, kept = 0;
    int64_t now = 0;

    for (int i = 0; i < CALLS; i++) {
        uint64_t limit, early = 0, late = 0;

        x = x * 6364136223846793005u + 1442695040888963407u;
        now += (int64_t)(x >> 40) % (i % 3 ? 4 : STEP);
        limit = fl_age_limit(&life, (uint64_t)i, now);
        for (int k = 0; k < i; k++) {
            if (all[k].seconds <= now - TTL)
                early = all[k].updates + 1;
            if (all[k].seconds <= now - TTL - (TTL + 31) / 32 - STEP)
                late = all[k].updates + 1;
        }
        CHECK(limit <= early && limit >= late);
        all[i] = (fl_life_mark){(uint64_t)i, now};
        kept = (uint64_t)life.n_mark > kept ? (uint64_t)life.n_mark : kept;
    }
    CHECK(kept > 10 && kept <= 34);
}

TEST(times_that_cannot_be_are_named)
{
    const fleet_table_options none = {0};
    grown g, plain;

    open_life(&g, hour, "sgd");
    open_life(&plain, none, "sgd");
    CHECK_FAILS(fleet_shrink_at(g.f, "t", -1), FLEET_EINVAL,
                "fleet_shrink_at: -1 seconds: expected 0 to 2^53");
    CHECK_FAILS(fleet_shrink_at(g.f, "t", ((int64_t)1 << 53) + 1), FLEET_EINVAL,
                "expected 0 to 2^53");
    grown_train_keys(&plain, 0, 1);
    CHECK_FAILS(fleet_shrink_at(plain.f, "t", 1), FLEET_EINVAL,
                "no life.ttl_updates, no");
    grown_close(&g);
    grown_close(&plain);
}

/* --- bytes ---------------------------------------------------------------- */

enum {
    CAP = 12 << 20,
    LESS = 8 << 20,
    NEW = 8192,
    HOT = 50,
    TIMES = TEST_SLOWNESS > 10 ? 3 : 10
};

static int64_t used_of(const grown *g, const char *table)
{
    fleet_table_statistics s = grown_stat(g, table);

    return s.row_bytes + s.index_bytes;
}

/* Ids of which 50 come again and the others do not, TIMES as many as fit. */
static void train_churn(grown *g, int batch)
{
    static int64_t id[NEW + HOT];

    for (int i = 0; i < HOT; i++)
        id[i] = i;
    for (int i = 0; i < NEW; i++)
        id[HOT + i] = 1000 + (int64_t)batch * NEW + i;
    grown_train_ids(g, id, NEW + HOT);
}

/* States are in the bytes: of adam three times as much as of sgd. */
TEST(memory_after_ten_times_as_many_ids_is_what_was_stated)
{
    static const char *const rule[] = {"sgd", "adam"};
    int64_t rows[2];

    for (int i = 0; i < 2; i++) {
        int64_t full = 0, all;
        int batch = 0;
        grown g;

        open_life(&g, (fleet_table_options){.most_bytes = CAP}, rule[i]);
        do {
            rows[i] = grown_rows(&g, "t");
            train_churn(&g, batch++);
            CHECK(used_of(&g, "t") <= CAP);
        } while (grown_rows(&g, "t") > rows[i]);
        full = used_of(&g, "t") + grown_stat(&g, "t").free_bytes;
        CHECK(rows[i] > CAP / 1024 * 8); /* and it is not nothing */
        CHECK(used_of(&g, "t") > CAP / 2);
        for (int n = TIMES * (int)rows[i] / NEW; batch < n; batch++)
            train_churn(&g, batch);
        CHECK(used_of(&g, "t") <= CAP);
        all = used_of(&g, "t") + grown_stat(&g, "t").free_bytes;
        CHECK(all <= full + full / 20);
        grown_close(&g);
    }
    CHECK(rows[1] < rows[0] * 9 / 10);
}

TEST(what_filters_count_is_in_the_bytes)
{
    fleet_table_options life = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 2},
        .most_bytes = CAP};
    grown w, b;

    open_life(&w, life, "sgd");
    life.entry = (fleet_entry){.kind = FLEET_BLOOM_FILTER_ENTRY,
                               .count = 2,
                               .most_keys = 500000,
                               .false_positive_rate = 0.001};
    life.most_bytes = LESS; /* so that it is full */
    open_life(&b, life, "sgd");
    for (int i = 0; i < 20; i++) {
        train_churn(&w, i / 2);
        train_churn(&b, i / 2);
        CHECK(used_of(&w, "t") + used_of(&w, "t.waiting") <= CAP);
        CHECK(used_of(&b, "t") + used_of(&b, "t.filter") <= LESS);
    }
    CHECK(used_of(&w, "t") > CAP / 4 && used_of(&b, "t") > LESS / 4);
    CHECK(grown_rows(&b, "t") <=
          53 * 1024); /* more if its filter weighed nothing */
    grown_close(&w);
    grown_close(&b);
}

TEST(too_few_bytes_are_refused_with_what_would_do)
{
    grown_how how = {.optimizer = "adam",
                     .life = {.most_bytes = 1 << 20},
                     .options = {.num_threads = 1}};
    fleet_parameter_info list[4];
    fleet_program *p;
    fleet *f;
    int n;

    CHECK_OK(fleet_init(&f, &how.options));
    grown_build(f, &p, &how);
    CHECK(fleet_executor_create(p, NULL) == NULL);
    CHECK_CONTAINS(fleet_last_error(),
                   "table \"t\": most_bytes 1048576: expected");
    CHECK_CONTAINS(fleet_last_error(), "for a row in each of its 1024 buckets");
    CHECK_STATUS(fleet_parameter_list(f, list, 4, &n), FLEET_EINVAL);
    fleet_destroy(f);
}

TEST(of_rows_and_bytes_the_lower_limit_holds)
{
    const fleet_table_options both = {.most_rows = 4096, .most_bytes = CAP};
    grown g;

    open_life(&g, both, "sgd");
    for (int i = 0; i < 4; i++)
        train_churn(&g, i);
    CHECK(grown_rows(&g, "t") <= 4096 && grown_rows(&g, "t") > 3000);
    grown_close(&g);
}

/* --- rows in use ---------------------------------------------------------- */

TEST(hot_rows_are_those_of_the_last_thousand_updates)
{
    const fleet_table_options none = {0};
    grown g;

    open_life(&g, none, "sgd");
    grown_train_keys(&g, 0, 9);
    CHECK_INT(grown_stat(&g, "t").hot_rows, 9);
    for (int i = 1; i < FLEET_HOT_UPDATES; i++)
        grown_train(&g, 2);
    CHECK_INT(grown_stat(&g, "t").hot_rows, 9);
    grown_train(&g, 2);
    CHECK_INT(grown_stat(&g, "t").hot_rows, 2);
    CHECK_INT(grown_stat(&g, "t").rows, 9);
    CHECK_OK(fleet_save_persistables(g.f, test_path("saved")));
    CHECK_OK(fleet_load_model(g.f, test_path("saved")));
    CHECK_INT(grown_stat(&g, "t").hot_rows, 0);
    grown_close(&g);
}
