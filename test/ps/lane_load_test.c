/* lane_load_test.c - a lane whose server begins with a load: workers get their
 * places meanwhile, and hear how far it is, or why it fails. */
#define SUITE lane_load
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>

#include "base/memory.h"

enum { CONNECT_MS = 3000, PEER_MS = 1000 }; /* the kit's */

static void say_hello(lane_kit *k, uint32_t worker)
{
    fl_msg_head head = lane_head(FL_MSG_HELLO, worker, 0, 0);
    int server = k->layout.n_server - 1;
    char text[400];
    fl_msg_writer w;

    snprintf(text, sizeof text,
             "{\"job\":\"job\",\"mode\":\"ps-sync\",\"program\":\"program\\n\","
             "\"who\":\"here:%u\",\"isa\":\"plain\",\"nonce\":\"n%u\","
             "\"workers\":%d,\"servers\":%d,\"server\":%d}",
             worker, worker, k->n_stream, server + 1, server);
    head.incarnation = 0;
    head.job = fl_msg_job("job", server == 0 ? 0 : LANE_RUN);
    head.peer = 0;
    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    lane_tell(k, &w, (int)worker);
}

static void begin_load(lane_kit *k)
{
    k->loads = true;
    fl_lane_begin_load(k->lane, k->now_ms);
}

static void end_load(lane_kit *k, fleet_status status, const char *text)
{
    fl_lane_command_done(k->lane, status, text, 0, 0, k->now_ms);
    k->loads = status != FLEET_OK;
}

static void open_loading(lane_kit *k, int n_stream)
{
    lane_open(k, SIM_SGD, n_stream, true);
    begin_load(k);
}

/* Time goes by, with a hello of each of the workers in each half of the peer
 * deadline, and a byte loaded if it gets on. */
static void wait(lane_kit *k, int64_t ms, int n_worker, bool gets_on)
{
    for (int64_t end = k->now_ms + ms; k->now_ms < end;) {
        lane_tick_until(k, k->now_ms + PEER_MS / 2);
        k->command_progress += gets_on;
        for (int i = 0; i < n_worker && k->n_sent < LANE_MOST_SENT / 2; i++)
            say_hello(k, (uint32_t)i);
        if (fl_lane_error(k->lane)->code == FLEET_OK)
            for (int i = 0; i < n_worker; i++)
                lane_hear_status(k, i, FL_ANSWER_COMING);
    }
}

TEST(a_worker_that_comes_while_its_server_loads_hears_how_far_it_is)
{
    lane_kit k;

    open_loading(&k, 1);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    CHECK_INT(k.msg.answer.applied, 0);
    CHECK_INT(k.msg.answer.durable, 0);
    CHECK_INT(k.msg.head.incarnation, 1);
    CHECK_INT(k.msg.head.peer, LANE_NONCE);
    k.command_progress = 40;
    k.load_total = 100;
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    CHECK_INT(k.msg.answer.applied, 40);
    CHECK_INT(k.msg.answer.durable, 100);
    CHECK_INT(k.msg.head.incarnation, 1);
    k.store->updates = 9;
    end_load(&k, FLEET_OK, "loaded");
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 9);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.n_section, 1);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* This lane has what it needs; another one of its server has not. */
TEST(a_worker_is_not_let_in_before_all_lanes_of_the_server_have_loaded)
{
    lane_kit k;

    open_loading(&k, 1);
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    k.loads = false;
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* A load of minutes is no reason to miss a worker that has not come yet, and
 * none to forget one that has. */
TEST(the_deadlines_of_workers_begin_when_all_is_loaded)
{
    lane_kit k;

    open_loading(&k, 2);
    wait(&k, 10 * CONNECT_MS, 1, true);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    end_load(&k, FLEET_OK, "loaded");
    for (int i = 0; i < 5; i++) {
        lane_tick_until(&k, k.now_ms + PEER_MS / 2);
        say_hello(&k, 0);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    }
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, k.now_ms + PEER_MS);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 1 has not come");
    lane_close(&k);
}

TEST(a_worker_that_dies_while_its_server_loads_is_missed)
{
    lane_kit k;

    open_loading(&k, 1);
    wait(&k, CONNECT_MS, 1, true);
    lane_tick_until(&k, k.now_ms + PEER_MS + 200);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 0 (here:0) is gone");
    lane_close(&k);
}

/* --- it fails ------------------------------------------------------------- */

TEST(a_server_that_cannot_load_stays_until_each_worker_was_told)
{
    lane_kit k;

    open_loading(&k, 2);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    end_load(&k, FLEET_ECORRUPT, "load: a part is damaged");
    lane_silent(&k);
    say_hello(&k, 0);
    lane_hear_refusal(&k, 0, "load: a part is damaged");
    CHECK_INT(k.msg.head.step, FLEET_ECORRUPT);
    lane_tick_until(&k, k.now_ms + CONNECT_MS - 100);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    say_hello(&k, 1);
    lane_hear_refusal(&k, 1, "load: a part is damaged");
    lane_tick_until(&k, k.now_ms + 100);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_ECORRUPT);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "load: a part is damaged");
    CHECK_CONTAINS(k.lines, "server 0 cannot begin: load: a part is damaged");
    lane_close(&k);
}

TEST(a_server_that_cannot_load_does_not_wait_for_workers_for_ever)
{
    lane_kit k;

    open_loading(&k, 1);
    end_load(&k, FLEET_ENOENT, "load: it is gone");
    lane_tick_until(&k, k.now_ms + CONNECT_MS - 100);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, k.now_ms + 300);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_ENOENT);
    lane_close(&k);
}

/* What was loaded is half of it: nobody is to see it. */
TEST(a_server_that_cannot_load_serves_nobody)
{
    lane_kit k;

    open_loading(&k, 1);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    lane_pull(&k, 0, 0, 1); /* too early: it waits */
    lane_silent(&k);
    end_load(&k, FLEET_ECORRUPT, "load: a part is damaged");
    lane_silent(&k);
    lane_pull(&k, 0, 0, 1);
    CHECK_INT(lane_hear(&k, 0)->head.kind, FL_MSG_ABORT);
    lane_tick_until(&k, k.now_ms + 100);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED); /* all were told */
    lane_close(&k);
}

TEST(a_load_that_does_not_get_on_fails_at_the_connect_deadline)
{
    lane_kit k;

    open_loading(&k, 1);
    wait(&k, 3 * CONNECT_MS, 1, true);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_OK);
    wait(&k, CONNECT_MS - 500, 1, false);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_OK);
    lane_tick_until(&k, k.now_ms + 900);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text,
                   "the load of server 0 has not got on for 3.");
    say_hello(&k, 0);
    lane_hear_refusal(&k, 0, "the load of server 0 has not got on for 3.");
    lane_close(&k);
}

/* Workers that have not come yet are to hear why it ends, too. */
TEST(a_worker_that_gives_up_while_its_server_loads_is_quoted_to_the_others)
{
    fl_msg_head head = lane_head(FL_MSG_ABORT, 0, FLEET_EIO, 0);
    fl_msg_writer w;
    lane_kit k;

    open_loading(&k, 2);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    lane_begin(&k, &w, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, "server 1 has no disk");
    lane_tell(&k, &w, 0);
    lane_silent(&k);
    lane_tick_until(&k, k.now_ms + 500);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    say_hello(&k, 1);
    lane_hear_refusal(&k, 1, "server 1 has no disk");
    lane_tick_until(&k, k.now_ms + 100);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_EIO);
    lane_close(&k);
}

/* --- runs ----------------------------------------------------------------- */

/* A load is nothing that was done for a worker. */
TEST(a_server_that_loads_takes_its_run_from_the_first_worker)
{
    lane_kit k;

    lane_open_second(&k);
    begin_load(&k);
    say_hello(&k, 0);
    lane_hear_status(&k, 0, FL_ANSWER_COMING);
    CHECK_TEXT(fl_lane_error(k.lane)->text, "");
    CHECK_INT(fl_msg_run(k.msg.head.job), LANE_RUN);
    lane_close(&k);
}

/* --- a load of a job that runs -------------------------------------------- */

/* However often, and nothing else of the worker is held up by that. */
TEST(heartbeats_are_answered_during_a_load_and_say_how_far_it_is)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_load(&k, 0, 1, "a path");
    lane_silent(&k);
    for (uint64_t i = 1; i <= 30; i++) {
        k.command_progress = i * 1000;
        lane_tick_until(&k, k.now_ms + PEER_MS / 2);
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
        lane_hear_status(&k, 0, FL_ANSWER_WAITING);
        CHECK_INT(k.msg.answer.missing_stream, FL_NOBODY);
        CHECK_INT(k.msg.answer.applied, i * 1000);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        lane_silent(&k);
    }
    end_load(&k, FLEET_OK, "loaded");
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* It has read its own log; other lanes of its server have not. */
TEST(a_lane_gets_on_while_other_lanes_of_its_server_read_their_logs)
{
    uint64_t before = 0;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    k.loads = true;
    fl_lane_begin_replay(k.lane, k.now_ms);
    for (int i = 0; i < 10; i++) {
        k.command_progress++;
        lane_tick_until(&k, k.now_ms + CONNECT_MS / 2);
        CHECK_OK(fl_lane_error(k.lane)->code);
        lane_push(&k, 0, 1, 5, 1);
        lane_hear_status(&k, 0, FL_ANSWER_WAITING);
        CHECK(k.msg.answer.applied > before);
        before = k.msg.answer.applied;
    }
    lane_tick_until(&k, k.now_ms + CONNECT_MS + 500);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text,
                   "the load of server 0 has not got on for 3.");
    lane_close(&k);
}
