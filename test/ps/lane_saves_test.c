/* lane_saves_test.c - a save of async is written beside training: the lane goes
 * on with every stream but the one whose step the save is. */
#define SUITE lane_saves
#include "lane_kit.h"
#include "test.h"

#include "base/memory.h"

static void pull(lane_kit *k, uint32_t stream)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, 0, 0);
    uint64_t key = 5;
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0)->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, sizeof key), &key, sizeof key);
    lane_tell(k, &w, (int)stream);
}

static void ask_hash(lane_kit *k, uint32_t stream)
{
    fl_msg_head head = lane_head(FL_MSG_QUERY, stream, 0, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_HASH, 0);
    lane_tell(k, &w, (int)stream);
}

static void push_heard(lane_kit *k, uint32_t stream, uint64_t step)
{
    lane_push(k, stream, step, 5, 1);
    lane_hear_status(k, (int)stream, FL_ANSWER_OK);
}

static void end_save(lane_kit *k)
{
    fl_lane_command_done(k->lane, FLEET_OK, "saved", 0, 0, k->now_ms);
    lane_hear_status(k, 0, FL_ANSWER_OK);
}

/* Worker 0 has had its step 1, worker 1 its steps 1 and 2; then 0 saves. */
static void open_saving(lane_kit *k, bool sync)
{
    lane_open(k, SIM_SGD, 2, sync);
    if (!sync) {
        push_heard(k, 0, 1);
        push_heard(k, 1, 1);
        push_heard(k, 1, 2);
    }
    lane_command(k, 0, sync ? 1 : 2, "{}");
    CHECK_INT(k->n_command, 1);
    CHECK_INT(k->command, FL_COMMAND_SAVE);
    lane_silent(k);
}

TEST(training_goes_on_while_a_save_is_written)
{
    lane_kit k;

    open_saving(&k, false);
    CHECK(k.beside_training);
    CHECK_INT(k.cut[0], 1);
    CHECK_INT(k.cut[1], 2);
    for (uint64_t step = 3; step < 6; step++)
        push_heard(&k, 1, step);
    pull(&k, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 6);
    CHECK_INT(k.cut[1], 2);
    end_save(&k);
    push_heard(&k, 0, 3);
    push_heard(&k, 1, 6);
    lane_close(&k);
}

TEST(in_sync_the_store_is_the_saves_alone)
{
    lane_kit k;

    open_saving(&k, true);
    CHECK(!k.beside_training);
    pull(&k, 1);
    lane_silent(&k);
    end_save(&k);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

/* Its process was replaced, say: its number 2 is the save. */
TEST(the_stream_that_saves_goes_on_after_it)
{
    lane_kit k;

    open_saving(&k, false);
    lane_push(&k, 0, 2, 5, 1);
    lane_push_as(&k, 2, 0, 2, 5, 1);
    pull(&k, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 3);
    end_save(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* a duplicate: the save's answer */
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 3);
    lane_close(&k);
}

TEST(what_needs_the_store_for_itself_waits_for_the_save)
{
    lane_kit k;

    open_saving(&k, false);
    lane_load(&k, 1, 3, "/somewhere");
    ask_hash(&k, 1);
    CHECK_INT(k.n_command, 1);
    lane_silent(&k);
    end_save(&k);
    CHECK_INT(k.n_command, 2);
    CHECK_INT(k.command, FL_COMMAND_LOAD);
    CHECK(!k.beside_training);
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(k.n_command, 3);
    CHECK_INT(k.command, FL_COMMAND_HASH);
    fl_lane_command_done(k.lane, FLEET_OK, NULL, 1, 1, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(saves_of_two_workers_are_written_one_after_the_other)
{
    lane_kit k;

    open_saving(&k, false);
    lane_command(&k, 1, 3, "{}");
    CHECK_INT(k.n_command, 1);
    pull(&k, 0); /* it may not: it is the one that saves */
    lane_silent(&k);
    end_save(&k);
    CHECK_INT(k.n_command, 2);
    CHECK_INT(k.cut[0], 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* the pull */
    fl_lane_command_done(k.lane, FLEET_OK, "saved", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

/* The worker that waits hears how far the save is. */
TEST(a_heartbeat_says_how_far_the_save_is)
{
    lane_kit k;

    open_saving(&k, false);
    k.command_progress = 4711;
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_WAITING);
    CHECK_INT(k.msg.answer.applied, 4711);
    CHECK(k.msg.answer.missing_stream == FL_NOBODY);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    end_save(&k);
    lane_close(&k);
}

TEST(a_save_that_cannot_begin_fails_alone)
{
    lane_kit k;
    char *text;

    lane_open(&k, SIM_SGD, 2, false);
    k.fails_commands = true;
    lane_command(&k, 0, 1, "{}");
    lane_hear_status(&k, 0, FL_ANSWER_FAILED);
    CHECK_INT(k.msg.head.step, FLEET_ENOMEM);
    text = fl_msg_get_text(&k.msg, FL_SECTION_TEXT);
    CHECK_TEXT(text, "no memory for a snapshot");
    fl_free(text);
    push_heard(&k, 0, 2);
    push_heard(&k, 1, 1);
    lane_close(&k);
}
