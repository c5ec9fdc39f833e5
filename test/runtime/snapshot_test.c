/* snapshot_test.c - a store at one moment, read while it goes on changing:
 * every row has all its values of one version. */
#define SUITE snapshot
#include "model_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "fleet/job/handle.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/table.h"

enum { STATES = 2 }; /* Adam's */

/* A store with one table, as a lane has it. */
typedef struct stage {
    scene s;
    fl_store *store;
    fl_rows *rows;
    uint64_t *key;
    int64_t n; /* that the table has */
} stage;

static void stage_open(stage *t, int64_t n)
{
    scene_open(&t->s, NULL, "adam");
    t->s.e = fleet_executor_create(t->s.p, NULL);
    t->store = t->s.f->store;
    t->rows = t->store->tables.entry[0].value;
    CHECK_INT(t->rows->n_state, STATES);
    t->n = n;
    t->key = malloc((size_t)(2 * n) * sizeof *t->key);
    for (int64_t i = 0; i < 2 * n; i++)
        t->key[i] = fl_mix((uint64_t)i + 1);
}

static void stage_close(stage *t)
{
    fl_snapshot_end(t->store);
    free(t->key);
    scene_close(&t->s);
}

/* Rows [first, first + n) get the version into all that they have; `tells`: as
 * a lane does it. */
static void change(stage *t, int64_t first, int64_t n, uint32_t version,
                   bool tells)
{
    int64_t width = t->rows->dim * (1 + STATES);

    for (int64_t i = first; i < first + n; i += 1000) {
        int64_t m = first + n - i < 1000 ? first + n - i : 1000;
        float *row[1000];

        if (tells && t->store->snapshot)
            CHECK_OK(
                fl_snapshot_change(t->store->snapshot, t->rows, t->key + i, m));
        CHECK_OK(t->rows->methods->make(t->rows, t->key + i, m, row));
        for (int64_t j = 0; j < m; j++) {
            fl_row_of(row[j])->step = version;
            for (int64_t k = 0; k < width; k++)
                row[j][k] = (float)version;
        }
    }
}

static void begin(stage *t, int64_t version)
{
    CHECK_OK(fl_snapshot_begin(t->store, version, (uint64_t[]){3, 5}, 2));
}

/* What a snapshot has: that many rows, in order, all of one version. */
typedef struct reading {
    const stage *t;
    uint32_t version;
    int64_t n;
    int bucket;
    uint64_t key;
} reading;

static fleet_status read_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    reading *r = arg;

    CHECK_INT(head->step, r->version);
    for (int64_t k = 0; k < r->t->rows->dim * (1 + STATES); k++)
        CHECK(row[k] == (float)r->version);
    CHECK_INT(bucket, fl_bucket_of(fl_mix(key)));
    CHECK(bucket > r->bucket || (bucket == r->bucket && key > r->key));
    r->bucket = bucket;
    r->key = key;
    r->n++;
    return FLEET_OK;
}

static void read_all(const stage *t, uint32_t version, int64_t n)
{
    reading r = {.t = t, .version = version, .bucket = -1};

    CHECK_INT(fl_snapshot_count(t->store->snapshot, t->rows), n);
    CHECK_OK(fl_snapshot_each(t->store->snapshot, t->rows, read_row, &r));
    CHECK_INT(r.n, n);
}

TEST(a_snapshot_has_the_rows_that_the_table_had)
{
    stage t;

    stage_open(&t, 20000);
    change(&t, 0, t.n, 1, true);
    begin(&t, 1);
    change(&t, 0, t.n / 2, 2, true);
    change(&t, t.n, t.n, 2, true); /* new ones */
    change(&t, t.n, t.n, 3, true); /* which are there by now */
    change(&t, 0, t.n / 4, 3, true);
    read_all(&t, 1, t.n);
    fl_snapshot_end(t.store);
    change(&t, 0, 2 * t.n, 4, true);
    begin(&t, 4);
    read_all(&t, 4, 2 * t.n);
    stage_close(&t);
}

TEST(an_empty_table_has_no_rows_in_its_snapshot)
{
    stage t;

    stage_open(&t, 100);
    begin(&t, 0);
    change(&t, 0, t.n, 1, true);
    read_all(&t, 0, 0);
    stage_close(&t);
}

TEST(it_has_the_lanes_numbers_and_dense_parameters)
{
    const uint64_t *done;
    fl_flat *g;
    stage t;

    stage_open(&t, 10);
    g = t.store->flats;
    g->weight[7] = 1;
    g->state[1][9] = 2;
    t.store->updates = 11;
    begin(&t, 12);
    g->weight[7] = g->state[1][9] = 30;
    t.store->updates = 13;
    CHECK_INT(fl_snapshot_version(t.store->snapshot), 12);
    CHECK_INT(fl_snapshot_updates(t.store->snapshot), 11);
    CHECK_INT(fl_snapshot_streams(t.store->snapshot, &done), 2);
    CHECK(done[0] == 3 && done[1] == 5);
    CHECK(fl_snapshot_floats(t.store->snapshot, g, -1)[7] == 1);
    CHECK(fl_snapshot_floats(t.store->snapshot, g, 1)[9] == 2);
    stage_close(&t);
}

/* --- beside a thread that reads ------------------------------------------- */

static void *read_beside(void *arg)
{
    const stage *t = arg;

    read_all(t, (uint32_t)fl_snapshot_version(t->store->snapshot), t->n);
    return NULL;
}

TEST_LIMIT(it_is_read_while_rows_change, 120)
{
    stage t;
    uint32_t version = 1;

    stage_open(&t, 60000 / TEST_SLOWNESS + 2000);
    change(&t, 0, t.n, version, true);
    for (int round = 0; round < 5; round++) {
        pthread_t reader;

        begin(&t, version);
        CHECK_INT(pthread_create(&reader, NULL, read_beside, &t), 0);
        for (int i = 0; i < 3; i++)
            change(&t, 0, t.n, ++version, true);
        CHECK_INT(pthread_join(reader, NULL), 0);
        CHECK_INT(fl_snapshot_bytes(t.store->snapshot), 0);
        fl_snapshot_end(t.store);
    }
    stage_close(&t);
}

/* --- memory --------------------------------------------------------------- */

static void erase(stage *t, int64_t first, int64_t n)
{
    int64_t erased;

    if (t->store->snapshot)
        CHECK_OK(
            fl_snapshot_change(t->store->snapshot, t->rows, t->key + first, n));
    CHECK_OK(t->rows->methods->erase(t->rows, t->key + first, n, &erased));
    CHECK_INT(erased, n);
}

/* Rows that had gone before are not in it, though new rows have their places by
 * then; rows that go later are. */
TEST(it_has_the_rows_that_were_there_whatever_is_erased)
{
    stage t;

    stage_open(&t, 8000);
    change(&t, 0, t.n, 1, true);
    erase(&t, 0, 1000);
    begin(&t, 1);
    change(&t, t.n, 700, 2, true);
    erase(&t, 3000, 500);
    change(&t, t.n + 700, 900, 3, true);
    read_all(&t, 1, t.n - 1000);
    stage_close(&t);
}

/* A row is copied once, and given back when it was read. */
TEST(copies_are_counted_and_given_back)
{
    int64_t bytes;
    stage t;

    stage_open(&t, 8000);
    change(&t, 0, t.n, 1, true);
    begin(&t, 1);
    CHECK_INT(fl_snapshot_bytes(t.store->snapshot), 0);
    change(&t, 0, 1000, 2, true);
    bytes = fl_snapshot_bytes(t.store->snapshot);
    CHECK(bytes >= 1000 * t.rows->dim * (1 + STATES) * (int64_t)sizeof(float));
    change(&t, 0, 1000, 3, true);
    CHECK_INT(fl_snapshot_bytes(t.store->snapshot), bytes);
    read_all(&t, 1, t.n);
    CHECK_INT(fl_snapshot_bytes(t.store->snapshot), 0);
    change(&t, 0, t.n, 4, true); /* nothing is copied any more */
    CHECK_INT(fl_snapshot_bytes(t.store->snapshot), 0);
    stage_close(&t);
}

/* Beyond a share of the table a call waits for the reader, a while. */
TEST(a_reader_that_stands_still_slows_changes_down_and_does_not_stop_them)
{
    int64_t begun_ms;
    stage t;

    stage_open(&t, 8000);
    change(&t, 0, t.n, 1, true);
    begin(&t, 1);
    change(&t, 0, t.n / FL_SNAPSHOT_SHARE, 2, true);
    begun_ms = fl_now_ms();
    change(&t, t.n / FL_SNAPSHOT_SHARE, 3000, 2, true); /* three calls */
    CHECK(fl_now_ms() - begun_ms >= 2 * FL_SNAPSHOT_WAIT_MS);
    change(&t, 0, t.n, 3, true);
    read_all(&t, 1, t.n);
    stage_close(&t);
}
