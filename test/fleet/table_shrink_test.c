/* table_shrink_test.c - rows that go, in one process: those that nothing has
 * changed for long, and the oldest ones of a table that is full. */
#define SUITE table_shrink
#include "grown_kit.h"
#include "model_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/graph/program.h"
#include "runtime/life/life.h"
#include "runtime/store/snapshot.h"

static grown_how how_of(const fleet_table_options *life)
{
    return (grown_how){
        .optimizer = "sgd", .life = *life, .options = {.seed = 7}};
}

static void open_life(grown *g, const fleet_table_options *life)
{
    grown_how how = how_of(life);

    grown_open(g, &how);
}

static bool has_row(const grown *g, uint64_t key)
{
    float row[GROWN_DIM];
    int found;

    CHECK_OK(fleet_table_get(g->f, "t", &key, 1, GROWN_DIM, row, NULL, &found));
    return found;
}

/* --- a time to live ------------------------------------------------------- */

static const fleet_table_options three = {.ttl_updates = 3};

TEST(rows_that_none_of_the_last_updates_has_changed_go)
{
    grown g, fresh;
    float x[GROWN_DIM], y[GROWN_DIM];

    open_life(&g, &three);
    open_life(&fresh, &three);
    grown_train(&g, 9);
    grown_train(&g, 5);
    grown_train(&g, 5);
    CHECK_OK(fleet_shrink(g.f, "t"));
    CHECK_INT(grown_rows(&g, "t"), 9); /* the last three have all of them */
    grown_train(&g, 5);
    CHECK_OK(fleet_shrink(g.f, "t"));
    CHECK_INT(grown_rows(&g, "t"), 5);
    CHECK(has_row(&g, 4) && !has_row(&g, 5));
    grown_row(&g, 5, x);
    grown_row(&fresh, 5, y);
    CHECK(memcmp(x, y, sizeof x) == 0);
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 5);
    grown_train(&g, 9);
    CHECK_INT(grown_rows(&g, "t"), 9);
    grown_close(&g);
    grown_close(&fresh);
}

TEST(keys_that_wait_for_too_long_go_with_them)
{
    const fleet_table_options life = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3},
        .ttl_updates = 2};
    grown g;

    open_life(&g, &life);
    grown_train(&g, 6);
    for (int i = 0; i < 3; i++)
        grown_train(&g, 2);
    CHECK_INT(grown_rows(&g, "t.waiting"), 4);
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t.waiting"), 0);
    CHECK_INT(grown_rows(&g, "t"), 2);
    grown_close(&g);
}

/* Where the save has no ages. */
TEST(a_load_without_ages_is_a_change_of_all_rows)
{
    const fleet_table_options none = {0};
    const char *path = test_path("saved");
    grown g, before;

    open_life(&before, &none);
    for (int i = 0; i < 6; i++)
        grown_train(&before, 4);
    CHECK_OK(fleet_save_persistables(before.f, path));
    grown_close(&before);
    open_life(&g, &three);
    CHECK_OK(fleet_load_model(g.f, path));
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 4);
    for (int i = 0; i < 2; i++)
        grown_train(&g, 1);
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 4);
    grown_train(&g, 1);
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 1);
    CHECK_OK(
        fleet_load_model_with(g.f, path, &(fleet_load_options){.restart = 1}));
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 4);
    grown_close(&g);
}

TEST(a_shrink_of_what_does_not_shrink_says_so)
{
    const fleet_table_options none = {0};
    grown g;

    open_life(&g, &none);
    grown_train(&g, 4);
    CHECK_OK(fleet_shrink(g.f, NULL));
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_FAILS(fleet_shrink(g.f, "t"), FLEET_EINVAL,
                "fleet_shrink: table \"t\" has no life.ttl_updates, no");
    CHECK_FAILS(fleet_shrink(g.f, "u"), FLEET_ENOENT,
                "there is no table \"u\"");
    CHECK_FAILS(fleet_shrink(NULL, NULL), FLEET_EINVAL, "NULL");
    grown_close(&g);
}

/* --- a table that is full ------------------------------------------------- */

enum { EACH = 8, MOST = EACH * FL_N_BUCKET };

static const fleet_table_options full = {.most_rows = MOST};

/* n keys of one bucket, growing. */
static void keys_of_a_bucket(int64_t *key, int n)
{
    int bucket = fl_bucket_of(fl_mix(0));

    for (int64_t k = 0, i = 0; i < n; k++)
        if (fl_bucket_of(fl_mix((uint64_t)k)) == bucket)
            key[i++] = k;
}

TEST(of_a_full_bucket_the_row_that_has_changed_longest_ago_goes)
{
    int64_t key[EACH + 2];
    grown g;

    keys_of_a_bucket(key, EACH + 2);
    open_life(&g, &full);
    for (int i = EACH - 1; i >= 0; i--) /* the last of them is the oldest */
        grown_train_ids(&g, &key[i], 1);
    CHECK_INT(grown_rows(&g, "t"), EACH);
    grown_train_ids(&g, &key[EACH - 1], 1); /* and no longer */
    grown_train_ids(&g, &key[EACH], 1);
    CHECK_INT(grown_rows(&g, "t"), EACH);
    CHECK(!has_row(&g, (uint64_t)key[EACH - 2]));
    CHECK(has_row(&g, (uint64_t)key[EACH]));
    grown_train_ids(&g, &key[EACH + 1], 1);
    CHECK(!has_row(&g, (uint64_t)key[EACH - 3]));
    CHECK(has_row(&g, (uint64_t)key[EACH - 1]));
    CHECK_INT(grown_rows(&g, "t"), EACH);
    grown_close(&g);
}

/* The oldest of all, and in the update that brings another key. */
TEST(a_row_does_not_go_in_an_update_that_changes_it)
{
    int64_t key[EACH + 1], both[2];
    grown g;

    keys_of_a_bucket(key, EACH + 1);
    open_life(&g, &full);
    for (int i = 0; i < EACH; i++)
        grown_train_ids(&g, &key[i], 1);
    both[0] = key[0];
    both[1] = key[EACH];
    grown_train_ids(&g, both, 2);
    CHECK(has_row(&g, (uint64_t)key[0]) && has_row(&g, (uint64_t)key[EACH]));
    CHECK(!has_row(&g, (uint64_t)key[1]));
    grown_close(&g);
}

TEST(of_more_new_keys_than_fit_the_lowest_become_rows)
{
    int64_t key[EACH + 3], turned[EACH + 3];
    grown g;

    keys_of_a_bucket(key, EACH + 3);
    for (int i = 0; i < EACH + 3; i++)
        turned[i] = key[EACH + 2 - i];
    open_life(&g, &full);
    grown_train_ids(&g, turned, EACH + 3);
    CHECK_INT(grown_rows(&g, "t"), EACH);
    for (int i = 0; i < EACH + 3; i++)
        CHECK(has_row(&g, (uint64_t)key[i]) == (i < EACH));
    grown_close(&g);
}

/* Keys that come once go through the table ten times over, some others stay in
 * use: these keep what they have learned. */
enum { NEW = 2048, HOT = 50, BATCHES = 10 * MOST / NEW };

static void train_churn(grown *g, int batch)
{
    static int64_t id[NEW + HOT];

    for (int i = 0; i < HOT; i++)
        id[i] = i;
    for (int i = 0; i < NEW; i++)
        id[HOT + i] = 1000 + (int64_t)batch * NEW + i;
    grown_train_ids(g, id, NEW + HOT);
}

static int64_t bytes_of(const grown *g, const char *table)
{
    fleet_table_statistics s = grown_stat(g, table);

    return s.row_bytes + s.index_bytes + s.free_bytes;
}

TEST(memory_is_bounded_whatever_comes_and_rows_in_use_stay)
{
    const fleet_table_options none = {0};
    grown g, plain;

    open_life(&g, &full);
    open_life(&plain, &none);
    for (int i = 0; i < BATCHES; i++) {
        train_churn(&g, i);
        CHECK(grown_rows(&g, "t") <= MOST);
        if (i * NEW < MOST)
            train_churn(&plain, i); /* as many as the other may have */
    }
    CHECK(grown_rows(&g, "t") > MOST * 6 / 8);
    CHECK(grown_rows(&plain, "t") >= MOST);
    CHECK(bytes_of(&g, "t") <= bytes_of(&plain, "t") * 105 / 100);
    for (int i = MOST / NEW; i < BATCHES; i++)
        train_churn(&plain, i);
    for (int64_t i = 0; i < HOT; i++) {
        float x[GROWN_DIM], y[GROWN_DIM];

        grown_row(&g, i, x);
        grown_row(&plain, i, y);
        CHECK(memcmp(x, y, sizeof x) == 0);
    }
    grown_close(&g);
    grown_close(&plain);
}

TEST(counts_of_keys_that_wait_are_bounded_too)
{
    const fleet_table_options life = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3},
        .most_rows = MOST};
    grown g;

    open_life(&g, &life);
    for (int i = 0; i < BATCHES; i++) {
        train_churn(&g, i);
        CHECK(grown_rows(&g, "t.waiting") <= MOST);
    }
    CHECK_INT(grown_rows(&g, "t"), HOT);
    CHECK(grown_rows(&g, "t.waiting") > MOST * 6 / 8);
    grown_close(&g);
}

/* Several threads find, make and let go at once. */
TEST(any_number_of_threads_lets_the_same_rows_go)
{
    uint64_t hash[2];

    for (int i = 0; i < 2; i++) {
        grown_how how = how_of(&full);
        grown g;

        how.threads = i ? 3 : 1;
        grown_open(&g, &how);
        for (int k = 0; k < 12; k++)
            train_churn(&g, k);
        hash[i] = grown_hash(&g);
        grown_close(&g);
    }
    CHECK(hash[0] == hash[1]);
}

/* --- a save beside training ----------------------------------------------- */

typedef struct seen {
    int64_t rows, zeros;
} seen;

static fleet_status see(void *arg, int bucket, uint64_t key, const float *row)
{
    seen *s = arg;

    (void)bucket;
    (void)key;
    s->rows++;
    s->zeros += row[0] == 0;
    return FLEET_OK;
}

TEST(a_snapshot_has_the_rows_that_go_meanwhile)
{
    int64_t key[EACH + 1];
    float *row[2] = {NULL}, *old;
    uint64_t both[2];
    fl_life_update u = {.key = both, .n = 2, .version = 100};
    seen before = {0}, after = {0};
    fl_store *s;
    grown g;

    keys_of_a_bucket(key, EACH + 1);
    open_life(&g, &full);
    grown_train_ids(&g, key, EACH);
    s = g.p->store;
    u.rows = fl_store_rows(s, "t");
    both[0] = (uint64_t)key[0];
    both[1] = (uint64_t)key[EACH];
    CHECK_OK(u.rows->methods->find(u.rows, both, 2, row));
    old = row[0];
    CHECK(old && !row[1]);
    CHECK_OK(fl_snapshot_begin(s, 2, NULL, 0));
    u.frozen = s->snapshot;
    CHECK_OK(fl_life_admit(&u, row));
    CHECK(row[0] == old && row[1]);
    memset(row[1], 0, GROWN_DIM * sizeof(float)); /* in a place that was free */
    CHECK_OK(fl_snapshot_each(s->snapshot, u.rows, see, &before));
    CHECK_INT(before.rows, EACH);
    CHECK_INT(before.zeros, 0);
    fl_snapshot_end(s);
    CHECK_OK(u.rows->methods->each(u.rows, see, &after));
    CHECK_INT(after.rows, EACH);
    CHECK_INT(after.zeros, 1);
    grown_close(&g);
}

/* --- loads that keep rows ------------------------------------------------- */

static fleet_status load_keeping(const grown *g, const char *path, bool restart)
{
    return fleet_load_model_with(
        g->f, path,
        &(fleet_load_options){.on_missing = FLEET_MISSING_KEEP,
                              .restart = restart});
}

static void train_last(grown *g, int64_t id, int updates)
{
    for (int i = 0; i < updates; i++)
        grown_train_ids(g, &id, 1);
}

/* The other model has done some 20 updates: the number of updates goes on, or
 * back. */
TEST(rows_that_a_load_keeps_are_as_old_as_before)
{
    scene other;
    const char *path = scene_saved(&other, "sgd");

    for (int i = 0; i < 4; i++) {
        const bool back = i % 2, restart = i / 2;
        grown g;

        open_life(&g, &three);
        grown_train(&g, 9);
        train_last(&g, 0, back ? 50 : 5);
        grown_train(&g, 5);
        CHECK_OK(load_keeping(&g, path, restart));
        CHECK_OK(fleet_shrink(g.f, "t"));
        CHECK_INT(grown_rows(&g, "t"), restart ? 9 : 5); /* of no update yet */
        train_last(&g, 0, 2);
        CHECK_OK(fleet_shrink(g.f, "t"));
        CHECK_INT(grown_rows(&g, "t"), restart ? 9 : 5);
        train_last(&g, 0, 1);
        CHECK_OK(fleet_shrink(g.f, "t"));
        CHECK_INT(grown_rows(&g, "t"), 1);
        grown_close(&g);
    }
    scene_close(&other);
}

TEST(a_full_table_that_a_load_keeps_lets_new_keys_in)
{
    int64_t key[EACH + 1];
    scene other;
    const char *path = scene_saved(&other, "sgd");
    grown g;

    keys_of_a_bucket(key, EACH + 1);
    open_life(&g, &full);
    train_last(&g, key[0], 50);
    grown_train_ids(&g, key, EACH);
    CHECK_OK(load_keeping(&g, path, true));
    CHECK(!has_row(&g, (uint64_t)key[EACH]));
    grown_train_ids(&g, &key[EACH], 1);
    CHECK(has_row(&g, (uint64_t)key[EACH]));
    grown_close(&g);
    scene_close(&other);
}

TEST(keys_that_wait_for_a_table_that_a_load_keeps_have_come_as_often)
{
    const fleet_table_options life = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};
    scene other;
    const char *path = scene_saved(&other, "sgd");
    grown g;

    open_life(&g, &life);
    train_last(&g, 4, 2);
    CHECK_OK(load_keeping(&g, path, false));
    CHECK_INT(grown_rows(&g, "t.waiting"), 1);
    train_last(&g, 4, 1);
    CHECK(has_row(&g, 4));
    grown_close(&g);
    scene_close(&other);
}

/* As a delta is loaded. */
TEST(rows_that_stay_beside_those_of_a_save_go_as_they_would_have)
{
    const char *path = test_path("two");
    grown g;

    open_life(&g, &three);
    grown_train(&g, 2);
    CHECK_OK(fleet_save_persistables(g.f, path));
    train_last(&g, 0, 50);
    grown_train(&g, 9);
    CHECK_OK(fleet_load_model_with(g.f, path,
                                   &(fleet_load_options){.keep_rows = 1}));
    CHECK_INT(grown_rows(&g, "t"), 9);
    train_last(&g, 0, 2);
    CHECK_OK(fleet_shrink(g.f, "t"));
    CHECK_INT(grown_rows(&g, "t"), 9);
    train_last(&g, 0, 2);
    CHECK_OK(fleet_shrink(g.f, "t"));
    CHECK_INT(grown_rows(&g, "t"), 1);
    grown_close(&g);
}
