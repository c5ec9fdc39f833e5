/* lane_waits_test.c - what a lane has all workers wait for: numbers of all of
 * them, and how long, and who is named when it is too long. */
#define SUITE lane_waits
#include "lane_kit.h"
#include "test.h"

/* --- numbers of all workers
 * ---------------------------------------------------
 */

static void check_mismatch(int how_1, int n_1)
{
    const double x[] = {3, 4};
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_numbers(&k, 0, 1, 0, x, 2);
    lane_numbers(&k, 1, 1, how_1, x, n_1);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_EINVAL);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 1 has come to");
    lane_close(&k);
}

TEST(workers_must_bring_the_same_kind_of_numbers)
{
    check_mismatch(0, 1);
    check_mismatch(0, 0);
    check_mismatch(1, 2);
}

TEST(a_sum_is_told_again)
{
    const double x = 3;
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_numbers(&k, 0, 1, 0, &x, 1);
    lane_numbers(&k, 0, 1, 0, &x, 1);
    lane_numbers(&k, 1, 1, 0, &x, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_silent(&k);
    lane_numbers(&k, 0, 1, 0, &x, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(*(const double *)k.msg.column[0][3].data == 6);
    lane_numbers(&k, 0, 3, 0, &x, 1); /* before its turn */
    lane_silent(&k);
    lane_close(&k);
}

/* --- deadlines ------------------------------------------------------------ */

/* Both send heartbeats; time goes on. */
static void pass_time(lane_kit *k, int64_t ms)
{
    for (int64_t end = k->now_ms + ms; k->now_ms < end; k->now_ms += 100) {
        for (uint32_t i = 0; i < 2; i++)
            lane_say(k, FL_MSG_HEARTBEAT, i, 0, 0);
        fl_lane_tick(k->lane, k->now_ms);
        while (k->n_sent > 0)
            lane_hear(k, k->sent[0].to);
    }
}

static void check_late(const lane_kit *k, const char *words)
{
    CHECK_INT(fl_lane_state_of(k->lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k->lane)->code, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, words);
}

TEST(the_step_deadline_says_what_the_step_has_waited_for)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    pass_time(&k, 6000);
    check_late(&k, "worker 1 has kept the others waiting for 5.");
    lane_close(&k);

    lane_open(&k, SIM_SGD_CLIP, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    lane_push(&k, 1, 1, 5, 1);
    pass_time(&k, 6000);
    check_late(&k, "waits for its clip");
    lane_close(&k);

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    lane_command(&k, 1, 1, "{}");
    pass_time(&k, 6000);
    check_late(&k, "waits for a save or a load");
    lane_close(&k);
}

static fleet_status drop_record(void *arg, uint16_t kind,
                                const fl_journal_part *part, size_t n)
{
    (void)arg, (void)kind, (void)part, (void)n;
    return FLEET_OK;
}

static fleet_status drop_commit(void *arg)
{
    (void)arg;
    return FLEET_OK;
}

/* A command has to wait for it, and the step for the command. */
TEST(the_step_deadline_names_a_snapshot)
{
    const fl_journal_sink to = {NULL, drop_record, drop_commit};
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    CHECK_OK(fl_lane_freeze(k.lane, &to));
    lane_push(&k, 0, 1, 5, 1);
    lane_command(&k, 1, 1, "{}");
    pass_time(&k, 6000);
    check_late(&k, "waits for a snapshot");
    fl_lane_thaw(k.lane, k.now_ms);
    lane_close(&k);
}

/* As pass_time(), while worker 1 says with each heartbeat that it gets on. */
static void pass_time_with_progress(lane_kit *k, int64_t ms)
{
    for (int64_t end = k->now_ms + ms; k->now_ms < end;) {
        lane_say(k, FL_MSG_HEARTBEAT, 1, (uint64_t)k->now_ms + 1, 0);
        pass_time(k, 500);
    }
}

TEST(the_step_deadline_runs_from_the_last_progress_of_who_is_missing)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    pass_time(&k, 4000);
    lane_say(&k, FL_MSG_PULL, 1, 0, 0); /* it tests a model, say */
    pass_time(&k, 4000);
    pass_time_with_progress(&k, 20000);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_push(&k, 1, 1, 5, 1);
    while (k.n_sent > 0)
        lane_hear_status(&k, k.sent[0].to, FL_ANSWER_OK);
    lane_push(&k, 0, 2, 5, 1);
    pass_time(&k, 6000);
    check_late(&k, "worker 1 has kept the others waiting for 5.");
    lane_close(&k);
}

TEST(a_repeated_message_is_no_progress)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 1, 0, 0);
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    for (int i = 0; i < 8; i++) {
        fl_msg_writer w;

        lane_begin(&k, &w, &head);
        lane_tell(&k, &w, 1);
        pass_time(&k, 1000);
    }
    check_late(&k, "worker 1 has kept the others waiting for 5.");
    lane_close(&k);
}

TEST(a_save_that_writes_may_take_as_long_as_it_likes)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    lane_command(&k, 1, 1, "{}");
    for (int i = 0; i < 8; i++) {
        pass_time(&k, 4000);
        k.command_progress += 1000;
    }
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    pass_time(&k, 6000);
    check_late(&k, "waits for a save or a load, for 5.");
    lane_close(&k);
}

/* What the lane says to worker 0 with its next heartbeat. */
static fl_msg_answer told_waiting(lane_kit *k, uint32_t missing)
{
    fl_msg_answer a;

    lane_say(k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(k, 0, FL_ANSWER_WAITING);
    a = k->msg.answer;
    CHECK_INT(a.missing_stream, missing);
    lane_hear_status(k, 0, FL_ANSWER_OK);
    return a;
}

TEST(who_waits_is_told_how_far_the_slowest_of_the_missing_is)
{
    uint64_t before;
    lane_kit k;

    lane_open(&k, SIM_SGD, 3, false);
    k.now_ms = 10;
    for (uint32_t i = 0; i < 3; i++) {
        lane_push(&k, i, 1, 5, 1);
        lane_hear_status(&k, (int)i, FL_ANSWER_OK);
        k.now_ms += 10;
    }
    lane_say(&k, FL_MSG_STEP, 0, 2, FL_MSG_PASS_END | FL_MSG_END_OF_STEP);
    before = told_waiting(&k, 1).applied;
    CHECK(told_waiting(&k, 1).applied == before);
    lane_push(&k, 1, 2, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    k.now_ms += 10;
    told_waiting(&k, 2);
    lane_push(&k, 2, 2, 5, 1);
    lane_hear_status(&k, 2, FL_ANSWER_OK);
    CHECK(told_waiting(&k, 1).applied > before);
    lane_say(&k, FL_MSG_HEARTBEAT, 1, 77, 0); /* it gets on elsewhere */
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    told_waiting(&k, 2);
    lane_close(&k);

    lane_open(&k, SIM_SGD, 2, false);
    lane_command(&k, 0, 1, "{}");
    k.command_progress = 77;
    CHECK_INT(told_waiting(&k, FL_NOBODY).applied, 77);
    lane_close(&k);
}

TEST(who_does_not_come_and_who_goes_silent_is_named)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_tick_until(&k, 1000);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, 1001);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_EPEER);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 0 is gone");
    lane_close(&k);

    lane_open(&k, SIM_SGD, 2, true);
    for (int64_t ms = 500; ms <= 3000; ms += 500) {
        lane_tick_until(&k, ms);
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    }
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, 3001);
    CHECK_INT(fl_lane_error(k.lane)->code, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 1 has not come");
    lane_close(&k);
}

/* --- a process that does not run ------------------------------------------ */

TEST(a_lane_that_has_slept_has_not_heard_a_silence)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    lane_say(&k, FL_MSG_HEARTBEAT, 1, 0, 0);
    for (int i = 0; i < 10; i++) { /* each longer than any deadline */
        k.now_ms += 100000;
        fl_lane_tick(k.lane, k.now_ms);
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
        lane_say(&k, FL_MSG_HEARTBEAT, 1, 0, 0);
        while (k.n_sent > 0)
            lane_hear(&k, k.sent[0].to);
    }
    lane_tick_until(&k, k.now_ms + 990);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, k.now_ms + 20);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "is gone");
    lane_close(&k);
}

TEST(a_lane_that_seldom_runs_finds_a_dead_worker_nevertheless)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    for (int i = 0; i < 5; i++)
        fl_lane_tick(k.lane, k.now_ms += 100000);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text, "worker 0 is gone");
    lane_close(&k);
}
