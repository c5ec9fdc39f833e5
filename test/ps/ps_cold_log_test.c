/* ps_cold_log_test.c - lanes whose tables have most rows in a file are made
 * again from logs, go from server to server, and have replicas, to the bits of
 * a job with all rows in memory that nothing befalls. */
#define SUITE ps_cold_log
#include "cold_kit.h"
#include "move_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { LINES = 4000, CAP = 1 << 20, PASSES = 3, LEAST_COLD = 2000 };

/* --- jobs ----------------------------------------------------------------- */

/* Worker 0 tells that rows are in files, and before the last pass it waits
 * until all has befallen that is to. */
static fleet_status work(ps_node *n)
{
    const cold_how *how = n->job->user;
    fleet_table_statistics stat = {0};

    FL_TRY(ps_begin(n));
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass == PASSES - 1 && n->pid && n->index == 0)
            ps_hear(&n->job->go);
        FL_TRY(ps_passes(n, 1));
        if (pass == 0 && n->pid && n->index == 0)
            ps_tell(&n->job->held);
    }
    if (how->cap)
        FL_TRY(fleet_table_stat(n->s.f, "t", &stat));
    FL_TRY(ps_end(n));
    if (n->pid && n->index == 0)
        fprintf(stderr, "hash %llx cold %lld\n", (unsigned long long)n->hash,
                (long long)stat.cold_rows);
    return FLEET_OK;
}

static ps_job job_of(cold_how *how)
{
    return (ps_job){.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .peer_ms = PS_SECOND,
                    .open = cold_kit_open_node,
                    .work = work,
                    .user = how,
                    .file = {cold_kit_ids("ids", LINES, false)}};
}

static uint64_t undisturbed(ps_job j)
{
    cold_how warm = {0};

    j.user = &warm;
    j.peer_ms = 0;
    return ps_hash(&j);
}

static void start(ps_job *j)
{
    ps_start_all(j);
    ps_hear(&j->held);
}

static void check_end(ps_job *j, uint64_t want)
{
    unsigned long long hash = 0;
    long long cold = 0;
    const char *at;

    ps_tell(&j->go);
    for (int i = 0; i < j->n_node; i++)
        if (j->node[i].pid)
            ps_check_ends(&j->node[i]);
    at = strstr(ps_said(ps_worker(j, 0)), "hash ");
    CHECK(at && sscanf(at, "hash %llx cold %lld", &hash, &cold) == 2);
    CHECK(hash == want);
    CHECK(cold > LEAST_COLD);
}

/* --- logs ----------------------------------------------------------------- */

static cold_how with_log(void)
{
    return (cold_how){.cap = CAP,
                      .folder = test_folder(),
                      .log = FLEET_DURABLE_PROCESS,
                      .log_configs = {.folder = test_path("log"),
                                      .file_bytes = 128 << 10,
                                      .restart_deadline_ms = 30 * PS_SECOND}};
}

/* From the job's logs, in one process. */
static uint64_t replayed(const cold_how *how)
{
    cold_how one = {.cap = how->cap, .folder = how->folder};
    ps_job alone = {.user = &one};
    ps_node n = {.job = &alone};
    const fleet_replay_options o = {.log = how->log_configs.folder,
                                    .save = test_path("again")};
    fleet_replay_result r;
    uint64_t hash;

    cold_kit_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    CHECK_OK(fleet_replay_log(n.s.f, &o, &r));
    CHECK_OK(fleet_load_model(n.s.f, o.save));
    hash = scene_hash(&n.s);
    scene_close(&n.s);
    return hash;
}

/* From snapshots and the records behind them; and with its lane of the other
 * server, which that one has from then on. */
TEST_LIMIT(servers_that_are_killed_come_back_with_rows_in_files, 120)
{
    cold_how how = with_log();
    ps_job j = job_of(&how);
    uint64_t want = undisturbed(j);

    start(&j);
    ps_kill_and_start(&j, 0);
    ps_hear_words(ps_server(&j, 0), "lane 1 is back");
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    ps_kill_and_start(&j, 1);
    ps_hear_words(ps_server(&j, 1), "lane 1 of server 0 is its own");
    check_end(&j, want);
    CHECK(replayed(&how) == want);
}

/* --- copies --------------------------------------------------------------- */

TEST_LIMIT(lanes_move_with_rows_in_files, 120)
{
    cold_how how = {.cap = CAP, .folder = test_folder()};
    ps_job j = job_of(&how);
    uint64_t want = undisturbed(j);

    start(&j);
    move_lane(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    move_lane(&j, "move 1:1 0", "server 1, lane 1: from server 1 to server 0");
    check_end(&j, want);
}

TEST_LIMIT(replicas_of_lanes_with_rows_in_files_take_over, 120)
{
    cold_how how = {.cap = CAP, .folder = test_folder(), .replicas = 2};
    ps_job j = job_of(&how);
    uint64_t want = undisturbed(j);

    start(&j);
    ps_kill(ps_server(&j, 1), SIGKILL);
    CHECK_INT(ps_wait(ps_server(&j, 1)), 128 + SIGKILL);
    check_end(&j, want);
}
