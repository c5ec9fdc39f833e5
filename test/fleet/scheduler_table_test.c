/* scheduler_table_test.c - a scheduler numbers the processes that come, refuses
 * what is of another job, and knows processes that come again, also when it was
 * itself started again. */
#define SUITE scheduler_table
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/role/scheduler_table.h"

enum { CONNECT_MS = 1000, PEER_MS = 300 };

static fl_roster_message say(fl_roster_kind kind, const char *id,
                             const char *rest)
{
    fl_roster_message m = {.kind = kind, .rank = -1, .rest = rest};

    snprintf(m.id, sizeof m.id, "%s", id);
    fl_roster_message_set(m.host, "10.0.0.9");
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        fl_roster_message_set(m.field[i], "1");
    return m;
}

static void open_table(fl_scheduler_table *t, int servers, int workers)
{
    const fl_roster_message own = say(FL_ROSTER_JOIN, "scheduler", "");

    CHECK_OK(fl_scheduler_table_open(t, &own, (int[]){servers, workers}, 0,
                                     CONNECT_MS, PEER_MS));
}

static int take(fl_scheduler_table *t, fl_roster_kind kind, const char *id,
                const char *rest, int64_t now_ms)
{
    const fl_roster_message m = say(kind, id, rest);

    return fl_scheduler_table_take(t, &m, -1, now_ms);
}

static int join(fl_scheduler_table *t, const char *id, const char *rest)
{
    return take(t, FL_ROSTER_JOIN, id, rest, 0);
}

static fl_roster_message answer(const fl_scheduler_table *t, int place)
{
    fl_roster_message m;
    fl_text list = {0};

    CHECK_OK(fl_scheduler_table_answer(t, place, &m, &list));
    m.rest = test_keep(m.rest);
    fl_text_done(&list);
    return m;
}

static void come(fl_scheduler_table *t)
{
    open_table(t, 2, 1);
    CHECK_INT(join(t, "x", "server 10.0.0.10:7000"), 0);
    CHECK_INT(join(t, "y", "worker 10.0.0.3"), 1);
    CHECK_INT(answer(t, 1).kind, FL_ROSTER_WAIT);
    CHECK_INT(join(t, "z", "server 10.0.0.2:7000"), 2);
}

TEST(processes_are_numbered_by_role_and_address)
{
    fl_scheduler_table t;

    come(&t);
    CHECK_INT(answer(&t, 0).kind, FL_ROSTER_START);
    CHECK_INT(answer(&t, 0).rank, 1);
    CHECK_INT(answer(&t, 1).rank, 0);
    CHECK_INT(answer(&t, 2).rank, 0);
    CHECK_TEXT(answer(&t, 1).rest, "server 1 x 10.0.0.10:7000\n"
                                   "worker 0 y 10.0.0.3\n"
                                   "server 0 z 10.0.0.2:7000\n");
    fl_scheduler_table_close(&t);
}

TEST(of_one_machine_they_are_numbered_by_their_ids)
{
    fl_scheduler_table t;

    open_table(&t, 2, 1);
    join(&t, "node-b", "server 10.0.0.2:41000");
    join(&t, "node-a", "server 10.0.0.2:52000");
    join(&t, "w", "worker 10.0.0.2");
    CHECK_INT(answer(&t, 0).rank, 1);
    CHECK_INT(answer(&t, 1).rank, 0);
    fl_scheduler_table_close(&t);
}

TEST(a_process_of_another_job_is_refused_and_the_others_wait_on)
{
    fl_scheduler_table t;
    fl_roster_message m = say(FL_ROSTER_JOIN, "x", "worker 10.0.0.3");

    open_table(&t, 1, 1);
    fl_roster_message_set(m.field[FL_ROSTER_WORKERS], "4");
    CHECK_INT(fl_scheduler_table_take(&t, &m, -1, 0), -1);
    CHECK_INT(answer(&t, -1).kind, FL_ROSTER_REFUSED);
    CHECK_TEXT(answer(&t, -1).rest,
               "MS_WORKER_NUM is \"4\" in a process of 10.0.0.9, but \"1\" in "
               "the scheduler: expected the same in all processes");
    CHECK(t.phase == FL_SCHEDULER_COMING && t.n == 0);
    CHECK_INT(join(&t, "x", "client 10.0.0.3"), -1);
    CHECK_INT(take(&t, FL_ROSTER_GONE, "x", "", 0), -1);
    fl_scheduler_table_close(&t);
}

TEST(one_process_too_many_is_refused)
{
    fl_scheduler_table t;

    come(&t);
    CHECK_INT(join(&t, "new", "server 10.0.0.4:7000"), -1);
    CHECK_CONTAINS(t.refused, "is one too many: job \"1\" has its 2 servers "
                              "(MS_SERVER_NUM) already");
    fl_scheduler_table_close(&t);
    open_table(&t, 1, 2);
    CHECK_INT(join(&t, "a", "server 10.0.0.4:7000"), 0);
    CHECK_INT(join(&t, "b", "server 10.0.0.4:7001"), -1);
    fl_scheduler_table_close(&t);
}

/* --- before it begins ----------------------------------------------------- */

TEST(who_has_not_come_by_the_deadline_is_counted)
{
    fl_scheduler_table t;

    open_table(&t, 1, 2);
    join(&t, "a", "server 10.0.0.4:7000");
    t.process[0].heard_ms = CONNECT_MS;
    fl_scheduler_table_tick(&t, CONNECT_MS);
    CHECK(t.phase == FL_SCHEDULER_COMING);
    fl_scheduler_table_tick(&t, CONNECT_MS + 1);
    CHECK_INT(answer(&t, 0).kind, FL_ROSTER_FAILED);
    CHECK_TEXT(answer(&t, 0).rest,
               "only 1 of 1 servers (MS_SERVER_NUM) and 0 of 2 workers "
               "(MS_WORKER_NUM) have come within 1000 ms "
               "(FLEET_CONNECT_DEADLINE_MS): server 10.0.0.4:7000");
    fl_scheduler_table_close(&t);
}

TEST(one_that_came_and_is_silent_ends_the_job)
{
    fl_scheduler_table t;

    open_table(&t, 1, 2);
    join(&t, "a", "server 10.0.0.4:7000");
    fl_scheduler_table_tick(&t, PEER_MS);
    CHECK(t.phase == FL_SCHEDULER_COMING);
    fl_scheduler_table_tick(&t, PEER_MS + 1);
    CHECK_CONTAINS(t.words, "the server at 10.0.0.4:7000 came and has said "
                            "nothing for 300 ms");
    fl_scheduler_table_close(&t);
}

TEST(so_does_one_that_ends)
{
    fl_scheduler_table t;

    open_table(&t, 1, 2);
    join(&t, "a", "worker 10.0.0.4");
    take(&t, FL_ROSTER_GONE, "a", "it has given up", 0);
    CHECK_TEXT(answer(&t, 0).rest, "the worker at 10.0.0.4 has ended before "
                                   "the job began: it has given up");
    fl_scheduler_table_close(&t);
}

/* --- who comes again ------------------------------------------------------ */

TEST(a_process_that_comes_again_has_its_place)
{
    fl_scheduler_table t;

    come(&t);
    take(&t, FL_ROSTER_GONE, "x", "", 0);
    CHECK_INT(join(&t, "x", "server 10.0.0.10:9999"), 0);
    CHECK_INT(answer(&t, 0).rank, 1);
    CHECK_CONTAINS(answer(&t, 0).rest, "server 1 x 10.0.0.10:7000\n");
    CHECK(!t.process[0].has_gone);
    CHECK_INT(join(&t, "x", "worker 10.0.0.10"), -1);
    CHECK_CONTAINS(t.refused, "MS_NODE_ID of a worker at 10.0.0.10 is \"x\"");
    fl_scheduler_table_close(&t);
}

TEST(two_processes_of_one_id_are_not_one)
{
    fl_scheduler_table t;

    open_table(&t, 2, 1);
    CHECK_INT(join(&t, "x", "server 10.0.0.10:7000"), 0);
    CHECK_INT(join(&t, "x", "server 10.0.0.10:7000"), 0);
    CHECK_INT(join(&t, "x", "server 10.0.0.11:7000"), FL_SCHEDULER_NOT_YET);
    CHECK_INT(answer(&t, FL_SCHEDULER_NOT_YET).kind, FL_ROSTER_WAIT);
    t.process[0].heard_ms = PEER_MS / 2;
    CHECK_INT(
        take(&t, FL_ROSTER_JOIN, "x", "server 10.0.0.11:7000", PEER_MS / 2 + 1),
        -1);
    CHECK_CONTAINS(t.refused, "expected another one");
    CHECK_INT(t.n, 1);
    CHECK_TEXT(t.process[0].endpoint, "10.0.0.10:7000");
    fl_scheduler_table_close(&t);
}

TEST(one_that_was_killed_before_all_had_come_comes_again_elsewhere)
{
    static const char again[] = "server 10.0.0.10:7001";
    fl_scheduler_table t;

    open_table(&t, 2, 1);
    join(&t, "x", "server 10.0.0.10:7000");
    CHECK_INT(take(&t, FL_ROSTER_JOIN, "x", again, PEER_MS / 4), -2);
    CHECK_INT(take(&t, FL_ROSTER_JOIN, "x", again, PEER_MS / 4 + 1), 0);
    CHECK_TEXT(t.process[0].endpoint, "10.0.0.10:7001");
    CHECK_INT(t.process[0].heard_ms, PEER_MS / 4 + 1);
    fl_scheduler_table_close(&t);
}

/* --- keys ----------------------------------------------------------------- */

TEST(a_key_is_good_for_its_role_alone)
{
    const fl_roster_message good = say(FL_ROSTER_GONE, "x", "");
    fl_roster_message m = say(FL_ROSTER_JOIN, "n", "server 10.0.0.4:7000");
    fl_scheduler_table t;

    open_table(&t, 2, 1);
    CHECK_INT(fl_scheduler_table_take(&t, &m, FL_SCHEDULED_WORKER, 0), -1);
    CHECK_CONTAINS(t.refused, "says that it is a server, with the key of a "
                              "worker");
    CHECK_INT(t.n, 0);
    fl_scheduler_table_close(&t);
    come(&t);
    CHECK_INT(fl_scheduler_table_take(&t, &good, FL_SCHEDULED_WORKER, 0), -1);
    CHECK(!t.process[0].has_gone);
    CHECK_INT(fl_scheduler_table_take(&t, &good, FL_SCHEDULED_SERVER, 0), 0);
    CHECK(t.process[0].has_gone);
    fl_scheduler_table_close(&t);
}

static const char list[] = "server 1 x 10.0.0.10:7000\nworker 0 y 10.0.0.3\n"
                           "server 0 z 10.0.0.2:7000\n";

TEST(a_scheduler_that_was_started_again_learns_from_any_process)
{
    static const char *const from[] = {"x", "y", "z"};
    fl_scheduler_table t;

    for (int i = 0; i < 3; i++) {
        open_table(&t, 2, 1);
        CHECK_INT(take(&t, FL_ROSTER_READY, from[i], list, 5), i);
        CHECK_INT(answer(&t, i).kind, FL_ROSTER_START);
        CHECK_TEXT(answer(&t, i).rest, list);
        CHECK_INT(join(&t, "y", "worker 10.0.0.3"), 1);
        CHECK_INT(answer(&t, 1).rank, 0);
        CHECK_INT(join(&t, "w", "worker 10.0.0.3"), -1);
        CHECK_CONTAINS(t.refused, "as the scheduler has learnt from the ");
        CHECK_CONTAINS(t.refused, "PADDLE_JOB_ID");
        CHECK_INT(take(&t, FL_ROSTER_READY, "w", list, 5), -1);
        fl_scheduler_table_close(&t);
    }
    open_table(&t, 2, 1);
    CHECK_INT(take(&t, FL_ROSTER_READY, "w", list, 5), -1);
    CHECK(t.phase == FL_SCHEDULER_COMING && t.n == 0);
    fl_scheduler_table_close(&t);
}

TEST(of_a_list_that_is_not_whole_it_learns_nothing)
{
    static const char *const bad[] = {
        "",
        "server 1 x 10.0.0.10:7000\nworker 0 y 10.0.0.3\n",
        "server 1 x 10.0.0.10:7000\nworker 0 y 10.0.0.3\nserver 0 z",
        "server 1 x 10.0.0.10:7000\nworker 0 y 10.0.0.3\nserver 2 z a:1\n",
        "server 1 x 10.0.0.10:7000\nworker 0 y 10.0.0.3\nworker 0 z a\n",
        "server 1 x 10.0.0.10:7000\nworker 0 x 10.0.0.3\nserver 0 z a:1\n",
        "server 1 x 10.0.0.10:7000\nclient 0 y 10.0.0.3\nserver 0 z a:1\n"};
    fl_scheduler_table t;

    open_table(&t, 2, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(take(&t, FL_ROSTER_READY, "z", bad[i], 5), -1);
        CHECK(t.phase == FL_SCHEDULER_COMING && t.n == 0);
    }
    fl_scheduler_table_close(&t);
}

TEST(it_is_over_when_none_needs_it)
{
    char first[FL_ROSTER_TEXT + 16];
    fl_scheduler_table t;

    come(&t);
    CHECK(!fl_scheduler_table_is_over(&t, 10));
    take(&t, FL_ROSTER_GONE, "x", "", 10);
    take(&t, FL_ROSTER_GONE, "z", "", 10);
    take(&t, FL_ROSTER_READY, "y", list, 500);
    CHECK(!fl_scheduler_table_is_over(&t, 500 + CONNECT_MS));
    CHECK(fl_scheduler_table_is_over(&t, 501 + CONNECT_MS));
    CHECK_INT(fl_scheduler_table_missing(&t, first), 1);
    CHECK_TEXT(first, "worker at 10.0.0.3");
    t.silent_ms = 2 * CONNECT_MS; /* servers may be started again */
    CHECK(!fl_scheduler_table_is_over(&t, 501 + CONNECT_MS));
    take(&t, FL_ROSTER_GONE, "y", "", 600);
    CHECK(fl_scheduler_table_is_over(&t, 600));
    CHECK_INT(fl_scheduler_table_missing(&t, first), 0);
    fl_scheduler_table_close(&t);
}
