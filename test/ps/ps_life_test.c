/* ps_life_test.c - which keys become rows, and which rows go, with servers: the
 * same as in one process, for any number of lanes. */
#define SUITE ps_life
#include "grown_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { LINES = 320, PASSES = 2 };

/* Ids of which some come up in most batches, and most once or twice. */
static const char *rare_ids(void)
{
    static char text[LINES * 8];
    char *at = text;
    uint64_t x = 1;

    for (int i = 0; i < LINES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(x >> 40) / (1 << 24);
        at += sprintf(at, "1 %d\n", (int)(150 * u * u * u));
    }
    return test_file("ids", text);
}

static ps_job job_of(grown_how *how, int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .passes = PASSES,
                    .open = grown_open_node,
                    .user = how,
                    .file = {rare_ids()}};
}

static const int shape[][2] = {{1, 1}, {2, 2}, {5, 1}};
enum { N_SHAPE = sizeof shape / sizeof *shape };

static void check_all_shapes(grown_how *how)
{
    ps_job j = job_of(how, 1, 1);
    uint64_t want = ps_alone(&j, 2);

    for (int i = 0; i < N_SHAPE; i++) {
        j = job_of(how, shape[i][0], shape[i][1]);
        CHECK(ps_hash(&j) == want);
    }
}

TEST(a_count_filter_lets_in_the_same_keys_for_any_number_of_servers)
{
    grown_how how = {
        .optimizer = "adagrad",
        .life.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};
    grown_how plain = {.optimizer = "adagrad"};
    ps_job j = job_of(&how, 1, 1), all = job_of(&plain, 1, 1);

    CHECK(ps_alone(&j, 2) != ps_alone(&all, 2));
    check_all_shapes(&how);
}

TEST(a_draw_lets_in_the_same_keys_for_any_number_of_servers)
{
    grown_how how = {
        .optimizer = "adam",
        .life = {.entry = {.kind = FLEET_PROBABILITY_ENTRY, .probability = 0.4},
                 .unknown_zeros = 1}};

    check_all_shapes(&how);
}

static const fleet_entry bloom = {.kind = FLEET_BLOOM_FILTER_ENTRY,
                                  .count = 3,
                                  .most_keys = 100,
                                  .false_positive_rate = 0.2};

/* One that is small, so that it lets in some keys early. */
TEST(a_bloom_filter_lets_in_the_same_keys_for_any_number_of_servers)
{
    grown_how how = {.optimizer = "adagrad", .life.entry = bloom};
    grown_how exact = {
        .optimizer = "adagrad",
        .life.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};
    ps_job j = job_of(&how, 1, 1), other = job_of(&exact, 1, 1);

    CHECK(ps_alone(&j, 2) != ps_alone(&other, 2));
    check_all_shapes(&how);
}

/* --- rows that go --------------------------------------------------------- */

TEST(of_full_buckets_the_same_rows_go_for_any_number_of_servers)
{
    grown_how how = {.optimizer = "adagrad", .life.most_rows = 1024};
    grown_how plain = {.optimizer = "adagrad"};
    ps_job j = job_of(&how, 1, 1), all = job_of(&plain, 1, 1);

    CHECK(ps_alone(&j, 2) != ps_alone(&all, 2));
    check_all_shapes(&how);
}

static fleet_status shrink_between(ps_node *n)
{
    fleet_table_statistics s;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, NULL));
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    n->number[0] = (double)s.rows;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, "t"));
    return ps_end(n);
}

static uint64_t shrink_alone(const ps_job *like, double *rows)
{
    ps_job copy = *like;
    ps_node n = {.job = &copy};
    fleet_table_statistics s;
    uint64_t hash;

    copy.how.merge = 2;
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(fleet_table_stat(n.s.f, "t", &s));
    *rows = (double)s.rows;
    CHECK_OK(fleet_shrink(n.s.f, NULL));
    CHECK_OK(fleet_table_stat(n.s.f, "t", &s));
    CHECK((double)s.rows < *rows && s.rows > 0);
    *rows = (double)s.rows;
    scene_train(&n.s, 1);
    CHECK_OK(fleet_shrink(n.s.f, "t"));
    hash = scene_hash(&n.s);
    scene_close(&n.s);
    return hash;
}

static grown_how all_lives(void)
{
    return (grown_how){
        .optimizer = "adam",
        .life = {.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 2},
                 .unknown_zeros = 1,
                 .accessor = {.kind = FLEET_CTR_ACCESSOR,
                              .click = "id",
                              .delete_threshold = 6},
                 .ttl_updates = 12,
                 .most_rows = 1024}};
}

TEST(a_shrink_lets_the_same_rows_go_for_any_number_of_servers)
{
    grown_how how = all_lives();
    ps_job j = job_of(&how, 1, 1);
    double rows;
    uint64_t want = shrink_alone(&j, &rows);

    for (int i = 0; i < N_SHAPE; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.work = shrink_between;
        CHECK(ps_hash(&j) == want);
        CHECK(ps_worker(&j, 0)->number[0] == rows);
        CHECK(ps_worker(&j, 1)->number[0] == rows);
    }
}

/* --- saves ---------------------------------------------------------------- */

static const char *saved_path;

/* As shrink_between(), from a save that all load in the middle. */
static fleet_status load_between(ps_node *n)
{
    fleet_table_statistics s;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    if (fleet_is_first_worker(n->s.f))
        FL_TRY(fleet_save_persistables(n->s.f, saved_path));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(fleet_load_model(n->s.f, saved_path));
    FL_TRY(fleet_shrink(n->s.f, NULL));
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    n->number[0] = (double)s.rows;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, "t"));
    return ps_end(n);
}

TEST(rows_of_a_save_are_as_old_as_they_were_for_any_number_of_servers)
{
    grown_how how = all_lives();
    ps_job j = job_of(&how, 1, 1);
    double rows;
    uint64_t want = shrink_alone(&j, &rows);

    saved_path = test_path("saved");
    for (int i = 0; i < 2; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.work = load_between;
        CHECK(ps_hash(&j) == want);
        CHECK(ps_worker(&j, 0)->number[0] == rows);
    }
}

/* --- loads that keep rows ------------------------------------------------- */

static const char *other_path; /* a save without the table */
static const fleet_load_options keep = {.on_missing = FLEET_MISSING_KEEP,
                                        .position = FLEET_POSITION_ANEW};

static fleet_status keep_between(ps_node *n)
{
    fleet_table_statistics s;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_load_model_with(n->s.f, other_path, &keep));
    FL_TRY(fleet_shrink(n->s.f, "t"));
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    n->number[0] = (double)s.rows;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, "t"));
    return ps_end(n);
}

/* load: else as without the load. */
static int64_t kept_alone(const ps_job *like, bool load, uint64_t *hash)
{
    ps_job copy = *like;
    ps_node n = {.job = &copy};
    fleet_table_statistics all, s;

    copy.how.merge = 2;
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(fleet_table_stat(n.s.f, "t", &all));
    if (load)
        CHECK_OK(fleet_load_model_with(n.s.f, other_path, &keep));
    CHECK_OK(fleet_shrink(n.s.f, "t"));
    CHECK_OK(fleet_table_stat(n.s.f, "t", &s));
    CHECK(s.rows > 0 && s.rows < all.rows);
    scene_train(&n.s, 1);
    CHECK_OK(fleet_shrink(n.s.f, "t"));
    *hash = scene_hash(&n.s);
    scene_close(&n.s);
    return s.rows;
}

TEST(rows_that_a_load_keeps_are_as_old_for_any_number_of_servers)
{
    grown_how how = {.optimizer = "adam",
                     .life = {.ttl_updates = 3, .most_rows = 1024}};
    ps_job j = job_of(&how, 1, 1);
    scene other;
    uint64_t want, unloaded;
    int64_t rows;

    other_path = scene_saved(&other, "sgd");
    scene_close(&other);
    rows = kept_alone(&j, true, &want);
    CHECK_INT(kept_alone(&j, false, &unloaded), rows);
    for (int i = 0; i < 2; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.work = keep_between;
        CHECK(ps_hash(&j) == want);
        CHECK_INT((int64_t)ps_worker(&j, 1)->number[0], rows);
    }
}

/* --- seconds, and bytes --------------------------------------------------- */

/* The second worker's clock is another one. */
static fleet_status shrink_at(ps_node *n, int64_t seconds)
{
    return fleet_shrink_at(n->s.f, "t", n->index == 0 ? seconds : 9000000);
}

static fleet_status shrink_by_seconds(ps_node *n)
{
    static const int64_t at[] = {1000, 1099, 1100};
    fleet_table_statistics s;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    for (int i = 0; i < 3; i++) {
        FL_TRY(shrink_at(n, at[i]));
        FL_TRY(fleet_table_stat(n->s.f, "t", &s));
        n->number[i] = (double)s.rows;
        FL_TRY(fleet_barrier_worker(n->s.f));
    }
    FL_TRY(ps_passes(n, 1));
    FL_TRY(shrink_at(n, 1200)); /* since 1100 all have changed */
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    n->number[3] = (double)s.rows;
    return ps_end(n);
}

TEST(the_first_workers_seconds_decide_for_any_number_of_servers)
{
    grown_how how = {.optimizer = "adam", .life.ttl_seconds = 100};
    uint64_t want = 0;

    for (int i = 0; i < N_SHAPE; i++) {
        ps_job j = job_of(&how, shape[i][0], shape[i][1]);
        const double *rows = ps_worker(&j, 0)->number;
        uint64_t hash;

        j.work = shrink_by_seconds;
        hash = ps_hash(&j);
        want = i ? want : hash;
        CHECK(hash == want);
        CHECK(rows[0] > 0 && rows[1] == rows[0]);
        CHECK(rows[2] == 0 && rows[3] == rows[0]);
    }
}

/* One row to a page, and to a bucket. */
TEST(bytes_bound_the_same_rows_for_any_number_of_servers)
{
    grown_how how = {
        .optimizer = "adagrad", .dim = 512, .life.most_bytes = 1024 * 4400};
    grown_how plain = {.optimizer = "adagrad", .dim = 512};
    ps_job j = job_of(&how, 1, 1), all = job_of(&plain, 1, 1);

    CHECK(ps_alone(&j, 2) != ps_alone(&all, 2));
    check_all_shapes(&how);
}

static fleet_status shrink_wrongly(ps_node *n)
{
    const char *table = n->index == 1 ? "u" : "t";

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    CHECK_INT(fleet_shrink(n->s.f, table),
              n->index == 1 ? FLEET_ENOENT : FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), n->index == 1
                                           ? "there is no table \"u\""
                                           : "1 of 2 workers could not");
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

/* Some keys of an update are left out, and the others' rows are rounded by the
 * bits of their own keys: also where one process merges batches. */
TEST(rows_in_fewer_bits_come_and_go_alike_for_any_number_of_servers)
{
    for (int k = FLEET_ROW_FLOAT16; k <= FLEET_ROW_INT8; k++) {
        grown_how how = all_lives();
        ps_job j = job_of(&how, 1, 1);
        double rows, floats;
        uint64_t want, other = shrink_alone(&j, &floats);

        how.storage = (fleet_row_storage)k;
        want = shrink_alone(&j, &rows);
        CHECK(want != other && rows == floats);
        for (int i = 0; i < N_SHAPE; i++) {
            j = job_of(&how, shape[i][0], shape[i][1]);
            j.work = shrink_between;
            CHECK(ps_hash(&j) == want);
        }
    }
}

/* What a worker keeps of a row that has gone is not used. */
TEST(a_cache_of_a_worker_changes_nothing)
{
    grown_how how = all_lives();
    ps_job j = job_of(&how, 1, 1);
    double rows;
    uint64_t want = shrink_alone(&j, &rows);

    how.cache_bytes = 1 << 20;
    j = job_of(&how, 2, 2);
    j.work = shrink_between;
    CHECK(ps_hash(&j) == want);
}

TEST(a_wrong_shrink_of_one_worker_fails_all_and_lets_nothing_go)
{
    grown_how how = all_lives();
    ps_job j = job_of(&how, 2, 1);

    j.work = shrink_wrongly;
    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

/* --- what is left of the filter in a save --------------------------------- */

static const char *save_path;

static fleet_status save_between(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, save_path));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static void check_counts_travel(fleet_entry entry)
{
    grown_how how = {
        .optimizer = "adam",
        .life = {.entry = entry,
                 .accessor = {.kind = FLEET_CTR_ACCESSOR, .show = "id"}}};
    ps_job j = job_of(&how, 2, 2);
    uint64_t want;

    save_path = test_path("saved");
    j.work = save_between;
    want = ps_hash(&j);
    for (int i = 0; i < N_SHAPE; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.load = save_path;
        j.passes = 1;
        CHECK(ps_hash(&j) == want);
    }
    j.passes = 1;
    CHECK(ps_alone(&j, 2) == want);
}

TEST(counts_travel_between_jobs_of_any_servers)
{
    check_counts_travel(
        (fleet_entry){.kind = FLEET_COUNT_FILTER_ENTRY, .count = 4});
}

TEST(a_bloom_filter_travels_between_jobs_of_any_servers)
{
    check_counts_travel(bloom);
}

/* --- async: each push is an update ---------------------------------------- */

static fleet_status count_pushes(ps_node *n)
{
    grown g = {.f = n->s.f, .p = n->s.p};
    fleet_table_statistics s;
    float row[GROWN_DIM];

    FL_TRY(ps_begin(n));
    for (int i = 1; i <= 3; i++) {
        FL_TRY(ps_passes(n, 1));
        grown_row(&g, 3, row);
        CHECK((row[0] == 0) == (i < 3));
        FL_TRY(fleet_table_stat(n->s.f, "t", &s));
        CHECK_INT(s.rows, i < 3 ? 0 : 40);
        FL_TRY(fleet_table_stat(n->s.f, "t.waiting", &s));
        CHECK_INT(s.rows, i < 3 ? 40 : 0);
    }
    return ps_end(n);
}

TEST(in_async_pushes_are_counted_and_keys_that_wait_read_as_asked_for)
{
    grown_how how = {
        .optimizer = "sgd",
        .a_sync = true,
        .life = {.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3},
                 .unknown_zeros = 1}};
    ps_job j = job_of(&how, 2, 1);

    j.workers = 1;
    j.file[0] = grown_ids("once", 0, 40);
    j.work = count_pushes;
    CHECK(ps_hash(&j) != 0);
}

/* --- processes ------------------------------------------------------------ */

static uint64_t wanted_hash;

static fleet_status shrink_and_compare(ps_node *n)
{
    FL_TRY(shrink_between(n));
    CHECK(n->index > 0 || n->hash == wanted_hash);
    return FLEET_OK;
}

TEST(processes_over_tcp_let_the_same_keys_in_and_the_same_rows_go)
{
    grown_how how = all_lives();
    ps_job j = job_of(&how, 2, 1);
    double rows;

    wanted_hash = shrink_alone(&j, &rows);
    j.work = shrink_and_compare;
    ps_start_all(&j);
    ps_check_all_end(&j);
}

/* --- refused -------------------------------------------------------------- */

static void check_refused_in_geo(const fleet_table_options *life,
                                 const char *words)
{
    grown_how how = {
        .optimizer = "sgd", .a_sync = true, .geo = 10, .life = *life};
    const fleet_role role = {.kind = FLEET_WORKER,
                             .worker_num = 1,
                             .server_endpoints = "inproc://nobody"};
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    grown_build(f, &p, &how);
    CHECK_FAILS(fleet_init_worker(f), FLEET_EUNSUPPORTED, words);
    fleet_destroy(f);
}

/* An accessor alone it takes. */
TEST(geo_refuses_a_life_and_says_why)
{
    fleet_table_options life = {.unknown_zeros = 1};

    life.accessor = (fleet_accessor){.kind = FLEET_CTR_ACCESSOR, .click = "id"};
    check_refused_in_geo(&life, "table \"t\" has unknown_zeros yes: not in "
                                "mode ps-geo");
    life.unknown_zeros = 0;
    life.accessor.embedx_dim = 1;
    check_refused_in_geo(&life, "embedx_dim 1");
}
