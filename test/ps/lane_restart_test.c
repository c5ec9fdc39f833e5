/* lane_restart_test.c - a lane whose worker dies and is started again: the new
 * process has its place, and the old one has none any more; until it comes the
 * lane and the other workers wait. */
#define SUITE lane_restart
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>

enum { PEER_MS = 1000, STEP_MS = 5000 }; /* the kit's */
enum { RESTART_MS = 9000 };

/* As peer `from`, of a process of the worker's log. */
static void say_hello(lane_kit *k, uint32_t worker, int life, int from)
{
    fl_msg_head head = lane_head(FL_MSG_HELLO, worker, 0, 0);
    char text[400], life_text[30] = "";
    fl_msg_writer w;

    if (life > 0)
        snprintf(life_text, sizeof life_text, "\"life\":%d,", life);
    snprintf(text, sizeof text,
             "{\"job\":\"job\",\"mode\":\"ps-sync\",\"program\":\"program\\n\","
             "\"who\":\"here:%d\",\"isa\":\"plain\",\"nonce\":\"log%u\",%s"
             "\"workers\":%d,\"servers\":1,\"server\":0}",
             life, worker, life_text, k->n_stream);
    head.incarnation = 0;
    head.job = fl_msg_job("job", 0);
    head.peer = 0;
    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    lane_tell(k, &w, from);
}

static void open_lane(lane_kit *k, int n_stream, int64_t restart_ms)
{
    lane_restart_ms = restart_ms;
    lane_open(k, SIM_SGD, n_stream, true);
    lane_restart_ms = 0;
}

static void enter(lane_kit *k, uint32_t worker, int life, int from)
{
    say_hello(k, worker, life, from);
    lane_hear_status(k, from, FL_ANSWER_OK);
    CHECK_INT(k->msg.head.incarnation, life);
}

/* Of a process whose incarnation is given. */
static void push_as(lane_kit *k, uint32_t incarnation, uint32_t worker,
                    uint64_t step)
{
    lane_push_as(k, incarnation, worker, step, 5 + worker, 1);
}

TEST(a_worker_that_is_started_again_has_the_place_of_the_dead_process)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    enter(&k, 1, 1, 1);
    push_as(&k, 1, 0, 1); /* which its process does not hear of any more */
    lane_silent(&k);
    enter(&k, 0, 2, 0);
    enter(&k, 0, 2, 0); /* said once more */
    push_as(&k, 1, 1, 1);
    lane_silent(&k); /* what the dead process has begun is forgotten */
    push_as(&k, 2, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    push_as(&k, 2, 0, 1); /* it has not heard so, has died, and sends again */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

TEST(a_process_that_was_replaced_is_told_so)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    enter(&k, 0, 2, 0);
    push_as(&k, 1, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_FENCED);
    say_hello(&k, 0, 1, 0);
    lane_hear_refusal(&k, 0,
                      "worker 0 was started again: here:2 has taken the "
                      "place of here:1");
    enter(&k, 0, 5, 0); /* two that no lane has heard of have died meanwhile */
    lane_close(&k);
}

/* Somebody who has started worker 0 twice, in another folder or without a log,
 * or where nothing says that workers may be started again. */
TEST(who_does_not_go_on_with_the_log_does_not_get_the_place)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    say_hello(&k, 0, 0, 0); /* another message of the same process */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.incarnation, 1);
    lane_close(&k);
    open_lane(&k, 2, 0);
    enter(&k, 0, 1, 0);
    say_hello(&k, 0, 2, 0);
    lane_hear_status(&k, 0, FL_ANSWER_TAKEN);
    lane_close(&k);
}

static void say_alive(lane_kit *k, uint32_t incarnation, uint32_t worker)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, worker, 0, 0);
    fl_msg_writer w;

    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    lane_tell(k, &w, (int)worker);
    lane_hear_status(k, (int)worker, FL_ANSWER_OK);
}

/* Nothing waits any more. */
TEST(the_deadline_of_a_step_goes_with_its_process)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    enter(&k, 1, 1, 1);
    push_as(&k, 1, 0, 1);
    enter(&k, 0, 2, 0);
    for (int64_t end = k.now_ms + STEP_MS + PEER_MS; k.now_ms < end;) {
        lane_tick_until(&k, k.now_ms + 500);
        CHECK_OK(fl_lane_error(k.lane)->code);
        say_alive(&k, 2, 0);
        say_alive(&k, 1, 1);
    }
    push_as(&k, 1, 1, 1);
    push_as(&k, 2, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

/* Alive: worker 1, whose step waits; both of them speak ten times a second. */
static void wait_alone(lane_kit *k, int64_t ms)
{
    for (int64_t end = k->now_ms + ms; k->now_ms < end;) {
        lane_tick_until(k, k->now_ms + 100);
        if (fl_lane_error(k->lane)->code != FLEET_OK)
            return;
        lane_say(k, FL_MSG_HEARTBEAT, 1, 0, 0);
        lane_hear_status(k, 1, FL_ANSWER_WAITING);
        lane_hear_status(k, 1, FL_ANSWER_OK);
    }
}

static uint64_t progress_of(lane_kit *k)
{
    uint64_t applied;

    lane_say(k, FL_MSG_HEARTBEAT, 1, 0, 0);
    lane_hear_status(k, 1, FL_ANSWER_WAITING);
    applied = k->msg.answer.applied;
    CHECK_INT(k->msg.answer.missing_stream, 0);
    lane_hear_status(k, 1, FL_ANSWER_OK);
    return applied;
}

TEST(a_worker_that_is_gone_is_waited_for_and_no_other_deadline_ends_that)
{
    uint64_t before;
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    enter(&k, 1, 1, 1);
    push_as(&k, 1, 1, 1);
    before = progress_of(&k);
    wait_alone(&k, PEER_MS - 100);
    CHECK(progress_of(&k) == before);
    wait_alone(&k, 200);
    CHECK_CONTAINS(k.lines, "worker 0 (here:1) was not heard of for 1.1 s: it "
                            "is waited for, until it is started again, for 9.0 "
                            "s at most (restart deadline)");
    before = progress_of(&k);
    wait_alone(&k, STEP_MS + PEER_MS);
    CHECK_OK(fl_lane_error(k.lane)->code);
    CHECK(progress_of(&k) > before); /* so that worker 1 waits on */
    enter(&k, 0, 2, 0);
    CHECK_CONTAINS(k.lines, "worker 0 is back after 7.1 s");
    push_as(&k, 2, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

TEST(a_worker_that_is_not_started_again_ends_the_job_and_is_named)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    enter(&k, 0, 1, 0);
    enter(&k, 1, 1, 1);
    push_as(&k, 1, 1, 1);
    wait_alone(&k, RESTART_MS);
    CHECK_OK(fl_lane_error(k.lane)->code);
    wait_alone(&k, 200);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_EPEER);
    CHECK_TEXT(
        fl_lane_error(k.lane)->text,
        "worker 0 (here:1) is gone: server 0 has not heard of it for 9.1 "
        "s (restart deadline)");
    lane_close(&k);
}

/* It has died behind its last step, and says farewell once more. */
TEST(a_worker_that_has_left_may_come_to_say_so_again)
{
    lane_kit k;

    open_lane(&k, 1, RESTART_MS);
    enter(&k, 0, 1, 0);
    lane_say(&k, FL_MSG_STEP, 0, 1, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    enter(&k, 0, 2, 0);
    lane_close(&k);
}

/* Its strategy has none, and that of the server has. */
TEST(a_worker_without_a_log_is_not_waited_for)
{
    lane_kit k;

    open_lane(&k, 2, RESTART_MS);
    say_hello(&k, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    enter(&k, 1, 1, 1);
    push_as(&k, 1, 1, 1);
    wait_alone(&k, PEER_MS + 200);
    CHECK_TEXT(
        fl_lane_error(k.lane)->text,
        "worker 0 (here:0) is gone: server 0 has not heard of it for 1.1 "
        "s (peer deadline); it has left no log, and so cannot be started "
        "again");
    lane_close(&k);
}

/* A machine that has crashed had its server and its worker. */
TEST(a_worker_that_has_died_with_its_server_is_waited_for)
{
    fl_place_record place = {.stream = 0, .incarnation = 1, .nonce = 5};
    const fl_journal_record r = {.lsn = 1,
                                 .kind = FL_LANE_RECORD_PLACE,
                                 .size = sizeof place,
                                 .data = (const char *)&place};
    lane_kit k;

    open_lane(&k, 1, RESTART_MS);
    fl_lane_begin_replay(k.lane, k.now_ms);
    CHECK_OK(fl_lane_replay(k.lane, &r, k.now_ms));
    fl_lane_end_replay(k.lane, FLEET_OK, NULL, k.now_ms);
    lane_tick_until(&k, k.now_ms + RESTART_MS);
    CHECK_OK(fl_lane_error(k.lane)->code);
    lane_tick_until(&k, k.now_ms + 500);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text,
                   "worker 0 has not come within 9.0 s (restart deadline)");
    lane_close(&k);
}
