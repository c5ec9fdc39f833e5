/* cold_table_test.c - a table of ten times its cap beside one that has all rows
 * in memory: the same rows, whatever is done and whatever the disk does. */
#define SUITE cold_table
#include "cold_kit.h"
#include "disk_kit.h"
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/table.h"

enum { DIM = 8, STATES = 1, WIDE = DIM * (1 + STATES), MOST_KEYS = 1000 };

/* Both tables. */
typedef struct pair {
    fl_rows *cold, *warm;
    uint64_t luck;
    uint64_t version;
} pair;

static fl_filler filler;

static void open_pair(pair *p)
{
    *p = (pair){.luck = 1};
    filler =
        fl_filler_make(&(fleet_initializer){FLEET_INIT_UNIFORM, -1.0f, 1.0f},
                       DIM, DIM, 7, "t");
    CHECK_OK(cold_kit_make("t", DIM, 0, &filler, &p->cold));
    CHECK_OK(fl_table_make("t", DIM, 0, &filler, &p->warm));
    CHECK_OK(p->cold->methods->set_state(p->cold, STATES, 0, 0.5f));
    CHECK_OK(p->warm->methods->set_state(p->warm, STATES, 0, 0.5f));
}

static void close_pair(pair *p)
{
    p->cold->methods->destroy(p->cold);
    p->warm->methods->destroy(p->warm);
    cold_kit_disk(&(cold_kit_faults){0});
}

static uint64_t draw(pair *p)
{
    return p->luck = fl_mix(p->luck + 0x9e3779b97f4a7c15u);
}

/* Of n keys; skewed: the n-th one as 1 / n, about. */
static uint64_t draw_key(pair *p, int64_t n, bool skewed)
{
    double u = (double)(draw(p) >> 11) / 9007199254740992.0;

    return (uint64_t)(skewed ? pow((double)n, u) : u * (double)n);
}

static void change(float *const *row, int64_t n, uint64_t version)
{
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < WIDE; j++)
            row[i][j] = row[i][j] * 0.5f + (float)(version % 97);
        fl_row_of(row[i])->changed_at = version;
        fl_row_of(row[i])->step++;
    }
}

static void update_warm(pair *p, const uint64_t *key, int64_t n)
{
    float *row[MOST_KEYS];

    CHECK_OK(p->warm->methods->make(p->warm, key, n, row));
    change(row, n, p->version);
}

/* As an update does it; on failure neither table has changed. */
static fleet_status update(pair *p, const uint64_t *key, int64_t n)
{
    float *row[MOST_KEYS];
    fl_wanted_rows w = {0};
    fleet_status status = fl_rows_bring(&w, p->cold, key, n);

    if (status == FLEET_OK) {
        p->version++;
        CHECK_OK(p->cold->methods->make(p->cold, key, n, row));
        change(row, n, p->version);
        update_warm(p, key, n);
    }
    fl_wanted_rows_done(&w);
    return status;
}

static fleet_status update_some(pair *p, int64_t keys, int64_t n, bool skewed)
{
    uint64_t key[MOST_KEYS];

    for (int64_t i = 0; i < n; i++)
        key[i] = draw_key(p, keys, skewed);
    return update(p, key, n);
}

/* --- the same rows -------------------------------------------------------- */

typedef struct seen {
    uint64_t hash;
    int64_t n;
    uint64_t last;
    int bucket;
} seen;

static fleet_status see(void *arg, int bucket, uint64_t key, const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    seen *s = arg;

    CHECK(bucket > s->bucket || key > s->last || s->n == 0);
    s->bucket = bucket;
    s->last = key;
    s->n++;
    s->hash = fl_hash(row, WIDE * sizeof *row,
                      fl_mix(s->hash ^ key) ^ fl_mix(head->changed_at) ^
                          fl_mix(~(uint64_t)head->step));
    return FLEET_OK;
}

static seen see_all(const fl_rows *r, uint64_t since)
{
    seen s = {0};

    if (since)
        CHECK_OK(r->methods->each_changed(r, since, see, &s));
    else
        CHECK_OK(r->methods->each(r, see, &s));
    return s;
}

static void check_same(const pair *p)
{
    uint64_t since[] = {0, 1, p->version / 2 + 1, p->version};

    CHECK_INT(p->cold->methods->count(p->cold),
              p->warm->methods->count(p->warm));
    for (int i = 0; i < 4; i++) {
        seen got = see_all(p->cold, since[i]);
        seen want = see_all(p->warm, since[i]);

        CHECK_INT(got.n, want.n);
        CHECK(got.hash == want.hash);
    }
}

/* --- ten times the cap ---------------------------------------------------- */

static void check_training(bool skewed)
{
    enum { KEYS = 90000, STEPS = 400, BATCH = 500 };
    fl_rows_stat stat;
    fl_cold_counts c;
    pair p;

    open_pair(&p);
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(update_some(&p, KEYS, BATCH, skewed));
        if (step % 50 == 0) {
            fl_cold_count(p.cold, &c);
            CHECK(c.memory_bytes <= cold_kit_cap.bytes);
        }
    }
    fl_cold_count(p.cold, &c);
    CHECK(c.memory_bytes <= cold_kit_cap.bytes);
    CHECK(c.evicted > 10000 && c.misses > 5000 && c.hits > 5000);
    CHECK_OK(p.cold->methods->stat(p.cold, &stat));
    CHECK_INT(stat.rows, p.warm->methods->count(p.warm));
    CHECK_INT(stat.cold_rows, c.cold);
    CHECK_INT((int64_t)stat.changed_at, (int64_t)p.version);
    CHECK((int64_t)(stat.row_bytes + stat.index_bytes + stat.free_bytes) <=
          cold_kit_cap.bytes);
    CHECK(stat.cold_rows * 10 > stat.rows * 7);
    check_same(&p);
    close_pair(&p);
}

TEST(rows_come_back_as_they_went)
{
    check_training(false);
}

TEST(rows_that_are_wanted_often_stay)
{
    check_training(true);
}

/* Reads that find nothing in memory are asked for together. */
TEST(rows_come_from_a_disk_that_has_nothing_in_memory)
{
    pair p;

    cold_kit_disk(&(cold_kit_faults){.nothing_now = true});
    open_pair(&p);
    for (int step = 0; step < 100; step++)
        CHECK_OK(update_some(&p, 30000, 500, false));
    check_same(&p);
    close_pair(&p);
}

/* How many rows have changed since, and how many reads it takes. */
static int64_t count_changed(const pair *p, uint64_t since, int *reads)
{
    enum { MANY = 1 << 30 };
    int64_t n = 0;

    cold_kit_disk(&(cold_kit_faults){.flip = MANY});
    CHECK_OK(fl_rows_count_changed(p->cold, since, &n));
    *reads = MANY - cold_kit_reads_left();
    cold_kit_disk(&(cold_kit_faults){0});
    return n;
}

/* Pages whose rows have not changed since are not read. */
TEST(rows_that_have_changed_are_counted_without_reading_all)
{
    int all, some;
    pair p;

    open_pair(&p);
    for (int step = 0; step < 100; step++)
        CHECK_OK(update_some(&p, 30000, 500, false));
    CHECK_INT(count_changed(&p, 0, &all), p.warm->methods->count(p.warm));
    CHECK_INT(count_changed(&p, p.version - 20, &some),
              see_all(p.warm, p.version - 20).n);
    /* A third or so: which rows share a page differs from run to run. */
    CHECK(all > 10000 && some > 0 && some * 2 < all);
    check_same(&p);
    close_pair(&p);
}

/* The hot rows of a Zipf distribution are found in memory. */
TEST(the_clock_keeps_hot_rows)
{
    fl_cold_counts uniform, skewed;
    pair p;

    for (int i = 0; i < 2; i++) {
        open_pair(&p);
        for (int step = 0; step < 200; step++)
            CHECK_OK(update_some(&p, 60000, 300, i == 1));
        fl_cold_count(p.cold, i ? &skewed : &uniform);
        close_pair(&p);
    }
    CHECK(skewed.hits > 5 * skewed.misses);
    CHECK(skewed.misses * 4 < uniform.misses);
}

/* A page whose rows come back is filled again: the file does not grow with what
 * goes through it. */
TEST(holes_in_the_file_are_filled)
{
    enum { KEYS = 20000 };
    fl_cold_counts c;
    pair p;

    open_pair(&p);
    for (int step = 0; step < 1500; step++)
        CHECK_OK(update_some(&p, KEYS, 500, false));
    fl_cold_count(p.cold, &c);
    CHECK(c.evicted > 10 * KEYS);
    /* twice its rows, and 64 pages for each part */
    CHECK(c.file_bytes <
          (int64_t)KEYS * (32 + WIDE * 4) * 2 + 8 * 64 * 4096 * 2);
    check_same(&p);
    close_pair(&p);
}

/* --- the contract --------------------------------------------------------- */

TEST(a_row_that_was_not_waited_for_is_an_error)
{
    uint64_t key[2] = {5, 6};
    fl_wanted_rows w = {0};
    float *row[2];
    pair p;

    open_pair(&p);
    CHECK_FAILS(p.cold->methods->find(p.cold, key, 1, row), FLEET_ESTATE,
                "row 5 was not waited for");
    CHECK_OK(fl_rows_bring(&w, p.cold, key, 1));
    CHECK_FAILS(p.cold->methods->make(p.cold, key, 2, row), FLEET_ESTATE,
                "row 6 was not waited for");
    CHECK_OK(p.cold->methods->find(p.cold, key, 1, row));
    CHECK(row[0] == NULL || p.cold->methods->count(p.cold) == 1);
    fl_wanted_rows_done(&w);
    CHECK_FAILS(p.cold->methods->find(p.cold, key, 1, row), FLEET_ESTATE,
                "was not waited for");
    close_pair(&p);
}

TEST(an_unknown_row_is_made_by_make_alone)
{
    uint64_t key[2] = {1u << 30, 1u << 30};
    fl_wanted_rows w = {0};
    float *row[2];
    pair p;

    open_pair(&p);
    for (int step = 0; step < 50; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    CHECK_OK(fl_rows_bring(&w, p.cold, key, 2));
    CHECK_OK(p.cold->methods->find(p.cold, key, 2, row));
    CHECK(row[0] == NULL && row[1] == NULL);
    fl_wanted_rows_done(&w);
    check_same(&p);

    CHECK_OK(fl_rows_bring(&w, p.cold, key, 2));
    CHECK_OK(p.cold->methods->make(p.cold, key, 2, row));
    CHECK(row[0] != NULL && row[0] == row[1]);
    fl_wanted_rows_done(&w);
    CHECK_OK(p.warm->methods->make(p.warm, key, 2, row));
    check_same(&p);
    close_pair(&p);
}

/* A row that two tokens have stays for the second one, at its place. */
TEST(wanted_rows_stay_where_they_are)
{
    uint64_t key[100];
    float *row[100], *again[100];
    fl_wanted_rows a = {0}, b = {0};
    uint64_t epoch;
    pair p;

    open_pair(&p);
    for (int i = 0; i < 100; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(update(&p, key, 100));
    CHECK_OK(fl_rows_bring(&a, p.cold, key, 100));
    CHECK_OK(fl_rows_bring(&b, p.cold, key, 100));
    CHECK_OK(p.cold->methods->find(p.cold, key, 100, row));
    fl_wanted_rows_done(&a);
    epoch = fl_rows_epoch(p.cold);
    for (int step = 0; step < 100; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    CHECK(fl_rows_epoch(p.cold) > epoch);
    CHECK_OK(p.cold->methods->find(p.cold, key, 100, again));
    CHECK(memcmp(row, again, sizeof row) == 0);
    fl_wanted_rows_done(&b);
    check_same(&p);
    close_pair(&p);
}

TEST(rows_in_use_that_do_not_fit_are_an_error_by_name)
{
    enum { N = 12000 };
    uint64_t *key = malloc(N * sizeof *key);
    fl_wanted_rows w = {0};
    pair p;

    open_pair(&p);
    for (int i = 0; i < N; i++)
        key[i] = (uint64_t)i;
    CHECK_FAILS(fl_rows_bring(&w, p.cold, key, N), FLEET_ENOMEM,
                "table \"t\": the rows in use at once do not fit into its "
                "memory_cap_bytes, 1048576");
    fl_wanted_rows_done(&w);
    for (int step = 0; step < 50; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    check_same(&p);
    close_pair(&p);
    free(key);
}

/* The work is done when the n-th look comes. */
TEST(rows_come_by_hand_at_the_nth_look)
{
    uint64_t token, key[200];
    int looks = 0;
    bool ready = false;
    pair p;

    cold_kit_cap.by_hand = 7;
    open_pair(&p);
    for (int step = 0; step < 60; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    for (int i = 0; i < 200; i++)
        key[i] = draw_key(&p, 20000, false);
    CHECK_OK(p.cold->methods->want(p.cold, key, 200, &token));
    for (; !ready; looks++)
        CHECK_OK(p.cold->methods->is_ready(p.cold, token, &ready));
    CHECK(looks > 1 && looks <= 14);
    p.cold->methods->release(p.cold, token);
    check_same(&p);
    close_pair(&p);
}

/* --- erase, clear, states ------------------------------------------------- */

TEST(rows_are_erased_wherever_they_are)
{
    enum { KEYS = 20000 };
    uint64_t key[MOST_KEYS];
    int64_t got, want, all = 0;
    pair p;

    open_pair(&p);
    for (int round = 0; round < 5; round++) {
        for (int step = 0; step < 60; step++)
            CHECK_OK(update_some(&p, KEYS, 500, false));
        for (int i = 0; i < MOST_KEYS; i++)
            key[i] = draw_key(&p, 2 * KEYS, false);
        CHECK_OK(p.cold->methods->erase(p.cold, key, MOST_KEYS, &got));
        CHECK_OK(p.warm->methods->erase(p.warm, key, MOST_KEYS, &want));
        CHECK_INT(got, want);
        all += got;
        check_same(&p);
    }
    CHECK(all > 1000);
    close_pair(&p);
}

TEST(tokens_outlive_erase_and_clear)
{
    uint64_t key[4] = {1, 2, 3, 4};
    fl_wanted_rows w = {0}, v = {0};
    int64_t erased;
    float *row[4];
    pair p;

    open_pair(&p);
    for (int step = 0; step < 60; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    CHECK_OK(update(&p, key, 4));
    CHECK_OK(fl_rows_bring(&w, p.cold, key, 4));
    CHECK_OK(p.cold->methods->erase(p.cold, key, 2, &erased));
    CHECK_INT(erased, 2);
    CHECK_OK(p.warm->methods->erase(p.warm, key, 2, &erased));
    check_same(&p);
    p.cold->methods->clear(p.cold);
    p.warm->methods->clear(p.warm);
    check_same(&p);
    CHECK_OK(update(&p, key, 3)); /* made anew beside the old places */
    check_same(&p);
    fl_wanted_rows_done(&w);
    CHECK_OK(fl_rows_bring(&v, p.cold, key, 4));
    CHECK_OK(p.cold->methods->find(p.cold, key, 4, row));
    CHECK(row[0] && row[1] && row[2] && !row[3]);
    fl_wanted_rows_done(&v);
    for (int step = 0; step < 60; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    check_same(&p);
    close_pair(&p);
}

TEST(states_are_set_before_there_are_rows)
{
    uint64_t key = 3;
    pair p;

    open_pair(&p);
    CHECK_OK(update(&p, &key, 1));
    CHECK_FAILS(p.cold->methods->set_state(p.cold, 2, 1, 0), FLEET_ESTATE,
                "has rows without this optimizer's state");
    p.cold->methods->clear(p.cold);
    CHECK_OK(p.cold->methods->set_state(p.cold, 2, 1, 0));
    CHECK_INT(p.cold->n_state, 2);
    close_pair(&p);
}

/* --- disks that fail ------------------------------------------------------ */

/* Rows that cannot be written stay in memory; with room again all goes on. */
TEST(a_full_disk_loses_nothing)
{
    fleet_status status = FLEET_OK;
    int steps = 0;
    pair p;

    open_pair(&p);
    cold_kit_disk(&(cold_kit_faults){.full = true, .room = 200000});
    while (status == FLEET_OK && steps++ < 400)
        status = update_some(&p, 90000, 500, false);
    CHECK_INT(status, FLEET_EIO);
    CHECK_CONTAINS(fleet_last_error(), "table \"t\": cannot write rows into a "
                                       "file in \"");
    CHECK_CONTAINS(fleet_last_error(), "No space left on device");
    check_same(&p);
    CHECK_STATUS(update_some(&p, 90000, 500, false), FLEET_EIO);
    check_same(&p);
    cold_kit_disk(&(cold_kit_faults){0});
    for (steps = 0; steps < 50; steps++)
        CHECK_OK(update_some(&p, 90000, 500, false));
    check_same(&p);
    close_pair(&p);
}

TEST(a_flipped_bit_is_found_by_name)
{
    fleet_status status = FLEET_OK;
    pair p;

    open_pair(&p);
    for (int step = 0; step < 100; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    cold_kit_disk(&(cold_kit_faults){.flip = 20});
    for (int step = 0; step < 10 && status == FLEET_OK; step++)
        status = update_some(&p, 20000, 500, false);
    CHECK_INT(status, FLEET_ECORRUPT);
    CHECK_CONTAINS(fleet_last_error(),
                   "table \"t\": a row came back damaged from its file in");
    /* it was damaged on its way: the file has it */
    check_same(&p);
    CHECK_OK(update_some(&p, 20000, 500, false));
    check_same(&p);

    cold_kit_disk(&(cold_kit_faults){.flip = 100, .stays = true});
    CHECK_STATUS(p.cold->methods->each(p.cold, see, &(seen){0}),
                 FLEET_ECORRUPT);
    close_pair(&p);
}

/* --- the file ------------------------------------------------------------- */

static void check_nameless(bool no_tmpfile)
{
    cold_kit_faults f = {.no_tmpfile = no_tmpfile};
    int before;
    struct stat st;
    pair p;

    cold_kit_cap.folder = test_folder();
    before = count_entries(cold_kit_cap.folder);
    cold_kit_disk(&f);
    open_pair(&p);
    for (int step = 0; step < 60; step++)
        CHECK_OK(update_some(&p, 20000, 500, false));
    CHECK_INT(count_entries(cold_kit_cap.folder), before);
    for (int fd = 3; fd < 256; fd++)
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
            CHECK_INT(st.st_mode & 0777, 0600);
    check_same(&p);
    close_pair(&p);
}

TEST(the_file_has_no_name)
{
    check_nameless(false);
    check_nameless(true);
}

/* A process that is killed leaves nothing. */
TEST(nothing_is_left_of_a_process_that_was_killed)
{
    const char *folder = test_folder();
    int before = count_entries(folder), ready[2], status;
    char byte;
    pid_t child;

    CHECK(pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        pair p;

        cold_kit_cap.folder = folder;
        open_pair(&p);
        for (int step = 0; step < 60; step++)
            CHECK_OK(update_some(&p, 20000, 500, false));
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK_INT(count_entries(folder), before);
    close(ready[0]);
    close(ready[1]);
}

TEST(a_folder_that_is_not_there_is_an_error_by_name)
{
    fl_rows *r;

    cold_kit_cap.folder = test_path("missing");
    CHECK_FAILS(cold_kit_make("t", DIM, 0, &filler, &r), FLEET_EIO,
                "table \"t\": cannot make a file for its rows in cold_folder");
}

/* --- memory that runs out ------------------------------------------------- */

static fleet_status try_all(int64_t fail_at)
{
    uint64_t key[200];
    fleet_status status;
    fl_rows *r = NULL;

    fl_memory_fail_at(fail_at, true);
    status = cold_kit_make("t", DIM, 0, &filler, &r);
    if (status == FLEET_OK)
        status = r->methods->set_state(r, STATES, 0, 0);
    for (int step = 0; step < 120 && status == FLEET_OK; step++) {
        fl_wanted_rows w = {0};
        float *row[200];

        for (int i = 0; i < 200; i++)
            key[i] = fl_mix((uint64_t)(step * 131 + i)) % 12000;
        status = fl_rows_bring(&w, r, key, 200);
        if (status == FLEET_OK)
            status = r->methods->make(r, key, 200, row);
        fl_wanted_rows_done(&w);
    }
    fl_memory_fail_at(0, false);
    if (r) {
        int64_t n = r->methods->count(r);

        CHECK_INT(see_all(r, 0).n, n);
        r->methods->destroy(r);
    }
    return status;
}

TEST(without_memory_there_is_an_error_and_no_row_is_lost)
{
    int64_t n = 1;

    cold_kit_cap.by_hand = 1; /* so that the n-th one is the same each time */
    filler = fl_filler_make(&(fleet_initializer){FLEET_INIT_CONSTANT, 0, 0},
                            DIM, DIM, 7, "t");
    while (try_all(n) != FLEET_OK) {
        CHECK(n < 100000);
        n += n < 60 ? 1 : n / 20;
    }
    CHECK(n > 60);
}
