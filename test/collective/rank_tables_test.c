/* rank_tables_test.c - rows and weights by hand, of a table that ranks share
 * out: this program once more, under fleetrun. */
#define SUITE rank_tables
#include "grown_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { KEYS = 20, LANES = -1 /* as many as a server has */ };

/* One rank reads, the other serves it while it waits. */
static fleet_status get_in_turn(grown *g, const uint64_t *key, int64_t n,
                                float *row, float *states, int *found)
{
    for (int turn = 0; turn < 2; turn++) {
        if (fleet_worker_index(g->f) == turn)
            FL_TRY(fleet_table_get(g->f, "t", key, n, GROWN_DIM, row, states,
                                   found));
        FL_TRY(fleet_barrier_worker(g->f));
    }
    return FLEET_OK;
}

static fleet_status check_set(grown *g)
{
    static const uint64_t key[] = {1, 2, 3, 4, 5, 900, 901};
    static const float w[GROWN_W] = {1, 2, 0.1f};
    float row[7][GROWN_DIM], got[7][GROWN_DIM], got_w[GROWN_W];
    bool first = fleet_worker_index(g->f) == 0;
    int found[7];
    uint64_t hash;

    for (int i = 0; i < 7; i++)
        row[i][0] = row[i][1] = 1 / (float)(i + 3);
    if (first) /* the other one serves it: it waits in the write */
        FL_TRY(fleet_params_hash(g->f, &hash));
    FL_TRY(fleet_table_set(g->f, "t", key, first ? 7 : 0, GROWN_DIM,
                           first ? row[0] : NULL, NULL));
    FL_TRY(
        fleet_parameter_set(g->f, "w", first ? w : NULL, first ? GROWN_W : 0));
    FL_TRY(get_in_turn(g, key, 7, got[0], NULL, found));
    CHECK(memcmp(row, got, sizeof row) == 0);
    for (int i = 0; i < 7; i++)
        CHECK_INT(found[i], 1);
    FL_TRY(fleet_parameter_get(g->f, "w", got_w, GROWN_W));
    CHECK(memcmp(w, got_w, sizeof w) == 0);
    return FLEET_OK;
}

/* The first rank saves, the other one serves it while it waits. */
static fleet_status save_all(grown *g)
{
    FL_TRY(fleet_save_one_table(g->f, "t", getenv("TEST_TABLE_SAVE")));
    FL_TRY(fleet_export_table(g->f, "t", getenv("TEST_TABLE_TEXT"), NULL));
    return fleet_barrier_worker(g->f);
}

/* Each rank takes its own rows of what another job has saved. */
static fleet_status load_all(grown *g, bool text)
{
    static const uint64_t key[] = {3, 900};
    float got[2][GROWN_DIM];
    int found[2];

    FL_TRY(text ? fleet_import_table(g->f, "t", getenv("TEST_TABLE_TEXT"), NULL)
                : fleet_load_one_table(g->f, "t", getenv("TEST_TABLE_SAVE"),
                                       NULL));
    FL_TRY(fleet_init_worker(g->f));
    g->e = fleet_executor_create(g->p, NULL);
    FL_TRY(get_in_turn(g, key, 2, got[0], NULL, found));
    CHECK(found[0] && found[1]);
    CHECK(got[0][0] == 1 / 5.0f && got[1][1] == 1 / 8.0f);
    CHECK_FAILS(
        fleet_load_one_table(g->f, "t", getenv("TEST_TABLE_SAVE"), NULL),
        FLEET_ESTATE, "ranks load before fleet_init_worker()");
    CHECK_FAILS(fleet_import_table(g->f, "t", getenv("TEST_TABLE_TEXT"), NULL),
                FLEET_ESTATE, "ranks import before fleet_init_worker()");
    return fleet_stop_worker(g->f);
}

static fleet_status check_refused(grown *g)
{
    static const uint64_t twice[] = {1, 1};
    static const float row[2][GROWN_DIM];
    bool first = fleet_worker_index(g->f) == 0;

    CHECK_FAILS(fleet_table_set(g->f, "t", twice, 2, GROWN_DIM, row[0], NULL),
                FLEET_EINVAL, first ? "key 1 stands twice" : "1 of 2 workers");
    return FLEET_OK;
}

/* By lanes of servers any worker may ask. */
static fleet_status check_stat(grown *g, int parts)
{
    fleet_table_statistics s = {0};

    if (fleet_worker_index(g->f) == 1)
        FL_TRY(fleet_table_stat(g->f, "t", &s));
    FL_TRY(fleet_barrier_worker(g->f));
    if (fleet_worker_index(g->f) == 0)
        return FLEET_OK;
    CHECK_INT(s.rows, KEYS + 2);
    CHECK(s.parts == parts || parts == LANES);
    CHECK((s.parts == 1) == (s.most_rows == KEYS + 2));
    return FLEET_OK;
}

static fleet_status be_one(grown *g, int parts)
{
    static const uint64_t key[] = {1};
    static const float row[GROWN_DIM];

    CHECK_FAILS(fleet_table_set(g->f, "t", key, 1, GROWN_DIM, row, NULL),
                FLEET_ESTATE, "fleet_init_worker()");
    FL_TRY(fleet_init_worker(g->f));
    g->e = fleet_executor_create(g->p, NULL);
    grown_train(g, KEYS);
    FL_TRY(check_refused(g));
    FL_TRY(check_set(g));
    FL_TRY(check_stat(g, parts));
    FL_TRY(save_all(g));
    grown_train(g, KEYS); /* and they go on */
    return fleet_stop_worker(g->f);
}

/* --- which keys become rows, and which rows go ---------------------------- */

static const fleet_table_options third = {
    .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3},
    .unknown_zeros = 1,
    .accessor = {.kind = FLEET_CTR_ACCESSOR,
                 .show = "id",
                 .delete_threshold = -1},
    .ttl_updates = 2,
    .most_rows = 1024};

/* Shown as often as the id says: 0 never becomes a row, 1 gets no vector. */
static const fleet_table_options scored = {
    .entry = {.kind = FLEET_SHOW_CLICK_ENTRY, .score = 1},
    .unknown_zeros = 1,
    .accessor = {.kind = FLEET_CTR_ACCESSOR,
                 .show = "id",
                 .embedx_dim = 1,
                 .embedx_threshold = 3}};

static fleet_status train_with_a_life(grown *g, int times)
{
    /* once, before those that are rows by then */
    static const int64_t rare_first[] = {20, 21, 22, 23, 24, 25, 0, 1, 2, 3};

    for (int i = 0; i < 6 * times; i++) /* ids from 4 on come twice, early */
        if (i / times == 3)
            grown_train_ids(g, rare_first, 10);
        else
            grown_train(g, i / times < 2 ? 9 : 4);
    return fleet_shrink(g->f, NULL);
}

static fleet_status have_a_life(grown *g)
{
    uint64_t hash = 0;

    FL_TRY(fleet_init_worker(g->f));
    g->e = fleet_executor_create(g->p, NULL);
    FL_TRY(train_with_a_life(g, 1));
    if (fleet_worker_index(g->f) == 0)
        FL_TRY(fleet_params_hash(g->f, &hash));
    FL_TRY(fleet_barrier_worker(g->f));
    fprintf(stderr, "hash %016llx\n", (unsigned long long)hash);
    return fleet_stop_worker(g->f);
}

/* What TEST_TABLE_RANK says: "ranks" alone, or a hybrid job where "both" have
 * something, or "servers" the table; "life", "scores": ranks alone, another
 * training. */
__attribute__((constructor)) static void be_a_rank(void)
{
    const char *what = getenv("TEST_TABLE_RANK");
    grown_how how = {.optimizer = "adam"};
    fleet_status status;
    grown g = {0};

    if (!what)
        return;
    test_ends_process = true;
    how.is_collective = strncmp(what, "ranks", 5) != 0;
    how.ps = strcmp(what, "both") == 0 ? FLEET_PS_RANKS : FLEET_PS_BY_MODE;
    how.larger = how.ps == FLEET_PS_RANKS; /* "more" is on the server */
    if (strcmp(what, "life") == 0) {
        how.is_collective = true;
        how.life = third;
        how.storage = FLEET_ROW_INT8;
    }
    if (strcmp(what, "scores") == 0) {
        how.is_collective = true;
        how.life = scored;
    }
    status = fleet_init(&g.f, NULL);
    if (status == FLEET_OK)
        grown_build(g.f, &g.p, &how);
    if (status == FLEET_OK && how.life.unknown_zeros)
        status = have_a_life(&g);
    else if (status == FLEET_OK && strchr(what, '-'))
        status = load_all(&g, strcmp(what, "ranks-text") == 0);
    else if (status == FLEET_OK)
        status = fleet_is_server(g.f)
                     ? fleet_run_server(g.f)
                     : be_one(&g, strcmp(what, "servers") == 0 ? LANES : 2);
    fprintf(stderr, "%s\n", status == FLEET_OK ? "fine" : fleet_last_error());
    grown_close(&g);
    exit(status == FLEET_OK ? 0 : 3);
}

static void run_job(const char *what, const char *options)
{
    launch_need_mpirun();
    setenv("TEST_TABLE_RANK", what, 1);
    setenv("TEST_TABLE_SAVE", test_path("saved"), 1);
    setenv("TEST_TABLE_TEXT", test_path("rows.txt"), 1);
    setenv("SELF", test_program(), 1);
    launch_deadline_ms = 60000;
    CHECK_INT(launch_run(options, "exec $SELF"), 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "fine");
    CHECK_CONTAINS(launch_log("workerlog.1"), "fine");
}

TEST_LIMIT(ranks_read_and_write_the_rows_that_they_share_out, 90)
{
    run_job("ranks", "--nproc_per_node 2 --grace 50");
}

/* The table of the first job is on servers. */
TEST_LIMIT(ranks_load_and_import_what_a_job_with_servers_has_saved, 90)
{
    run_job("servers", "--server_num 2 --worker_num 2 --collective --grace 50");
    run_job("ranks-save", "--nproc_per_node 2 --grace 50");
    run_job("ranks-text", "--nproc_per_node 2 --grace 50");
}

TEST_LIMIT(ranks_that_share_out_rows_beside_servers_read_and_write_them, 90)
{
    run_job("both", "--server_num 1 --worker_num 2 --collective --grace 50");
}

/* Both ranks bring the same batches: in one process they are merged. */
TEST_LIMIT(ranks_let_the_same_keys_in_and_the_same_rows_go_as_one_process, 90)
{
    grown_how how = {
        .optimizer = "adam", .life = third, .storage = FLEET_ROW_INT8};
    fleet_table_statistics s;
    char want[40];
    grown g;

    how.merge = 2;
    grown_open(&g, &how);
    CHECK_OK(train_with_a_life(&g, 2));
    CHECK_OK(fleet_table_stat(g.f, "t", &s));
    CHECK_INT(s.rows, 4);
    CHECK_OK(fleet_table_stat(g.f, "t.waiting", &s));
    CHECK_INT(s.rows, 0);
    snprintf(want, sizeof want, "hash %016llx",
             (unsigned long long)grown_hash(&g));
    grown_close(&g);
    run_job("life", "--nproc_per_node 2 --grace 50");
    CHECK_CONTAINS(launch_log("workerlog.0"), want);
}

TEST_LIMIT(keys_and_vectors_of_ranks_wait_for_the_scores_of_one_process, 90)
{
    grown_how how = {.optimizer = "adam", .life = scored};
    fleet_table_statistics s;
    float row[GROWN_DIM];
    char want[40];
    grown g;

    how.merge = 2;
    grown_open(&g, &how);
    CHECK_OK(train_with_a_life(&g, 2));
    CHECK_OK(fleet_table_stat(g.f, "t", &s));
    CHECK_INT(s.rows, 14);
    grown_row(&g, 1, row);
    CHECK(row[0] != 0 && row[1] == 0);
    grown_row(&g, 3, row);
    CHECK(row[1] != 0);
    snprintf(want, sizeof want, "hash %016llx",
             (unsigned long long)grown_hash(&g));
    grown_close(&g);
    run_job("scores", "--nproc_per_node 2 --grace 50");
    CHECK_CONTAINS(launch_log("workerlog.0"), want);
}
