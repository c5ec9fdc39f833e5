/* cold_judge_test.c - what an accessor counts of rows, of which most are in a
 * file: decayed, erased and aged as where all rows are in memory. */
#define SUITE cold_judge
#include "cold_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "runtime/graph/table_options.h"
#include "runtime/life/accessor.h"
#include "runtime/life/evict.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/table.h"

enum { DIM = 8, STATES = 1, WIDE = DIM * (1 + STATES) + FL_N_ACCESSOR };
enum { MOST_KEYS = 500, KEYS = 30000 };

/* Both tables, of one life. */
typedef struct pair {
    fl_rows *cold, *warm;
    fl_life life;
    uint64_t luck;
} pair;

static fl_filler filler;

static void open_pair(pair *p, const fleet_accessor *a)
{
    *p = (pair){.luck = 3, .life.o.accessor = *a};
    p->life.o.accessor.kind = FLEET_CTR_ACCESSOR;
    fl_accessor_fill(&p->life.o.accessor);
    filler =
        fl_filler_make(&(fleet_initializer){FLEET_INIT_UNIFORM, -1.0f, 1.0f},
                       DIM, DIM, 7, "t");
    CHECK_OK(cold_kit_make("t", DIM, 0, &filler, &p->cold));
    CHECK_OK(fl_table_make("t", DIM, 0, &filler, &p->warm));
    p->cold->life = p->warm->life = &p->life;
    CHECK_OK(p->cold->methods->set_state(p->cold, STATES, FL_N_ACCESSOR, 0.5f));
    CHECK_OK(p->warm->methods->set_state(p->warm, STATES, FL_N_ACCESSOR, 0.5f));
    CHECK_OK(fl_live_hash_begin(p->cold));
    CHECK_OK(fl_live_hash_begin(p->warm));
}

static void check_hashes(const pair *p)
{
    CHECK_OK(fl_live_hash_check(p->cold));
    CHECK_OK(fl_live_hash_check(p->warm));
}

static void destroy(fl_rows *r)
{
    fl_free(r->live);
    r->live = NULL;
    r->methods->destroy(r);
}

static void close_pair(pair *p)
{
    destroy(p->cold);
    destroy(p->warm);
    for (int i = 0; i < FL_N_PART; i++)
        free(p->life.scratch[i].old);
    cold_kit_disk(&(cold_kit_faults){0});
}

/* An update in which each key was shown, and sometimes clicked. */
static void see(const fl_rows *r, float *const *row, const uint64_t *key,
                int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float *x = fl_accessor_of(r, row[i]);

        fl_live_hash_out(r, &key[i], &row[i], 1);
        row[i][0] += 1;
        x[FL_AT_SHOW] += (float)(key[i] % 5);
        x[FL_AT_CLICK] += (float)(key[i] % 3);
        x[FL_AT_DELTA_SCORE] += 1;
        x[FL_AT_SEEN] = 0;
        fl_live_hash_in(r, &key[i], &row[i], 1);
    }
}

static void update_keys(pair *p, const uint64_t *key, int64_t n)
{
    float *row[MOST_KEYS];
    fl_wanted_rows w = {0};

    CHECK_OK(fl_rows_bring(&w, p->cold, key, n));
    CHECK_OK(p->cold->methods->make(p->cold, key, n, row));
    see(p->cold, row, key, n);
    fl_wanted_rows_done(&w);
    CHECK_OK(p->warm->methods->make(p->warm, key, n, row));
    see(p->warm, row, key, n);
}

static void update(pair *p, int times)
{
    uint64_t key[MOST_KEYS];

    for (int i = 0; i < times; i++) {
        for (int k = 0; k < MOST_KEYS; k++) {
            p->luck = fl_mix(p->luck + 0x9e3779b97f4a7c15u);
            key[k] = p->luck % KEYS;
        }
        update_keys(p, key, MOST_KEYS);
    }
}

static fleet_status hash_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    uint64_t *hash = arg;

    (void)bucket;
    *hash = fl_hash(row, WIDE * sizeof *row, *hash ^ fl_mix(key));
    return FLEET_OK;
}

static uint64_t hash_of(const fl_rows *r)
{
    uint64_t hash = 0;

    CHECK_OK(r->methods->each(r, hash_row, &hash));
    return hash;
}

static int64_t cold_rows(const pair *p)
{
    fl_rows_stat stat;

    CHECK_OK(p->cold->methods->stat(p->cold, &stat));
    CHECK_INT(stat.rows, p->cold->methods->count(p->cold));
    return stat.cold_rows;
}

static void check_same(const pair *p)
{
    CHECK_INT(p->cold->methods->count(p->cold),
              p->warm->methods->count(p->warm));
    CHECK(hash_of(p->cold) == hash_of(p->warm));
}

/* Pointers to rows that went are looked for again. */
static void shrink(pair *p)
{
    uint64_t epoch = fl_rows_epoch(p->cold);
    int64_t rows = p->cold->methods->count(p->cold), cold = cold_rows(p);

    CHECK_OK(fl_life_shrink(p->cold, 1, 0));
    if (p->cold->methods->count(p->cold) < rows || cold_rows(p) > cold)
        CHECK(fl_rows_epoch(p->cold) > epoch);
    CHECK_OK(fl_life_shrink(p->warm, 1, 0));
    check_hashes(p);
}

static void end_day(pair *p)
{
    CHECK_OK(fl_life_saved(p->cold, FLEET_SAVE_DAY_END));
    CHECK_OK(fl_life_saved(p->warm, FLEET_SAVE_DAY_END));
    check_hashes(p);
}

/* Days of updates, shrinks and saves: in memory, in images and in the file. */
TEST(rows_in_a_file_decay_and_go_as_those_in_memory)
{
    const fleet_accessor a = {.show_click_decay_rate = 0.5f,
                              .delete_threshold = 0.3f,
                              .delete_after_unseen_days = 2};
    int64_t before, after;
    pair p;

    open_pair(&p, &a);
    for (int day = 0; day < 5; day++) {
        update(&p, 40);
        before = p.cold->methods->count(p.cold);
        shrink(&p);
        after = p.cold->methods->count(p.cold);
        CHECK(after > 0 && after < before);
        check_same(&p);
        CHECK_OK(fl_life_saved(p.cold, FLEET_SAVE_DELTA));
        CHECK_OK(fl_life_saved(p.warm, FLEET_SAVE_DELTA));
        end_day(&p);
        check_same(&p);
    }
    CHECK(cold_rows(&p) > after / 3);
    update(&p, 5);
    check_same(&p);
    close_pair(&p);
}

/* What is wanted comes back with what it was. */
TEST(rows_that_were_not_seen_for_days_go_into_the_file)
{
    const fleet_accessor a = {.delete_threshold = -1,
                              .ssd_unseenday_threshold = 1};
    uint64_t key[MOST_KEYS];
    int64_t all, in_file;
    pair p;

    for (uint64_t i = 0; i < MOST_KEYS; i++)
        key[i] = i;
    open_pair(&p, &a);
    update(&p, 6);
    all = p.cold->methods->count(p.cold);
    shrink(&p);
    in_file = cold_rows(&p);
    CHECK(in_file < all / 4);
    end_day(&p);
    shrink(&p); /* one day: no more than that */
    CHECK_INT(cold_rows(&p), in_file);
    end_day(&p);
    update_keys(&p, key, MOST_KEYS);
    shrink(&p);
    CHECK_INT(cold_rows(&p), p.cold->methods->count(p.cold) - MOST_KEYS);
    check_same(&p);
    update(&p, 6);
    check_same(&p);
    close_pair(&p);
}

/* Rows that find no room on the disk stay in memory, and nothing is lost. */
TEST(a_full_disk_keeps_unseen_rows_in_memory)
{
    const fleet_accessor a = {.delete_threshold = -1,
                              .ssd_unseenday_threshold = 0.5f};
    pair p;

    open_pair(&p, &a);
    update(&p, 6);
    end_day(&p);
    cold_kit_disk(&(cold_kit_faults){.full = true});
    shrink(&p);
    CHECK(cold_rows(&p) < p.cold->methods->count(p.cold));
    check_same(&p);
    cold_kit_disk(&(cold_kit_faults){0});
    shrink(&p);
    CHECK_INT(cold_rows(&p), p.cold->methods->count(p.cold));
    check_same(&p);
    close_pair(&p);
}

TEST(a_damaged_row_ends_a_shrink_by_name)
{
    const fleet_accessor a = {.delete_threshold = -1};
    pair p;

    open_pair(&p, &a);
    update(&p, 60);
    CHECK(cold_rows(&p) > 1000);
    cold_kit_disk(&(cold_kit_faults){.flip = 20});
    CHECK_FAILS(fl_life_shrink(p.cold, 1, 0), FLEET_ECORRUPT,
                "table \"t\": a row came back damaged from its file in");
    cold_kit_disk(&(cold_kit_faults){.full = true});
    CHECK_FAILS(fl_life_shrink(p.cold, 1, 0), FLEET_EIO,
                "table \"t\": cannot write rows back into a file in");
    close_pair(&p);
}
