/* cold_snapshot_test.c - a snapshot of a table with a cap is what it was,
 * while rows change, come, go and are erased. */
#define SUITE cold_snapshot
#include "cold_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/table.h"
#include "runtime/store/table_snapshot.h"

enum { DIM = 16, KEYS = 30000, MOST_KEYS = 256 };

static fl_rows *rows;
static uint64_t luck = 1;

static void open_table(void)
{
    static fl_filler filler;

    filler =
        fl_filler_make(&(fleet_initializer){FLEET_INIT_UNIFORM, -1.0f, 1.0f},
                       DIM, DIM, 7, "t");
    CHECK_OK(cold_kit_make("t", DIM, 0, &filler, &rows));
    CHECK_OK(rows->methods->set_state(rows, 1, 0, 0.5f));
}

static uint64_t draw(int64_t keys)
{
    luck = fl_mix(luck + 0x9e3779b97f4a7c15u);
    return luck % (uint64_t)keys;
}

/* As a lane does it. s NULL: nothing is saved. */
static void update(fl_rows_snapshot *s, int64_t keys, int64_t n)
{
    uint64_t key[MOST_KEYS];
    fl_wanted_rows w = {0};
    float *row[MOST_KEYS];

    for (int64_t i = 0; i < n; i++)
        key[i] = draw(keys);
    CHECK_OK(fl_rows_bring(&w, rows, key, n));
    if (s)
        CHECK_OK(s->methods->change(s, key, n));
    CHECK_OK(rows->methods->make(rows, key, n, row));
    for (int64_t i = 0; i < n; i++) {
        row[i][0] += 1;
        row[i][DIM] *= 0.5f;
        fl_row_of(row[i])->step++;
    }
    fl_wanted_rows_done(&w);
}

typedef struct seen {
    uint64_t hash;
    int64_t n;
} seen;

static fleet_status see(void *arg, int bucket, uint64_t key, const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    seen *s = arg;

    s->n++;
    s->hash = fl_hash(row, 2 * DIM * sizeof *row,
                      fl_mix(s->hash ^ key) ^ fl_mix(head->step) ^
                          fl_mix(~(uint64_t)bucket));
    return FLEET_OK;
}

static seen see_table(void)
{
    seen s = {0};

    CHECK_OK(rows->methods->each(rows, see, &s));
    return s;
}

static fl_rows_snapshot *begun;
static atomic_bool is_read;

static void *read_all(void *arg)
{
    CHECK_OK(begun->methods->each(begun, see, arg));
    atomic_store(&is_read, true);
    return NULL;
}

/* The reader is as fast as it is, or waits for the disk. */
static void check_snapshot(const cold_kit_faults *f)
{
    seen before, got = {0};
    pthread_t reader;
    int n = 0;

    cold_kit_disk(f);
    open_table();
    for (int i = 0; i < 250; i++)
        update(NULL, KEYS, MOST_KEYS);
    before = see_table();
    CHECK_OK(fl_table_snapshot(rows, &begun));
    CHECK_INT(begun->n, before.n);
    for (int i = 0; i < 20; i++) /* before anything is read */
        update(begun, 2 * KEYS, MOST_KEYS);
    CHECK(begun->bytes > 0);
    pthread_create(&reader, NULL, read_all, &got);
    for (; !atomic_load(&is_read) || n < 20; n++)
        update(begun, 2 * KEYS, MOST_KEYS);
    pthread_join(reader, NULL);
    CHECK_INT(got.n, before.n);
    CHECK(got.hash == before.hash);
    CHECK_INT(begun->bytes, 0);
    begun->methods->end(begun);
    CHECK(see_table().hash != before.hash);
    rows->methods->destroy(rows);
    cold_kit_disk(&(cold_kit_faults){0});
}

TEST(is_what_the_table_was)
{
    check_snapshot(&(cold_kit_faults){0});
}

TEST(is_what_the_table_was_on_a_slow_disk)
{
    check_snapshot(&(cold_kit_faults){.nothing_now = true});
}

TEST(has_rows_that_were_erased_since)
{
    uint64_t key[MOST_KEYS];
    seen before, got = {0};
    int64_t erased, all = 0;

    open_table();
    for (int i = 0; i < 200; i++)
        update(NULL, KEYS, MOST_KEYS);
    before = see_table();
    CHECK_OK(fl_table_snapshot(rows, &begun));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MOST_KEYS; i++)
            key[i] = draw(KEYS);
        CHECK_OK(begun->methods->change(begun, key, MOST_KEYS));
        CHECK_OK(rows->methods->erase(rows, key, MOST_KEYS, &erased));
        all += erased;
        update(begun, KEYS, MOST_KEYS);
    }
    CHECK(all > 500);
    CHECK_OK(begun->methods->each(begun, see, &got));
    CHECK_INT(got.n, before.n);
    CHECK(got.hash == before.hash);
    begun->methods->end(begun);
    rows->methods->destroy(rows);
}

TEST(a_row_that_is_damaged_fails_the_save)
{
    seen got = {0};

    open_table();
    for (int i = 0; i < 200; i++)
        update(NULL, KEYS, MOST_KEYS);
    CHECK_OK(fl_table_snapshot(rows, &begun));
    cold_kit_disk(&(cold_kit_faults){.flip = 1000});
    CHECK_FAILS(begun->methods->each(begun, see, &got), FLEET_ECORRUPT,
                "a row came back damaged");
    cold_kit_disk(&(cold_kit_faults){0});
    begun->methods->end(begun);
    update(NULL, KEYS, MOST_KEYS); /* the table goes on */
    rows->methods->destroy(rows);
}
