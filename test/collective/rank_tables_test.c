/* rank_tables_test.c - rows and weights by hand, of a table that ranks share
 * out: this program once more, under fleetrun. */
#define SUITE rank_tables
#include "grown_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 20 };

#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

/* One rank reads, the other serves it while it waits. */
static fleet_status get_in_turn(grown *g, const uint64_t *key, int64_t n,
                                float *row, float *states, int *found)
{
    for (int turn = 0; turn < 2; turn++) {
        if (fleet_worker_index(g->f) == turn)
            TRY(fleet_table_get(g->f, "t", key, n, GROWN_DIM, row, states,
                                found));
        TRY(fleet_barrier_worker(g->f));
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

    for (int i = 0; i < 7; i++)
        row[i][0] = row[i][1] = 1 / (float)(i + 3);
    TRY(fleet_table_set(g->f, "t", key, first ? 7 : 0, GROWN_DIM,
                        first ? row[0] : NULL, NULL));
    TRY(fleet_parameter_set(g->f, "w", first ? w : NULL, first ? GROWN_W : 0));
    TRY(get_in_turn(g, key, 7, got[0], NULL, found));
    CHECK(memcmp(row, got, sizeof row) == 0);
    for (int i = 0; i < 7; i++)
        CHECK_INT(found[i], 1);
    TRY(fleet_parameter_get(g->f, "w", got_w, GROWN_W));
    CHECK(memcmp(w, got_w, sizeof w) == 0);
    return FLEET_OK;
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

static fleet_status check_stat(grown *g)
{
    fleet_table_statistics s = {0};

    if (fleet_worker_index(g->f) == 1)
        TRY(fleet_table_stat(g->f, "t", &s));
    TRY(fleet_barrier_worker(g->f));
    if (fleet_worker_index(g->f) == 0)
        return FLEET_OK;
    CHECK_INT(s.rows, KEYS + 2);
    CHECK_INT(s.parts, 2);
    CHECK(s.most_rows < KEYS + 2);
    return FLEET_OK;
}

static fleet_status be_one(grown *g)
{
    static const uint64_t key[] = {1};
    static const float row[GROWN_DIM];

    CHECK_FAILS(fleet_table_set(g->f, "t", key, 1, GROWN_DIM, row, NULL),
                FLEET_ESTATE, "ranks write together, between");
    TRY(fleet_init_worker(g->f));
    g->e = fleet_executor_create(g->p, NULL);
    grown_train(g, KEYS);
    TRY(check_refused(g));
    TRY(check_set(g));
    TRY(check_stat(g));
    grown_train(g, KEYS); /* and they go on */
    return fleet_stop_worker(g->f);
}

__attribute__((constructor)) static void be_a_rank(void)
{
    fleet_status status;
    grown g = {0};

    if (!getenv("TEST_TABLE_RANK"))
        return;
    test_ends_process = true;
    status = fleet_init(&g.f, NULL);
    if (status == FLEET_OK)
        grown_build(g.f, &g.p, &(grown_how){.optimizer = "adam"});
    if (status == FLEET_OK)
        status = be_one(&g);
    fprintf(stderr, "%s\n", status == FLEET_OK ? "fine" : fleet_last_error());
    grown_close(&g);
    exit(status == FLEET_OK ? 0 : 3);
}

TEST_LIMIT(ranks_read_and_write_the_rows_that_they_share_out, 90)
{
    launch_need_mpirun();
    setenv("TEST_TABLE_RANK", "1", 1);
    setenv("SELF", test_program(), 1);
    launch_deadline_ms = 60000;
    CHECK_INT(launch_run("--nproc_per_node 2 --grace 50", "exec $SELF"), 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "fine");
    CHECK_CONTAINS(launch_log("workerlog.1"), "fine");
}
