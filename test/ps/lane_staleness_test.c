/* lane_staleness_test.c - how far a worker in async may be ahead of the slowest
 * one: which pulls a lane holds, until when, whom they wait for, and what is
 * counted. Whole jobs are in sim/sim_staleness_test.c and ps_staleness_test.c.
 */
#define SUITE lane_staleness
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* --- a scene -------------------------------------------------------------- */

/* Workers that have come; nothing is left to hear. */
static void come(lane_kit *k, int n)
{
    for (int i = 0; i < n; i++) {
        lane_say(k, FL_MSG_HEARTBEAT, (uint32_t)i, 0, 0);
        lane_hear_status(k, i, FL_ANSWER_OK);
    }
}

static void open_with(lane_kit *k, int n, uint64_t max_staleness)
{
    lane_open_bounded(k, n, max_staleness);
    come(k, n);
}

static void push(lane_kit *k, uint32_t stream, uint64_t step)
{
    lane_push(k, stream, step, 5, 1);
    lane_hear_status(k, (int)stream, FL_ANSWER_OK);
}

static void push_to(lane_kit *k, uint32_t stream, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++)
        push(k, stream, step);
}

static void is_answered(lane_kit *k, uint32_t stream, uint64_t push)
{
    lane_pull_for(k, stream, push);
    lane_hear_status(k, (int)stream, FL_ANSWER_OK);
    CHECK_INT(k->msg.head.step, push); /* it is the pull's */
}

static void is_held(lane_kit *k, uint32_t stream, uint64_t push)
{
    lane_pull_for(k, stream, push);
    lane_silent(k);
}

/* A step without gradients, which is answered, or not yet. */
static void say_step(lane_kit *k, uint32_t stream, uint64_t step,
                     uint16_t flags)
{
    lane_say(k, FL_MSG_STEP, stream, step, flags | FL_MSG_END_OF_STEP);
}

static uint64_t count(const lane_kit *k, const char *name)
{
    fl_lane_counts n = fl_lane_counted(k->lane);
    uint64_t value = 0;

    CHECK(fl_lane_counts_find(&n, name, &value));
    return value;
}

/* --- the bound ------------------------------------------------------------ */

TEST(a_pull_waits_while_the_slowest_worker_is_more_steps_behind)
{
    lane_kit k;

    open_with(&k, 3, 2);
    push_to(&k, 0, 1, 2);
    push_to(&k, 1, 1, 1);
    is_answered(&k, 0, 3); /* 2 steps are done, the slowest has done none */
    push(&k, 0, 3);
    is_held(&k, 0, 4);
    push(&k, 1, 2); /* it is not the slowest */
    lane_silent(&k);
    lane_push(&k, 2, 1, 5, 1);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.step, 4);
    lane_silent(&k);
    lane_close(&k);
}

/* It is used after the step that has not come yet. */
TEST(a_prefetch_is_as_far_ahead_as_the_step_that_it_is_for)
{
    lane_kit k;

    open_with(&k, 2, 2);
    push_to(&k, 0, 1, 2);
    is_answered(&k, 0, 3);
    is_held(&k, 0, 4); /* before its third push */
    push(&k, 0, 3);
    lane_silent(&k);
    push_to(&k, 1, 1, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(a_worker_does_not_wait_for_its_own_steps)
{
    lane_kit k;

    open_with(&k, 1, 0);
    is_answered(&k, 0, 1);
    is_answered(&k, 0, 3);
    lane_close(&k);

    open_with(&k, 2, 0);
    push_to(&k, 1, 1, 1);
    is_answered(&k, 0, 1);
    is_answered(&k, 0, 2); /* of both it has done least */
    is_held(&k, 0, 3);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_silent(&k);
    lane_push(&k, 1, 2, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* before its second push */
    lane_close(&k);
}

/* Each worker's step is an update of its own, in the order in which they
 * come: that is not sync. */
TEST(with_a_bound_of_0_workers_are_in_step_and_each_update_is_one_workers)
{
    lane_kit k;

    open_with(&k, 2, 0);
    is_answered(&k, 0, 1);
    is_answered(&k, 1, 1);
    push(&k, 0, 1);
    CHECK_INT(fl_lane_version(k.lane), 1);
    is_held(&k, 0, 2);
    lane_push(&k, 1, 1, 5, 1);
    CHECK_INT(fl_lane_version(k.lane), 2);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.section[0].version, 2);
    lane_close(&k);
}

TEST(a_pull_that_nothing_is_trained_with_does_not_wait)
{
    lane_kit k;

    open_with(&k, 2, 0);
    push_to(&k, 0, 1, 5);
    is_answered(&k, 0, 0);
    lane_close(&k);
}

TEST(a_lane_without_a_bound_holds_nothing)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    come(&k, 2);
    push_to(&k, 0, 1, 5);
    is_answered(&k, 0, 6);
    CHECK_INT(count(&k, "fleet_lane_staleness_5_to_8_pulls_total"), 0);
    lane_close(&k);
}

/* A worker's save is a step of its stream, and no contribution. */
TEST(commands_are_no_steps_of_a_clock)
{
    lane_kit k;

    open_with(&k, 2, 1);
    lane_command(&k, 1, 1, "{}");
    fl_lane_command_done(k.lane, FLEET_OK, "saved", 0, 0, 0);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    push_to(&k, 0, 1, 2);
    is_held(&k, 0, 3);
    lane_push(&k, 1, 2, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* --- who counts ----------------------------------------------------------- */

TEST(a_worker_that_has_ended_its_pass_or_left_is_not_waited_for)
{
    lane_kit k;

    open_with(&k, 3, 1);
    push_to(&k, 0, 1, 3);
    push_to(&k, 1, 1, 1);
    is_held(&k, 0, 4);
    say_step(&k, 2, 1, FL_MSG_PASS_END); /* not answered */
    lane_silent(&k);
    lane_say(&k, FL_MSG_STEP, 1, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    push_to(&k, 0, 4, 9);
    is_answered(&k, 0, 10);
    lane_close(&k);
}

/* Of data that are shorter a worker makes fewer steps in each pass: that does
 * not add up. */
TEST(a_pass_begins_with_one_clock_for_all)
{
    lane_kit k;

    open_with(&k, 2, 1);
    push_to(&k, 0, 1, 1);
    say_step(&k, 0, 2, FL_MSG_PASS_END);
    push_to(&k, 1, 1, 6);
    is_answered(&k, 1, 7);
    say_step(&k, 1, 7, FL_MSG_PASS_END);
    for (int i = 0; i < 2; i++)
        lane_hear_status(&k, i, FL_ANSWER_OK);
    is_answered(&k, 1, 7);
    push_to(&k, 1, 8, 8);
    is_answered(&k, 1, 8); /* one step ahead */
    push_to(&k, 1, 9, 9);
    is_held(&k, 1, 9);
    lane_push(&k, 0, 3, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(a_worker_that_has_not_come_does_not_count_and_begins_with_the_slowest)
{
    lane_kit k;

    lane_open_bounded(&k, 3, 1);
    come(&k, 2);
    push_to(&k, 0, 1, 5);
    is_held(&k, 0, 6);
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    push_to(&k, 1, 2, 3);
    lane_push(&k, 1, 4, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* 5 of 4 */
    is_answered(&k, 2, 1);                 /* it comes, at 4 */
    push_to(&k, 1, 5, 5);
    is_answered(&k, 0, 6);
    push_to(&k, 0, 6, 6);
    is_held(&k, 0, 7); /* for that one alone */
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_WAITING);
    CHECK_INT(k.msg.answer.missing_stream, 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 2, 1, 5, 1);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* It is the same worker, and goes on behind what it had done. */
TEST(a_worker_whose_process_is_another_one_keeps_its_clock)
{
    fl_msg_head head;
    fl_msg_writer w;
    lane_kit k;

    open_with(&k, 3, 2);
    push_to(&k, 0, 1, 5);
    push_to(&k, 1, 1, 4);
    push_to(&k, 2, 1, 1);
    is_held(&k, 0, 4);
    head = lane_head(FL_MSG_HEARTBEAT, 2, 0, 0);
    head.incarnation = 2;
    lane_begin(&k, &w, &head);
    lane_tell(&k, &w, 2);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    lane_silent(&k);
    lane_push_as(&k, 2, 2, 2, 5, 1);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    lane_silent(&k);
    lane_push_as(&k, 2, 2, 3, 5, 1);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* 5 ahead of 3 */
    lane_close(&k);
}

/* --- while it waits ------------------------------------------------------- */

static void check_waits(lane_kit *k, int to, uint32_t missing)
{
    lane_hear_status(k, to, FL_ANSWER_WAITING);
    CHECK_INT(k->msg.head.kind, FL_MSG_ANSWER);
    CHECK_INT(k->msg.answer.missing_stream, missing);
    CHECK_INT(k->msg.answer.applied,
              k->lane->stream[missing < 9 ? missing : 0].progress);
}

TEST(a_heartbeat_is_told_whom_the_pull_waits_for_and_how_far_that_one_is)
{
    uint64_t before;
    lane_kit k;

    open_with(&k, 3, 0);
    push_to(&k, 0, 1, 2);
    push_to(&k, 1, 1, 1);
    is_held(&k, 0, 3);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 2);
    before = k.msg.answer.applied;
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    is_answered(&k, 2, 1); /* it gets on */
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 2);
    CHECK(k.msg.answer.applied > before);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    push(&k, 2, 1); /* now it is as slow as the other one */
    k.now_ms = 50;
    is_answered(&k, 2, 2);
    push(&k, 2, 2);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 1);
    lane_close(&k);
}

/* Of workers that are equally slow it is the one that has not got on for
 * longest: it may hang. */
TEST(of_equally_slow_workers_the_one_without_progress_is_named)
{
    lane_kit k;

    open_with(&k, 3, 0);
    push_to(&k, 0, 1, 1);
    k.now_ms = 100;
    is_answered(&k, 1, 1);
    is_held(&k, 0, 2);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 2);
    lane_close(&k);
}

/* The worker that has got on least lately may itself wait for a slower one. */
TEST(who_waits_for_a_pass_to_end_is_told_of_the_slowest_worker)
{
    lane_kit k;

    open_with(&k, 3, 1);
    push_to(&k, 2, 1, 2);
    k.now_ms = 100;
    push_to(&k, 1, 1, 1);
    say_step(&k, 0, 1, FL_MSG_PASS_END);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 2); /* its next pull may come */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    k.now_ms = 200;
    push_to(&k, 2, 3, 3);
    k.now_ms = 300;
    is_answered(&k, 1, 2);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    check_waits(&k, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_silent(&k);
    lane_close(&k);
}

/* A pull for which there is no room waits for the same worker. */
TEST(a_pull_that_is_not_kept_is_told_whom_it_waits_for)
{
    lane_kit k;

    open_with(&k, 2, 0);
    push_to(&k, 0, 1, 3);
    for (int i = 0; i < 3; i++)
        is_held(&k, 0, 4);
    lane_pull_for(&k, 0, 4);
    check_waits(&k, 0, 1);
    CHECK_INT(count(&k, "fleet_lane_dropped_requests_total"), 1);
    CHECK_INT(count(&k, "fleet_lane_held_pulls_total"), 3);
    lane_close(&k);
}

/* Not of what other workers do: it hangs, and a heartbeat is no progress. */
TEST(a_slow_worker_that_is_gone_is_named_by_the_peer_deadline)
{
    lane_kit k;

    open_with(&k, 2, 0);
    push_to(&k, 0, 1, 1);
    is_held(&k, 0, 2);
    for (k.now_ms = 100; k.now_ms <= 1200; k.now_ms += 100) {
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
        fl_lane_tick(k.lane, k.now_ms);
    }
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 1 is gone");
    lane_close(&k);
}

/* --- what is counted ------------------------------------------------------ */

/* A pull of each staleness from 0 to 70. */
TEST(each_pull_is_counted_by_its_staleness)
{
    static const struct {
        const char *name;
        uint64_t n;
    } want[] = {{"0", 1},         {"1", 1},         {"2", 1},
                {"3_to_4", 2},    {"5_to_8", 4},    {"9_to_16", 8},
                {"17_to_32", 16}, {"33_to_64", 32}, {"over_64", 6}};
    lane_kit k;

    open_with(&k, 2, 1000);
    for (uint64_t i = 0; i <= 70; i++) {
        is_answered(&k, 0, i + 1);
        push(&k, 0, i + 1);
    }
    is_answered(&k, 0, 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char name[80];

        snprintf(name, sizeof name, "fleet_lane_staleness_%s_pulls_total",
                 want[i].name);
        CHECK_INT(count(&k, name), want[i].n);
    }
    is_answered(&k, 1, 1); /* the slowest one's */
    CHECK_INT(count(&k, "fleet_lane_staleness_0_pulls_total"), 2);
    CHECK_INT(count(&k, "fleet_lane_held_pulls_total"), 0);
    lane_close(&k);
}

TEST(the_log_has_the_pulls_by_staleness_where_it_is_bounded)
{
    fl_lane_counts n = {.stale_0 = 7, .stale_over_64 = 3, .held = 2};
    lane_kit k;

    open_with(&k, 1, 0);
    fl_lane_counts_log(&n, &k.log, 0);
    CHECK_CONTAINS(k.lines, "pulls of staleness 0: 7, 1: 0");
    CHECK_CONTAINS(k.lines, "more: 3; 2 pulls waited for slower workers");
    k.lines[0] = 0;
    n.stale_0 = 0;
    fl_lane_counts_log(&n, &k.log, 0);
    CHECK(!strstr(k.lines, "staleness"));
    lane_close(&k);
}
