/* node_table_test.c - nodes of a job find each other, are compared, numbered
 * and started, or named: without sockets, at times that the test gives. */
#define SUITE node_table
#include "../../tools/fleetrun/node_table.h"
#include "base/memory.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { CONNECT = 1000, PEER = 300 };

static fl_roster_message say(fl_roster_kind kind, const char *host, int rank)
{
    fl_roster_message m = {.kind = kind, .rank = rank, .rest = ""};

    snprintf(m.id, sizeof m.id, "%s", host);
    fl_roster_message_set(m.host, host);
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        fl_roster_message_set(m.field[i], "1");
    return m;
}

static int take(run_node_table *t, fl_roster_kind kind, const char *host,
                const char *rest, int64_t now)
{
    fl_roster_message m = say(kind, host, -1);

    m.rest = rest;
    return run_node_table_take(t, &m, now);
}

static int join(run_node_table *t, const char *host, int rank, int64_t now)
{
    fl_roster_message m = say(FL_ROSTER_JOIN, host, rank);

    return run_node_table_take(t, &m, now);
}

/* With two ports on each node. */
static void open_table(run_node_table *t, int n_node)
{
    fl_roster_message own = say(FL_ROSTER_JOIN, "10.0.0.9", -1);

    CHECK_OK(run_node_table_open(t, &own, n_node, 2, 0, CONNECT, PEER));
    CHECK_INT(t->n, 1);
}

static fl_roster_message answer(const run_node_table *t, int place,
                                const char **rest)
{
    fl_roster_message m;
    fl_text list = {0};

    CHECK_OK(run_node_table_answer(t, place, &m, &list));
    *rest = test_keep(m.rest);
    fl_text_done(&list);
    return m;
}

TEST(nodes_come_get_ranks_and_start_with_all_ports)
{
    run_node_table t;
    const char *rest;
    int ten, two;

    open_table(&t, 3);
    ten = join(&t, "10.0.0.10", -1, 10);
    CHECK_INT(answer(&t, ten, &rest).kind, FL_ROSTER_WAIT);
    CHECK_INT(join(&t, "10.0.0.10", -1, 20), ten); /* it asks again */
    CHECK_INT(t.n, 2);
    two = join(&t, "10.0.0.2", -1, 30);
    CHECK_INT(t.phase, RUN_NODES_RANKED);
    CHECK_INT(answer(&t, 0, &rest).rank, 0); /* it serves */
    CHECK_INT(answer(&t, two, &rest).rank, 1);
    CHECK_INT(answer(&t, ten, &rest).rank, 2);
    CHECK_INT(answer(&t, ten, &rest).kind, FL_ROSTER_RANK);
    take(&t, FL_ROSTER_READY, "10.0.0.10", "5 6", 40);
    take(&t, FL_ROSTER_READY, "10.0.0.9", "1 2", 40);
    CHECK_INT(t.phase, RUN_NODES_RANKED);
    take(&t, FL_ROSTER_READY, "10.0.0.2", "3 4", 40);
    CHECK_INT(t.phase, RUN_NODES_STARTED);
    CHECK_INT(answer(&t, two, &rest).kind, FL_ROSTER_START);
    CHECK_TEXT(rest, "10.0.0.9 1 2\n10.0.0.2 3 4\n10.0.0.10 5 6\n");
    run_node_table_tick(&t, 1 << 20); /* no deadline is left */
    CHECK_INT(t.phase, RUN_NODES_STARTED);
    run_node_table_close(&t);
}

TEST(a_node_has_the_rank_that_it_asks_for)
{
    run_node_table t;
    const char *rest;
    int last;

    open_table(&t, 3);
    last = join(&t, "10.0.0.1", 2, 0);
    CHECK_INT(join(&t, "10.0.0.3", 2, 0), -1);
    CHECK_TEXT(t.refused, "--node_rank of 10.0.0.3 is 2, but 10.0.0.1 is that "
                          "node already");
    CHECK_INT(join(&t, "10.0.0.3", 0, 0), -1);
    CHECK_CONTAINS(t.refused, "10.0.0.9 is that node already, as it serves");
    CHECK_INT(join(&t, "10.0.0.3", -1, 0), 2);
    CHECK_INT(answer(&t, 2, &rest).rank, 1);
    CHECK_INT(answer(&t, last, &rest).rank, 2);
    run_node_table_close(&t);
}

/* No fleetrun says so. */
TEST(a_rank_that_the_job_does_not_have_is_refused)
{
    run_node_table t;

    open_table(&t, 2);
    CHECK_INT(join(&t, "10.0.0.1", 2, 0), -1);
    CHECK_TEXT(t.refused, "--node_rank of 10.0.0.1 is 2, of 2 nodes");
    CHECK_INT(join(&t, "10.0.0.2", 1, 0), 1);
    CHECK_INT(t.phase, RUN_NODES_RANKED);
    run_node_table_close(&t);
}

TEST(another_command_line_is_refused_by_field_and_values)
{
    fl_roster_message m = say(FL_ROSTER_JOIN, "10.0.0.2", -1);
    run_node_table t;
    const char *rest;

    open_table(&t, 2);
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++) {
        m = say(FL_ROSTER_JOIN, "10.0.0.2", -1);
        fl_roster_message_set(m.field[i], "7");
        CHECK_INT(run_node_table_take(&t, &m, 0), -1);
        CHECK_CONTAINS(t.refused, "is \"7\" on 10.0.0.2, but \"1\" on "
                                  "10.0.0.9, which serves --master");
    }
    CHECK_CONTAINS(t.refused, "--supervise is");
    CHECK_INT(answer(&t, -1, &rest).kind, FL_ROSTER_REFUSED);
    CHECK_TEXT(rest, t.refused);
    CHECK_INT(t.phase, RUN_NODES_COMING); /* the job waits on */
    CHECK_INT(join(&t, "10.0.0.2", -1, 0), 1);
    CHECK_INT(join(&t, "10.0.0.3", -1, 0), -1);
    CHECK_CONTAINS(t.refused, "10.0.0.3 is one too many: the job \"1\" has its "
                              "2 nodes already");
    run_node_table_close(&t);
}

static void fails_with(run_node_table *t, const char *words)
{
    const char *rest;

    CHECK_INT(t->phase, RUN_NODES_FAILED);
    CHECK_INT(answer(t, 1, &rest).kind, FL_ROSTER_FAILED);
    CHECK_CONTAINS(rest, words);
    run_node_table_close(t);
}

TEST(what_does_not_come_in_time_is_counted)
{
    run_node_table t;

    open_table(&t, 3);
    join(&t, "10.0.0.2", -1, CONNECT);
    join(&t, "10.0.0.3", 0, CONNECT);
    run_node_table_tick(&t, CONNECT);
    CHECK_INT(t.phase, RUN_NODES_COMING);
    run_node_table_tick(&t, CONNECT + 1);
    CHECK_CONTAINS(t.words, "10.0.0.9, 10.0.0.2; one was refused: --node_rank");
    fails_with(&t, "only 2 of 3 nodes (--nnodes) have come within 1000 ms");
    open_table(&t, 2);
    join(&t, "10.0.0.2", -1, CONNECT);
    for (int64_t now = CONNECT; now <= 2 * CONNECT; now += PEER) {
        join(&t, "10.0.0.2", -1, now);
        run_node_table_tick(&t, now);
        CHECK_INT(t.phase, RUN_NODES_RANKED); /* the time begins anew */
    }
    join(&t, "10.0.0.2", -1, 2 * CONNECT);
    run_node_table_tick(&t, 2 * CONNECT + 1);
    fails_with(&t, "only 0 of 2 nodes are ready after 1000 ms");
}

TEST(a_node_that_is_silent_or_ends_is_named)
{
    run_node_table t;

    open_table(&t, 3);
    join(&t, "10.0.0.2", -1, 10);
    run_node_table_tick(&t, 10 + PEER);
    CHECK_INT(t.phase, RUN_NODES_COMING);
    run_node_table_tick(&t, 11 + PEER);
    fails_with(&t, "node 10.0.0.2 came and has said nothing for 300 ms");
    open_table(&t, 3);
    join(&t, "10.0.0.2", -1, 0);
    CHECK_INT(take(&t, FL_ROSTER_GONE, "10.0.0.3", "stranger", 0), -1);
    CHECK_INT(t.phase, RUN_NODES_COMING);
    take(&t, FL_ROSTER_GONE, "10.0.0.2", "no port", 0);
    fails_with(&t, "10.0.0.2 has ended before the job began: no port");
    open_table(&t, 2);
    join(&t, "10.0.0.2", -1, 0);
    run_node_table_fail(&t, "ended by SIGTERM");
    fails_with(&t, "10.0.0.9 has ended before the job began: ended by SIGTERM");
}

TEST(ports_are_checked)
{
    static const char *const bad[] = {"",    "1",     "1 2 3", "1 65536",
                                      "1 0", "1 two", "1,2",   "1 2 "};
    run_node_table t;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        open_table(&t, 2);
        join(&t, "10.0.0.2", -1, 0);
        take(&t, FL_ROSTER_READY, "10.0.0.2", bad[i], 0);
        fails_with(&t, "node 1 (10.0.0.2): expected 2 ports, got");
    }
}

TEST(a_message_is_read_as_it_was_written_and_nothing_else_is)
{
    fl_roster_message m = say(FL_ROSTER_READY, "a\033[1m\nb", 3), read;
    fl_text text = {0};
    size_t head;

    snprintf(m.id, sizeof m.id, "word");
    m.rest = "7001 7002";
    fl_roster_message_write(&m, &text);
    CHECK_OK(text.status);
    head = text.length - strlen(m.rest);
    for (size_t n = 0; n <= text.length; n++) { /* cut anywhere */
        char copy[4096];

        snprintf(copy, sizeof copy, "%.*s", (int)n, fl_text_chars(&text));
        CHECK_INT(fl_roster_message_read(&read, copy), n >= head);
        if (n < text.length)
            continue;
        CHECK_INT(read.kind, FL_ROSTER_READY);
        CHECK_INT(read.rank, 3);
        CHECK_TEXT(read.host, "a\\x1b[1m\\nb");
        CHECK_TEXT(read.field[FL_N_ROSTER_FIELD - 1], "1");
        CHECK_TEXT(read.rest, "7001 7002");
    }
    fl_text_done(&text);
}

TEST(without_memory_the_job_fails_in_words)
{
    fl_roster_message own = say(FL_ROSTER_JOIN, "10.0.0.9", -1);
    run_node_table t;

    fl_memory_fail_at(1, false);
    CHECK_STATUS(run_node_table_open(&t, &own, 2, 2, 0, CONNECT, PEER),
                 FLEET_ENOMEM);
    fl_memory_fail_at(0, false);
    run_node_table_close(&t);
    open_table(&t, 2);
    join(&t, "10.0.0.2", -1, 0);
    fl_memory_fail_at(1, false);
    take(&t, FL_ROSTER_READY, "10.0.0.2", "1 2", 0);
    fl_memory_fail_at(0, false);
    CHECK_CONTAINS(t.words, "memory");
    fails_with(&t, "");
}
