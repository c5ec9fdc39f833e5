/* lane_tables_test.c - reads and writes of rows, of a lane by hand: a write is
 * made once, at its place in the stream; a read changes nothing. */
#define SUITE lane_tables
#include "lane_kit.h"
#include "test.h"

#include <string.h>

#include "base/memory.h"

static void check_said(lane_kit *k, const char *want)
{
    char *text = fl_msg_get_text(&k->msg, FL_SECTION_TEXT);

    CHECK_TEXT(text ? text : "none", want);
    fl_free(text);
}

TEST(a_write_that_comes_again_is_made_once_and_answered_as_the_first)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    for (int i = 0; i < 2; i++)
        lane_write(&k, 0, 1, "rows");
    CHECK_INT(k.n_command, 1);
    CHECK_INT(k.command, FL_COMMAND_WRITE);
    CHECK(!k.beside_training);
    fl_lane_command_done(k.lane, FLEET_OK, "written", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    check_said(&k, "written");
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* the one that came meanwhile */
    lane_write(&k, 0, 1, "rows");
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    check_said(&k, "written");
    CHECK_INT(k.n_command, 1);
    lane_close(&k);
}

TEST(a_write_is_between_two_steps_of_its_worker_also_in_async)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    lane_write(&k, 0, 1, "rows");
    CHECK(!k.beside_training);
    lane_push(&k, 1, 1, 5, 1); /* the store is the write's alone */
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 0);
    fl_lane_command_done(k.lane, FLEET_OK, "written", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

TEST(a_read_is_answered_with_what_there_is)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_read(&k, 1, "what");
    CHECK_INT(k.n_command, 1);
    CHECK_INT(k.command, FL_COMMAND_READ);
    lane_silent(&k);
    fl_lane_command_done(k.lane, FLEET_OK, "this", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    check_said(&k, "this");
    lane_read(&k, 0, "what");
    fl_lane_command_done(k.lane, FLEET_ENOENT, "there is none", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_FAILED);
    check_said(&k, "there is none");
    CHECK_INT(k.msg.head.step, FLEET_ENOENT);
    lane_close(&k);
}

TEST(reads_wait_for_each_other_and_for_a_save)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    lane_command(&k, 0, 1, "{}");
    lane_read(&k, 1, "a");
    lane_read(&k, 1, "b");
    CHECK_INT(k.n_command, 1);
    fl_lane_command_done(k.lane, FLEET_OK, "saved", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.n_command, 2);
    fl_lane_command_done(k.lane, FLEET_OK, "a", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    check_said(&k, "a");
    CHECK_INT(k.n_command, 3);
    fl_lane_command_done(k.lane, FLEET_OK, "b", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    check_said(&k, "b");
    lane_close(&k);
}

TEST(a_read_that_says_nothing_is_refused)
{
    fl_msg_head head = lane_head(FL_MSG_QUERY, 0, 0, 0);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_begin(&k, &w, &head);
    fl_msg_section(&w, FL_SECTION_READ, 0);
    lane_tell(&k, &w, 0);
    lane_hear_refusal(&k, 0, "worker 0 asks for what there is not");
    CHECK_INT(k.n_command, 0);
    lane_close(&k);
}
