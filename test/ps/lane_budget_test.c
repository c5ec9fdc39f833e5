/* lane_budget_test.c - no worker makes a lane keep more than its share: of open
 * steps, of requests that wait, of answers that it does not read; no other
 * worker notices, and who goes on gets all that it has asked for. */
#define SUITE lane_budget
#include "lane_kit.h"
#include "test.h"

#include <string.h>

/* An answer of 2,000 rows has 24,000 bytes: two of them fit. */
enum { UNREAD = 64 << 10, MOST_SMALL = UNREAD / 16, ROWS = 2000 };
enum { PARKED = 30 << 10, AROUND = 4 << 10 };

static fl_lane_counts counts(const lane_kit *k)
{
    return fl_lane_counted(k->lane);
}

/* What was heard is given back. */
static void forget_heard(lane_kit *k)
{
    fl_packet_drop(k->heard);
    k->heard = NULL;
}

/* Nothing is kept any more. */
static void check_empty(lane_kit *k)
{
    forget_heard(k);
    CHECK_INT(k->n_sent, 0);
    CHECK_INT(counts(k).open_bytes, 0);
    CHECK_INT(counts(k).parked_bytes, 0);
    CHECK_INT(counts(k).answer_bytes, 0);
}

static void close_empty(lane_kit *k)
{
    check_empty(k);
    lane_close(k);
}

/* As the lane's host does between two messages. */
static int resume(lane_kit *k)
{
    return fl_lane_resume(k->lane, ++k->now_ms);
}

/* --- answers -------------------------------------------------------------- */

TEST(a_worker_that_does_not_read_gets_its_share_and_the_rest_when_it_reads)
{
    uint64_t request;
    lane_kit k;

    lane_open_small(&k, 2, false, 0, UNREAD);
    for (int i = 0; i < 10; i++)
        lane_pull(&k, 0, 0, ROWS);
    CHECK_INT(k.n_sent, 2);
    CHECK(counts(&k).answer_bytes > 2 * 24000);
    CHECK(counts(&k).answer_bytes <= UNREAD);
    CHECK_INT(counts(&k).deferred, 8);
    CHECK_INT(counts(&k).pulls, 2);
    CHECK(counts(&k).parked_bytes > 8 * ROWS * sizeof(uint64_t));
    CHECK(resume(&k) > 0);
    CHECK_INT(k.n_sent, 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    request = k.msg.head.request;
    for (uint64_t i = 1; i < 10; i++) {
        CHECK(k.n_sent <= 2);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        CHECK_INT(k.msg.head.request, request + i);
        CHECK_INT(k.msg.column[0][FL_AT_VALUES].size, ROWS * 12);
        resume(&k);
    }
    CHECK_INT(resume(&k), -1);
    CHECK_INT(counts(&k).pulls, 10);
    CHECK_INT(counts(&k).dropped, 0);
    close_empty(&k);
}

TEST(no_other_worker_notices)
{
    fl_packet *unread[2];
    lane_kit k;

    lane_open_small(&k, 2, false, 0, UNREAD);
    for (int i = 0; i < 5; i++)
        lane_pull(&k, 0, 0, ROWS);
    CHECK_INT(k.n_sent, 2);
    for (int i = 0; i < 2; i++) {
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        unread[i] = fl_packet_keep(k.heard);
    }
    for (int i = 0; i < 20; i++) {
        lane_pull(&k, 1, 0, ROWS);
        lane_hear_status(&k, 1, FL_ANSWER_OK);
    }
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    resume(&k);
    lane_silent(&k);
    CHECK_INT(counts(&k).updates, 1);
    for (int i = 0; i < 2; i++)
        fl_packet_drop(unread[i]);
    lane_close(&k);
}

TEST(each_worker_has_a_share_of_its_own)
{
    for (uint32_t first = 0; first < 2; first++) {
        lane_kit k;

        lane_open_small(&k, 2, false, 0, UNREAD);
        for (int i = 0; i < 5; i++)
            lane_pull(&k, first, 0, ROWS);
        CHECK_INT(k.n_sent, 2);
        for (int i = 0; i < 5; i++)
            lane_pull(&k, 1 - first, 0, ROWS);
        CHECK_INT(k.n_sent, 4);
        CHECK_INT(k.sent[3].to, 1 - first);
        CHECK_INT(counts(&k).deferred, 6);
        lane_close(&k);
    }
}

TEST(one_answer_may_always_be_on_its_way)
{
    lane_kit k;

    lane_open_small(&k, 1, false, 0, 1000);
    lane_pull(&k, 0, 0, ROWS);
    lane_pull(&k, 0, 0, 1);
    CHECK_INT(k.n_sent, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    resume(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    close_empty(&k);
}

TEST(a_pull_of_more_than_a_share_is_refused)
{
    lane_kit k;

    lane_open_small(&k, 1, false, 0, 0);
    lane_pull(&k, 0, 0, (16 << 20) / 12);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_pull(&k, 0, 0, (16 << 20) / 12 + 1);
    lane_hear_refusal(
        &k, 0,
        "a pull of worker 0: it asks for 16777224 bytes: expected "
        "16777216");
    close_empty(&k);
}

/* Its heartbeats say that the pull is known; the same pull again is the same.
 * Pulls that are answered are progress of the lane's. */
TEST(a_pull_that_waits_for_its_reader_is_not_lost)
{
    uint64_t applied;
    lane_kit k;

    lane_open_small(&k, 1, true, 0, UNREAD);
    for (int i = 0; i < 4; i++)
        lane_pull(&k, 0, 0, ROWS);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    CHECK_INT(k.n_sent, 5);
    for (int i = 0; i < 2; i++)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    for (int i = 0; i < 2; i++) {
        lane_hear_status(&k, 0, FL_ANSWER_WAITING);
        CHECK_INT(k.msg.answer.missing_stream, FL_NOBODY);
        applied = k.msg.answer.applied;
        CHECK_INT(applied, 2);
    }
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    resume(&k);
    for (int i = 0; i < 2; i++)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(counts(&k).pulls, 4);
    close_empty(&k);
}

/* A second copy of it is not parked again. */
TEST(a_pull_that_waits_is_parked_once)
{
    fl_msg_head head;
    fl_msg_writer w;
    lane_kit k;

    lane_open_small(&k, 1, false, 0, UNREAD);
    lane_pull(&k, 0, 0, ROWS);
    lane_pull(&k, 0, 0, ROWS);
    head = lane_head(FL_MSG_PULL, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        fl_section *s;

        lane_begin(&k, &w, &head);
        s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
        s->n_key = ROWS;
        memset(fl_msg_column(&w, FL_COLUMN_KEYS, ROWS * 8), 0, ROWS * 8);
        lane_tell(&k, &w, 0);
    }
    CHECK_INT(counts(&k).deferred, 1);
    for (int i = 0; i < 2; i++)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    resume(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.request, head.request);
    CHECK_INT(resume(&k), -1);
    close_empty(&k);
}

/* The host need not look more often than workers read. */
TEST(the_longer_it_is_not_read_the_longer_it_takes_to_look_again)
{
    int soon, late;
    lane_kit k;

    lane_open_small(&k, 1, false, 0, UNREAD);
    CHECK_INT(resume(&k), -1);
    for (int i = 0; i < 3; i++)
        lane_pull(&k, 0, 0, ROWS);
    soon = resume(&k);
    CHECK(soon == 1);
    k.now_ms += 200;
    late = resume(&k);
    CHECK(late > 20 && late < 200);
    while (k.n_sent > 0)
        lane_hear(&k, 0);
    forget_heard(&k);
    CHECK_INT(resume(&k), -1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    close_empty(&k);
}

/* A tick does it, too. */
TEST(a_tick_looks_after_what_waits)
{
    lane_kit k;

    lane_open_small(&k, 1, false, 0, UNREAD);
    for (int i = 0; i < 3; i++)
        lane_pull(&k, 0, 0, ROWS);
    for (int i = 0; i < 2; i++)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    lane_tick_until(&k, 100);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    close_empty(&k);
}

/* In sync: pulls of the version that comes wait for the update, then for the
 * reader. */
TEST(a_pull_of_the_next_version_waits_for_both)
{
    lane_kit k;

    lane_open_small(&k, 1, true, 0, UNREAD);
    for (int i = 0; i < 4; i++)
        lane_pull(&k, 0, 1, ROWS);
    lane_silent(&k);
    CHECK_INT(counts(&k).deferred, 0);
    lane_push(&k, 0, 1, 5, 1);
    CHECK_INT(k.n_sent, 3); /* the step's, and two pulls' */
    for (int i = 0; i < 3; i++) {
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        resume(&k);
    }
    while (k.n_sent > 0) {
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        CHECK_INT(k.msg.section[0].version, 1);
        resume(&k);
    }
    CHECK_INT(counts(&k).pulls, 4);
    CHECK(counts(&k).deferred > 0);
    close_empty(&k);
}

/* --- what is small -------------------------------------------------------- */

/* Unread heartbeats, and after them room for all again. */
TEST(answers_to_heartbeats_are_bounded_too)
{
    uint64_t sent;
    lane_kit k;

    lane_open_small(&k, 2, false, 0, 16 << 10);
    for (int i = 0; i < 50; i++)
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    sent = (uint64_t)k.n_sent;
    CHECK(sent > 5 && sent < 40);
    CHECK_INT(counts(&k).unanswered, 50 - sent);
    CHECK(counts(&k).answer_bytes <= (17 << 10) + 2000);
    while (k.n_sent > 0)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    close_empty(&k);
}

TEST(a_full_share_of_pulls_leaves_room_for_what_is_small)
{
    lane_kit k;

    lane_open_small(&k, 1, false, 0, UNREAD);
    for (int i = 0; i < 3; i++)
        lane_pull(&k, 0, 0, ROWS);
    for (int i = 0; i < 10; i++) /* small ones, to the brim */
        lane_pull(&k, 0, 0, 100);
    CHECK(k.n_sent > 3);
    for (int i = 0; i < 2; i++) {
        int before = k.n_sent;

        lane_push(&k, 0, (uint64_t)i + 1, 5, 1);
        CHECK_INT(k.n_sent, before + 1);
    }
    CHECK_INT(counts(&k).unanswered, 0);
    lane_close(&k);
}

/* A step whose answer was not sent is answered when it comes again. */
TEST(a_step_that_was_not_answered_is_applied_once)
{
    lane_kit k;

    lane_open_small(&k, 1, false, 0, 16 << 10);
    for (int i = 0; i < 50; i++)
        lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_push(&k, 0, 1, 5, 1);
    CHECK_INT(counts(&k).updates, 1);
    while (k.n_sent > 0) {
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        CHECK_INT(k.msg.answer.applied, 0);
    }
    forget_heard(&k);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.answer.applied, 1);
    CHECK_INT(counts(&k).updates, 1);
    CHECK_INT(counts(&k).duplicates, 1);
    close_empty(&k);
}

/* --- strangers ------------------------------------------------------------ */

/* A process of an earlier run, or of an earlier incarnation, on a connection
 * of its own. */
static void say_stray(lane_kit *k, uint32_t run, uint32_t incarnation)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_msg_writer w;

    head.job = fl_msg_job("job", run);
    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    lane_tell(k, &w, 9);
}

/* They share what is small, and it is not the worker's. */
TEST(strangers_take_nothing_of_a_workers_share)
{
    uint64_t unanswered;
    lane_kit k;

    lane_open_small(&k, 1, false, 0, UNREAD);
    lane_push_as(&k, 2, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    for (int i = 0; i < 20; i++) {
        say_stray(&k, LANE_RUN + 1, 1);
        say_stray(&k, LANE_RUN, 1);
    }
    unanswered = counts(&k).unanswered;
    CHECK(unanswered > 30);
    CHECK(counts(&k).answer_bytes <= MOST_SMALL + 2000);
    CHECK_INT(k.n_sent, 40 - unanswered);
    while (k.n_sent > 0)
        lane_hear_status(&k, 9, FL_ANSWER_FENCED);
    forget_heard(&k);
    CHECK_INT(counts(&k).answer_bytes, 0);
    say_stray(&k, LANE_RUN + 1, 1);
    lane_hear_status(&k, 9, FL_ANSWER_FENCED);
    close_empty(&k);
}

/* --- requests that wait --------------------------------------------------- */

/* Three of 1,000 rows, with what lies around them, are too much. */
TEST(what_is_too_much_to_be_kept_comes_again)
{
    lane_kit k;

    lane_open_small(&k, 2, true, PARKED, 0);
    for (int i = 0; i < 3; i++)
        lane_pull(&k, 1, 1, 1000);
    CHECK_INT(counts(&k).dropped, 1);
    CHECK(counts(&k).parked_bytes <= PARKED);
    CHECK(counts(&k).parked_bytes > 16000);
    lane_hear_status(&k, 1, FL_ANSWER_WAITING);
    CHECK_INT(k.msg.answer.missing_stream, 0);
    lane_pull(&k, 0, 1, 1000); /* another worker's */
    CHECK_INT(counts(&k).dropped, 1);
    lane_push(&k, 0, 1, 5, 1);
    lane_push(&k, 1, 1, 5, 1);
    for (int i = 0; i < 5; i++) /* two steps, then pulls */
        lane_hear_status(&k, i == 0 || i == 2 ? 0 : 1, FL_ANSWER_OK);
    CHECK_INT(counts(&k).parked_bytes, 0);
    lane_pull(&k, 1, 1, 1000); /* again */
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    close_empty(&k);
}

TEST(many_small_requests_are_too_much_as_well)
{
    lane_kit k;

    lane_open_small(&k, 1, true, PARKED, 0);
    for (int i = 0; i < 20; i++)
        lane_pull(&k, 0, 1, 1);
    CHECK_INT(counts(&k).dropped, 20 - PARKED / (AROUND + 200));
    CHECK(counts(&k).parked_bytes <= PARKED);
    while (k.n_sent > 0)
        lane_hear_status(&k, 0, FL_ANSWER_WAITING);
    lane_push(&k, 0, 1, 5, 1);
    while (k.n_sent > 0)
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    close_empty(&k);
}

TEST(what_a_process_has_asked_for_goes_with_it)
{
    lane_kit k;

    lane_open_small(&k, 2, true, PARKED, UNREAD);
    lane_pull(&k, 1, 1, 1000);
    lane_numbers(&k, 1, 1, 0, &(double){1}, 1);
    CHECK(counts(&k).parked_bytes > 0);
    lane_push_as(&k, 2, 1, 1, 5, 1); /* its successor */
    CHECK_INT(counts(&k).parked_bytes, 0);
    CHECK(counts(&k).open_bytes > 0);
    lane_push_as(&k, 3, 1, 1, 5, 1);
    CHECK(counts(&k).open_bytes > 0);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    close_empty(&k);
}

/* --- steps ---------------------------------------------------------------- */

/* A piece of that many bytes that is not the last one of its step. */
static void push_piece(lane_kit *k, uint32_t stream, uint16_t piece, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, stream, 1, 0);
    fl_msg_writer w;
    fl_section *s;

    head.piece = piece;
    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    memset(fl_msg_column(&w, FL_COLUMN_KEYS, n * 8), 0, n * 8);
    memset(fl_msg_column(&w, FL_COLUMN_VALUES, n * 12), 0, n * 12);
    lane_tell(k, &w, (int)stream);
}

/* The kit's lane takes steps of 4,000 bytes. */
TEST(the_bytes_of_open_steps_are_counted_and_a_worker_is_told_what_is_left)
{
    lane_kit k;

    lane_open_small(&k, 2, true, 0, 0);
    push_piece(&k, 0, 0, 50);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(counts(&k).open_bytes, 64 + 32 + 1000);
    CHECK_INT(k.msg.answer.credit_bytes, 4000 - 1096);
    push_piece(&k, 1, 0, 100);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(counts(&k).open_bytes, 1096 + 2096);
    push_piece(&k, 1, 1, 100);
    lane_hear_refusal(&k, 1, "larger than 4000 bytes");
    CHECK_INT(counts(&k).open_bytes, 1096);
    lane_push_as(&k, 2, 0, 1, 5, 1);
    CHECK(counts(&k).open_bytes < 300);
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    close_empty(&k);
}

/* While worker 0 loads: 96 bytes and 20 for each row. */
TEST(a_step_that_comes_during_a_load_is_bounded_and_comes_again)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    push_piece(&k, 1, 0, 50);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_load(&k, 0, 1, "save");
    CHECK_INT(k.n_command, 1);
    push_piece(&k, 1, 1, 100);
    lane_silent(&k);
    CHECK_INT(counts(&k).dropped, 0);
    CHECK_INT(counts(&k).parked_bytes, AROUND + 2096);
    push_piece(&k, 1, 2, 50);
    CHECK_INT(counts(&k).dropped, 1);
    CHECK_INT(counts(&k).parked_bytes, AROUND + 2096);
    lane_hear_status(&k, 1, FL_ANSWER_WAITING);
    CHECK_INT(k.msg.answer.missing_stream, FL_NOBODY);
    CHECK_INT(k.msg.answer.credit_bytes, 4000 - 1096 - 2096);
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(counts(&k).parked_bytes, 0);
    CHECK_INT(counts(&k).open_bytes, 1096 + 2096);
    push_piece(&k, 1, 2, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_push_as(&k, 2, 1, 1, 5, 1); /* a step of one piece, of its successor */
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    close_empty(&k);
}
