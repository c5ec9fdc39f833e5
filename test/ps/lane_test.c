/* lane_test.c - one lane, told one message at a time: what it takes, what it
 * refuses and in which words, and what it still knows when it is asked again.
 */
#define SUITE lane
#include "lane_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { END = FL_MSG_END_OF_STEP };

/* --- steps ---------------------------------------------------------------- */

TEST(a_step_is_applied_once_however_often_it_comes)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    for (int i = 0; i < 3; i++) {
        lane_push(&k, 0, 1, 5, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    }
    CHECK_INT(k.msg.answer.applied, 1);
    CHECK_INT(fl_lane_version(k.lane), 1);
    CHECK_INT(fl_lane_counted(k.lane).duplicates, 2);
    lane_close(&k);
}

TEST(a_step_before_its_turn_is_answered_with_what_was_applied)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 0, 3, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_GAP);
    CHECK_INT(k.msg.answer.applied, 1);
    lane_push(&k, 0, UINT64_MAX, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_GAP);
    lane_push(&k, 0, 0, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_counted(k.lane).gaps, 2);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

/* --- settings ------------------------------------------------------------- */

static float *row_of(const lane_kit *k, uint64_t key)
{
    fl_rows *rows = k->layout.table[0];
    float *row;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    return row;
}

/* The lane's own optimizer has another rate and another decay. */
TEST(a_step_is_applied_with_the_settings_that_it_brings)
{
    const fl_update_settings settings = {.learning_rate = 0.5f,
                                         .l2_decay = 0.25f};
    float before, want;
    lane_kit k;

    for (int sync = 0; sync < 2; sync++) {
        lane_open(&k, SIM_SGD, 1, sync);
        lane_push(&k, 0, 1, 5, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        before = row_of(&k, 5)[1];
        lane_push_with(&k, 0, 2, 5, &settings);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        want = before - 0.5f * (1 + 0.25f * before);
        CHECK_CLOSE(&row_of(&k, 5)[1], &want, 1, 1e-6);
        lane_close(&k);
    }
}

TEST(settings_that_differ_end_a_job_in_sync)
{
    const fl_update_settings one = {.learning_rate = 0.5f, .l2_decay = 0.25f};
    const fl_update_settings other = {.learning_rate = 0.5f};
    lane_kit k;

    lane_open(&k, SIM_SGD, 3, true);
    lane_push_with(&k, 2, 1, 5, &other);
    lane_push_with(&k, 1, 1, 5, &one);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_LEAVE);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_TEXT(fl_lane_error(k.lane)->text,
               "workers do not train alike: l2_decay is 0.25 in worker 1, 0 in "
               "worker 2: all of them must set their optimizer to the same");
    CHECK_INT(fl_lane_version(k.lane), 0);
    lane_close(&k);
}

static void push_bytes(lane_kit *k, size_t bytes)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, 1, END);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_CLIP, 0)->n_batch = 1;
    if (bytes > 0)
        memset(fl_msg_column(&w, FL_COLUMN_VALUES, bytes), 0, bytes);
    lane_tell(k, &w, 0);
}

TEST(settings_that_cannot_be_are_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    push_bytes(&k, 0);
    lane_hear_refusal(&k, 0, "0 bytes of optimizer settings: expected 20");
    push_bytes(&k, 16);
    lane_hear_refusal(&k, 0, "16 bytes of optimizer settings: expected 20");
    lane_push_with(&k, 0, 1, 5, &(fl_update_settings){.learning_rate = NAN});
    lane_hear_refusal(&k, 0, "learning_rate: nan is out of range");
    lane_push_with(&k, 0, 1, 5, &(fl_update_settings){.l2_decay = -0.5f});
    lane_hear_refusal(&k, 0, "l2_decay: -0.5 is out of range");
    CHECK_INT(fl_lane_version(k.lane), 0);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* --- pieces --------------------------------------------------------------- */

/* A piece of a step, with a frame of so many bytes. */
static void piece(lane_kit *k, uint64_t step, uint16_t number, size_t bytes)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, step, 0);
    fl_msg_writer w;

    head.piece = number;
    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0);
    fl_msg_column(&w, FL_COLUMN_KEYS, 0);
    memset(fl_msg_column(&w, FL_COLUMN_BYTES, bytes), 0, bytes);
    lane_tell(k, &w, 0);
}

TEST(a_step_that_is_too_large_is_refused_by_name)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    piece(&k, 1, 0, 2500);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(k.msg.answer.credit_bytes < 1500);
    piece(&k, 1, 1, 2500);
    lane_hear_refusal(&k, 0,
                      "step 1 of worker 0: it is larger than 4000 bytes, the "
                      "most that a server takes");
    CHECK_INT(k.msg.answer.credit_bytes, 4000);
    CHECK_INT(k.msg.head.step, FLEET_EINVAL);
    lane_close(&k);
}

TEST(pieces_are_taken_in_their_order)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    piece(&k, 1, 1, 10);
    lane_hear_status(&k, 0, FL_ANSWER_GAP);
    piece(&k, 1, 0, 10);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    piece(&k, 1, 0, 10);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    piece(&k, 1, 2, 10);
    lane_hear_status(&k, 0, FL_ANSWER_GAP);
    CHECK_INT(fl_lane_counted(k.lane).gaps, 2);
    CHECK_INT(fl_lane_counted(k.lane).duplicates, 1);
    lane_close(&k);
}

/* The last piece of a step of worker 0, of no batches. */
static void nothing(lane_kit *k, uint16_t number)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, 1, FL_MSG_END_OF_STEP);
    fl_msg_writer w;

    head.piece = number;
    lane_begin(k, &w, &head);
    lane_close_step(&w, 0, &(fl_update_settings){.learning_rate = 0.25f});
    lane_tell(k, &w, 0);
}

/* In float16 a worker may have nothing that is finite. */
TEST(a_step_of_no_batches_is_one_in_float16_alone)
{
    lane_kit k;

    lane_open_scaled(&k, SIM_SGD, 2, true);
    nothing(&k, 0);
    lane_silent(&k);
    lane_push(&k, 1, 1, 5, 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
    lane_open(&k, SIM_SGD, 2, true);
    nothing(&k, 0);
    lane_hear_refusal(&k, 0, "of 0 batches: expected 1 to 1073741823");
    lane_close(&k);
}

/* It would not be sent: nobody waits for it. */
TEST(in_async_a_step_of_no_batches_is_none)
{
    lane_kit k;

    lane_open_scaled(&k, SIM_SGD, 2, false);
    nothing(&k, 0);
    lane_hear_refusal(&k, 0, "of 0 batches: expected 1 to 1073741823");
    CHECK_INT(fl_lane_version(k.lane), 0);
    lane_close(&k);
}

/* The first piece of a step of worker 0, with a gradient. */
static void rows_piece(lane_kit *k, uint64_t key)
{
    const fl_msg_head head = lane_head(FL_MSG_STEP, 0, 1, 0);
    size_t bytes = (size_t)k->layout.table[0]->dim * sizeof(float);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0)->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, sizeof key), &key, sizeof key);
    memset(fl_msg_column(&w, FL_COLUMN_VALUES, bytes), 0, bytes);
    lane_tell(k, &w, 0);
}

/* Neither in its last piece nor before it. */
TEST(gradients_of_no_batches_are_refused)
{
    lane_kit k;

    lane_open_scaled(&k, SIM_SGD, 2, true);
    lane_push(&k, 0, 1, 5, 0);
    lane_hear_refusal(&k, 0,
                      "step 1 of worker 0: it says that it is of 0 batches, "
                      "and brings gradients");
    rows_piece(&k, 5);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    nothing(&k, 1);
    lane_hear_refusal(&k, 0, "of 0 batches, and brings gradients");
    nothing(&k, 0);
    lane_silent(&k);
    lane_push(&k, 1, 1, 5, 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(numbers_of_batches_that_cannot_be_added_up_are_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 4, true);
    lane_push(&k, 0, 1, 5, 0);
    lane_hear_refusal(&k, 0, "of 0 batches: expected 1 to 536870911");
    lane_push(&k, 0, 1, 5, 536870912);
    lane_hear_refusal(&k, 0, "of 536870912 batches");
    lane_push(&k, 0, 1, 5, 536870911);
    lane_silent(&k);
    lane_close(&k);
}

TEST(a_step_without_a_contribution_is_one_thing_and_one_piece)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_PASS_END | FL_MSG_LEAVE);
    lane_hear_refusal(&k, 0, "flags 0x7 in piece 0");
    lane_say(&k, FL_MSG_STEP, 0, 1, FL_MSG_LEAVE);
    lane_hear_refusal(&k, 0, "flags 0x4 in piece 0");
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_COMMAND);
    lane_hear_refusal(&k, 0, "a command that does not exist");
    CHECK_INT(k.n_command, 0);
    lane_close(&k);
}

/* --- sections that are about nothing -------------------------------------- */

/* A pull, or a step that ends, with one section: n_key keys, if `keys` come. */
static void send_section(lane_kit *k, fl_msg_kind kind, fl_section_op op,
                         uint32_t table, uint32_t n_key, uint64_t key,
                         bool keys)
{
    fl_msg_head head = lane_head(kind, 0, 1, kind == FL_MSG_STEP ? END : 0);
    fl_msg_writer w;
    fl_section *s;

    lane_begin(k, &w, &head);
    if (kind == FL_MSG_STEP)
        lane_close_step(&w, 1, &(fl_update_settings){.learning_rate = 0.25f});
    s = fl_msg_section(&w, op, table);
    s->n_key = n_key;
    if (keys) {
        uint64_t *to = fl_msg_column(&w, FL_COLUMN_KEYS, n_key * sizeof *to);

        for (uint32_t i = 0; i < n_key; i++)
            to[i] = key;
    }
    lane_tell(k, &w, 0);
}

TEST(a_query_of_what_there_is_not_is_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    send_section(&k, FL_MSG_QUERY, FL_SECTION_HASH, 2, 0, 0, false);
    lane_hear_refusal(&k, 0, "worker 0 asks for what there is not");
    send_section(&k, FL_MSG_QUERY, FL_SECTION_ROWS, 0, 0, 0, false);
    lane_hear_refusal(&k, 0, "worker 0 asks for what there is not");
    CHECK_INT(k.n_command, 0);
    lane_close(&k);
}

TEST(keys_that_did_not_come_are_refused)
{
    static const fl_section_op ops[] = {FL_SECTION_DENSE, FL_SECTION_ROWS,
                                        FL_SECTION_CLIP};
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    for (int i = 0; i < 3; i++) {
        send_section(&k, FL_MSG_STEP, ops[i], 0, 3, 0, false);
        lane_hear_refusal(&k, 0, "3 keys that did not come");
        send_section(&k, FL_MSG_PULL, ops[i], 0, 3, 0, false);
        lane_hear_refusal(&k, 0, "3 keys that did not come");
    }
    lane_close(&k);
}

TEST(a_pull_of_what_there_is_not_is_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    send_section(&k, FL_MSG_PULL, FL_SECTION_CLIP, 77, 0, 0, false);
    lane_hear_refusal(&k, 0, "section of kind 3 in a pull");
    send_section(&k, FL_MSG_PULL, FL_SECTION_ROWS, 2, 1, 0, true);
    lane_hear_refusal(&k, 0, "there is no table 2");
    send_section(&k, FL_MSG_PULL, FL_SECTION_DENSE, 0, 1, 99ull << 32, true);
    lane_hear_refusal(&k, 0, "block 0 of parameter 99 is not here");
    send_section(&k, FL_MSG_PULL, FL_SECTION_DENSE, 0, 1, 7, true);
    lane_hear_refusal(&k, 0, "block 7 of parameter 0 is not here");
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_close(&k);
}

TEST(a_pull_that_no_frame_can_answer_is_refused)
{
    lane_kit k;

    lane_open(&k, SIM_BLOCKS, 1, true);
    send_section(&k, FL_MSG_PULL, FL_SECTION_DENSE, 0, 1500,
                 (uint64_t)fl_partition_param(&k.layout, "large") << 32, true);
    lane_hear_refusal(&k, 0, "numbers at once, more than 67108864 bytes");
    lane_close(&k);
}

/* One line a second for each, and how many more there were. */
TEST(who_is_refused_again_and_again_fills_no_log)
{
    static const char line[] = "server 0: refused: a pull of worker 0: there "
                               "is no table 2\n";
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    for (int i = 0; i < 100; i++) {
        send_section(&k, FL_MSG_PULL, FL_SECTION_ROWS, 2, 1, 0, true);
        lane_hear_refusal(&k, 0, "there is no table 2");
    }
    CHECK_TEXT(k.lines, line);
    *k.lines = 0;
    lane_tick_until(&k, 500);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_tick_until(&k, 1100);
    send_section(&k, FL_MSG_PULL, FL_SECTION_ROWS, 2, 1, 0, true);
    lane_hear_refusal(&k, 0, "there is no table 2");
    CHECK_CONTAINS(k.lines,
                   "server 0: 99 more were refused since the last line\n");
    CHECK_CONTAINS(k.lines, line);
    lane_close(&k);
}

/* --- who speaks ----------------------------------------------------------- */

static void abort_as(lane_kit *k, uint64_t job, uint32_t stream,
                     uint32_t incarnation)
{
    fl_msg_head head = lane_head(FL_MSG_ABORT, stream, FLEET_EPEER, 0);
    fl_msg_writer w;

    head.job = job ? job : head.job;
    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, "so there");
    lane_tell(k, &w, 9);
}

TEST(strangers_end_nothing)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    abort_as(&k, 77, 0, 1);
    abort_as(&k, 0, 2, 1);
    abort_as(&k, 0, 0, 0);
    lane_silent(&k);
    CHECK_INT(fl_lane_counted(k.lane).strays, 3);
    lane_say(&k, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    abort_as(&k, 0, 1, 1);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_TEXT(fl_lane_error(k.lane)->text, "so there");
    lane_close(&k);
}

TEST(a_process_that_was_replaced_has_no_say)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    lane_push_as(&k, 3, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push_as(&k, 2, 0, 2, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_FENCED);
    abort_as(&k, 0, 0, 2);
    lane_hear_status(&k, 9, FL_ANSWER_FENCED);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

/* A pull of the version after next. */
static void pull_next(lane_kit *k, uint32_t stream, uint32_t incarnation)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, 0, 0);
    fl_msg_writer w;

    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0)->version = 1;
    CHECK(fl_msg_column(&w, FL_COLUMN_KEYS, 0) != NULL);
    lane_tell(k, &w, (int)stream);
}

TEST(what_it_has_asked_for_is_not_answered_to_its_successor)
{
    for (uint32_t successor = 1; successor <= 2; successor++) {
        lane_kit k;

        lane_open(&k, SIM_SGD, 2, true);
        pull_next(&k, 1, 1);
        lane_silent(&k);
        lane_push_as(&k, successor, 1, 1, 5, 1);
        lane_push(&k, 0, 1, 5, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        CHECK_INT(k.msg.head.kind, FL_MSG_ANSWER);
        lane_hear_status(&k, 1, FL_ANSWER_OK);
        CHECK_INT(k.msg.head.incarnation, successor);
        CHECK_INT(k.n_sent, successor == 1 ? 1 : 0); /* the pull's */
        lane_close(&k);
    }
}

static void say_hello_of(lane_kit *k, uint32_t run, const char *who,
                         const char *nonce, int from)
{
    fl_msg_head head = lane_head(FL_MSG_HELLO, 0, 0, 0);
    int server = k->layout.n_server - 1;
    char text[400];
    fl_msg_writer w;

    snprintf(text, sizeof text,
             "{\"job\":\"job\",\"mode\":\"ps-sync\",\"program\":\"program\\n\","
             "\"who\":\"%s\",\"isa\":\"plain\",\"nonce\":\"%s\","
             "\"workers\":1,\"servers\":%d,\"server\":%d}",
             who, nonce, server + 1, server);
    head.incarnation = 0;
    head.job = fl_msg_job("job", run);
    head.peer = 0;
    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    lane_tell(k, &w, from);
}

static void say_hello(lane_kit *k, const char *who, const char *nonce, int from)
{
    say_hello_of(k, 0, who, nonce, from);
}

TEST(a_second_process_with_a_workers_number_is_turned_away)
{
    lane_kit k;
    char *text;

    lane_open(&k, SIM_SGD, 1, true);
    say_hello(&k, "here:1", "a", 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.incarnation, 1);
    say_hello(&k, "there:2", "b", 5);
    lane_hear_status(&k, 5, FL_ANSWER_TAKEN);
    text = fl_msg_get_text(&k.msg, FL_SECTION_TEXT);
    CHECK_TEXT(text, "there:2 says that it is worker 0, and so does here:1, "
                     "which was heard of 0.0 s ago");
    fl_free(text);
    say_hello(&k, "here:1", "a", 0); /* the answer was lost */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.incarnation, 1);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* A worker says hello on a connection of its own (5), again while it waits for
 * other servers; what comes behind what it says since is of a connection that
 * it has closed. */
TEST(a_hello_that_comes_late_is_not_where_the_worker_is)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    say_hello(&k, "here:1", "a", 5);
    lane_hear_status(&k, 5, FL_ANSWER_OK);
    lane_begin(&k, &w, &head);
    lane_tell(&k, &w, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    say_hello(&k, "here:1", "a", 5);
    lane_hear_status(&k, 5, FL_ANSWER_OK);
    fl_lane_abort(k.lane, FLEET_EPEER, "enough");
    CHECK_INT(lane_hear(&k, 0)->head.kind, FL_MSG_ABORT);
    lane_close(&k);
}

/* Who waits for it wants to know: this one knows of one worker, not of two. */
TEST(a_worker_that_does_not_come_may_have_been_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    say_hello(&k, "there:2", "b", 5);
    lane_hear_status(&k, 5, FL_ANSWER_REFUSED);
    k.lane->o.connect_ms = 10;
    fl_lane_tick(k.lane, k.now_ms + 11);
    CHECK_CONTAINS(fl_lane_error(k.lane)->text,
                   "worker 0 has not come within 0.0 s (connect deadline); the "
                   "last one that was refused: the worker counts 1 workers");
    lane_close(&k);
}

/* It asks again until the other has gone: one line a second. */
TEST(who_is_turned_away_again_and_again_fills_no_log)
{
    static const char line[] = "server 0: refused: there:2 says that it is "
                               "worker 0, and so does here:1";
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    say_hello(&k, "here:1", "a", 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    *k.lines = 0;
    for (int i = 0; i < 100; i++) {
        say_hello(&k, "there:2", "b", 5);
        lane_hear_status(&k, 5, FL_ANSWER_TAKEN);
    }
    CHECK_CONTAINS(k.lines, line);
    CHECK(strchr(k.lines, '\n')[1] == 0); /* and no more */
    lane_close(&k);
}

/* --- messages for another process ----------------------------------------- */

/* The next push of stream 0, as a worker of another run or process has it. */
static void push_for(lane_kit *k, uint64_t job, uint32_t peer,
                     uint32_t generation)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, 1, FL_MSG_END_OF_STEP);
    fl_msg_writer w;

    head.job = job;
    head.peer = peer;
    head.generation = generation;
    head.incarnation = 9; /* nor does a high one help */
    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_CLIP, 0)->n_batch = 1;
    lane_tell(k, &w, 0);
}

static void pull_for(lane_kit *k, uint32_t peer)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    const uint64_t key = 5;
    fl_section *s;
    fl_msg_writer w;

    head.peer = peer;
    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, sizeof key), &key, sizeof key);
    lane_tell(k, &w, 0);
}

/* The answer says which process this is. */
static void hear_fenced(lane_kit *k)
{
    lane_hear_status(k, 0, FL_ANSWER_FENCED);
    CHECK(k->msg.head.job == fl_msg_job("job", LANE_RUN));
    CHECK_INT(k->msg.head.peer, LANE_NONCE);
    CHECK_INT(k->msg.head.generation, 0);
    CHECK_INT(k->msg.answer.applied, 0);
}

/* --- messages by another map of buckets ----------------------------------- */

TEST(what_was_sent_by_another_map_of_buckets_is_refused)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, 1, FL_MSG_END_OF_STEP);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    head.view = 7;
    lane_begin(&k, &w, &head);
    fl_msg_section(&w, FL_SECTION_CLIP, 0)->n_batch = 1;
    lane_tell(&k, &w, 0);
    lane_hear_status(&k, 0, FL_ANSWER_REFUSED);
    CHECK_INT(k.msg.head.view, 0);
    CHECK_INT(fl_lane_version(k.lane), 0);
    CHECK_INT(fl_lane_counted(k.lane).strays, 1);
    lane_push(&k, 0, 1, 5, 1); /* its step is still to come */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

/* It needs nothing of a bucket. */
TEST(a_heartbeat_by_another_map_is_answered)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    head.view = 7;
    lane_begin(&k, &w, &head);
    lane_tell(&k, &w, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(what_is_for_another_process_is_not_taken)
{
    const uint64_t job = fl_msg_job("job", LANE_RUN);
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    push_for(&k, job, LANE_NONCE - 1, 0);
    hear_fenced(&k);
    push_for(&k, job, 0, 0);
    hear_fenced(&k);
    push_for(&k, fl_msg_job("job", LANE_RUN - 1), LANE_NONCE, 0);
    hear_fenced(&k);
    push_for(&k, job, LANE_NONCE, 1);
    hear_fenced(&k);
    push_for(&k, fl_msg_job("other", LANE_RUN), LANE_NONCE, 0);
    lane_silent(&k);
    pull_for(&k, LANE_NONCE - 1); /* nor read */
    hear_fenced(&k);
    CHECK_INT(k.msg.head.n_section, 0);
    CHECK_INT(fl_lane_counted(k.lane).strays, 6);
    CHECK_INT(fl_lane_counted(k.lane).updates, 0);
    lane_push(&k, 0, 1, 5, 1); /* is not fenced off by an incarnation of 9 */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_counted(k.lane).updates, 1);
    lane_close(&k);
}

/* The other lanes of a server hear from its first one which run it is. */
TEST(a_lane_goes_over_to_a_later_run_if_it_has_done_nothing)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_push(&k, 1, 1, 5, 1); /* waits for the other worker */
    lane_silent(&k);
    atomic_store(&k.identity.run, LANE_RUN + 1);
    lane_push(&k, 1, 1, 5, 1); /* of the run before */
    lane_hear_status(&k, 1, FL_ANSWER_FENCED);
    lane_run = LANE_RUN + 1;
    lane_push(&k, 0, 1, 7, 1);
    lane_silent(&k); /* what the earlier run's worker had sent is forgotten */
    lane_push(&k, 1, 1, 7, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    atomic_store(&k.identity.run, LANE_RUN + 2);
    lane_push(&k, 0, 2, 7, 1);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_FAILED);
    CHECK_TEXT(fl_lane_error(k.lane)->text,
               "a worker of another run has trained with this server");
    lane_close(&k);
}

/* A worker of an earlier run may wait for this server, and find it first. */
TEST(a_second_server_takes_the_run_of_the_latest_worker)
{
    lane_kit k;

    lane_open_second(&k);
    say_hello_of(&k, LANE_RUN - 1, "old:1", "a", 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(k.msg.head.job == fl_msg_job("job", LANE_RUN - 1));
    CHECK_INT(k.msg.head.peer, LANE_NONCE);
    say_hello_of(&k, LANE_RUN, "new:1", "b", 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK(k.msg.head.job == fl_msg_job("job", LANE_RUN));
    say_hello_of(&k, LANE_RUN - 1, "old:1", "a", 0);
    lane_hear_refusal(&k, 0, "worker 0 is a worker of another run");
    say_hello_of(&k, 0, "lost:1", "c", 2);
    lane_hear_refusal(&k, 2, "worker 0 is a worker of another run");
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* It will end; the worker asks again, and finds its successor. */
TEST(a_server_that_has_trained_stays_in_its_run)
{
    lane_kit k;

    lane_open_second(&k);
    say_hello_of(&k, LANE_RUN, "old:1", "a", 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    say_hello_of(&k, LANE_RUN + 1, "new:1", "b", 1);
    lane_hear_status(&k, 1, FL_ANSWER_TAKEN);
    lane_push(&k, 0, 2, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(the_first_server_takes_no_worker_of_another_run)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    say_hello_of(&k, LANE_RUN - 1, "old:1", "a", 0);
    lane_hear_refusal(&k, 0, "worker 0 is a worker of another run");
    say_hello_of(&k, LANE_RUN + 1, "new:1", "a", 0);
    lane_hear_refusal(&k, 0, "worker 0 is a worker of another run");
    say_hello_of(&k, 0, "here:1", "b", 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(k.msg.head.job == fl_msg_job("job", LANE_RUN));
    lane_close(&k);
}

/* --- a process is replaced ------------------------------------------------ */

static void send_clip(lane_kit *k, uint32_t stream, uint64_t step, float factor)
{
    fl_msg_head head = lane_head(FL_MSG_CLIP, stream, step, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_CLIP, 0)->learning_rate = factor;
    lane_tell(k, &w, (int)stream);
}

TEST(a_sum_that_waits_for_its_clip_is_made_anew_when_a_process_is_replaced)
{
    lane_kit k;

    lane_open(&k, SIM_SGD_CLIP, 2, true);
    lane_push(&k, 0, 1, 5, 1);
    lane_push(&k, 1, 1, 6, 1);
    lane_hear_status(&k, 0, FL_ANSWER_NORMS);
    lane_hear_status(&k, 1, FL_ANSWER_NORMS);
    lane_push_as(&k, 2, 0, 2, 5, 1); /* its predecessor's step is forgotten */
    lane_hear_status(&k, 0, FL_ANSWER_GAP);
    send_clip(&k, 1, 1, 0.5f);
    lane_hear_status(&k, 1, FL_ANSWER_GAP);
    CHECK_INT(fl_lane_version(k.lane), 0);
    lane_push_as(&k, 2, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_NORMS);
    lane_hear_status(&k, 1, FL_ANSWER_NORMS);
    send_clip(&k, 1, 1, 0.5f);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

TEST(a_command_that_is_under_way_stays_the_streams_when_a_process_is_replaced)
{
    lane_kit k;
    char *text;

    lane_open(&k, SIM_SGD, 1, true);
    lane_command(&k, 0, 1, "{}");
    CHECK_INT(k.n_command, 1);
    lane_push(&k, 0, 2, 5, 1); /* of the old process: behind the command */
    lane_push_as(&k, 2, 0, 2, 6, 1);
    fl_lane_command_done(k.lane, FLEET_OK, "saved", 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    text = fl_msg_get_text(&k.msg, FL_SECTION_TEXT);
    CHECK_TEXT(text, "saved");
    fl_free(text);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 1);
    CHECK_INT(k.layout.table[0]->methods->count(k.layout.table[0]), 1);
    lane_close(&k);
}

TEST(what_a_replaced_process_has_asked_for_is_not_answered)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_numbers(&k, 0, 1, 0, NULL, 0);
    lane_push_as(&k, 2, 0, 1, 5, 1);
    lane_silent(&k);
    lane_numbers(&k, 1, 1, 0, NULL, 0);
    lane_silent(&k); /* worker 0 has not come to the barrier again */
    lane_close(&k);
}

/* --- commands ------------------------------------------------------------- */

static void hear_command(lane_kit *k, fl_msg_status status, const char *words)
{
    char *text;

    lane_hear_status(k, 0, status);
    text = fl_msg_get_text(&k->msg, FL_SECTION_TEXT);
    CHECK(text != NULL);
    CHECK_TEXT(text, words);
    fl_free(text);
}

TEST(what_an_act_has_come_to_is_told_again_and_not_done_again)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_command(&k, 0, 1, "{}");
    fl_lane_command_done(k.lane, FLEET_OK, "parts", 0, 0, 0);
    hear_command(&k, FL_ANSWER_OK, "parts");
    lane_command(&k, 0, 1, "{}");
    hear_command(&k, FL_ANSWER_OK, "parts");
    lane_command(&k, 0, 2, "{}");
    fl_lane_command_done(k.lane, FLEET_EIO, "the disk is full", 0, 0, 0);
    hear_command(&k, FL_ANSWER_FAILED, "the disk is full");
    lane_command(&k, 0, 2, "{}");
    hear_command(&k, FL_ANSWER_FAILED, "the disk is full");
    CHECK_INT(k.msg.head.step, FLEET_EIO);
    CHECK_INT(k.n_command, 2);
    lane_push(&k, 0, 3, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

TEST(what_comes_during_an_act_waits_for_its_end)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    lane_load(&k, 0, 1, "/somewhere");
    lane_push(&k, 1, 1, 5, 1);
    lane_silent(&k);
    lane_say(&k, FL_MSG_HEARTBEAT, 1, 0, 0);
    lane_hear_status(&k, 1, FL_ANSWER_WAITING);
    CHECK_INT(k.msg.answer.missing_stream, FL_NOBODY);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    fl_lane_command_done(k.lane, FLEET_OK, "", 0, 0, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

TEST(a_command_of_a_lane_that_has_failed_ends_in_peace)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_command(&k, 0, 1, "{}");
    send_section(&k, FL_MSG_QUERY, FL_SECTION_HASH, 0, 0, 0, false);
    fl_lane_abort(k.lane, FLEET_EPEER, "worker 1 is gone");
    CHECK_INT(lane_hear(&k, 0)->head.kind, FL_MSG_ABORT);
    fl_lane_command_done(k.lane, FLEET_OK, "", 0, 0, 0);
    CHECK_INT(k.n_command, 1);
    lane_close(&k);
}

/* --- leaving -------------------------------------------------------------- */

/* A pull of one row in that version. */
static void pull_version(lane_kit *k, uint32_t stream, uint64_t version)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, 0, 0);
    const uint64_t key = 5;
    fl_msg_writer w;
    fl_section *s;

    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = 1;
    s->version = version;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, 8), &key, 8);
    lane_tell(k, &w, (int)stream);
}

TEST(a_pull_of_who_has_left_is_forgotten)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    pull_version(&k, 0, 1);
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_LEAVE);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_silent(&k);
    lane_say(&k, FL_MSG_STEP, 1, 2, END | FL_MSG_LEAVE);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_close(&k);
}

/* Both have left. */
static void open_left(lane_kit *k)
{
    lane_open(k, SIM_SGD, 2, true);
    lane_say(k, FL_MSG_BYE, 0, 0, 0); /* before its turn: nothing */
    for (uint32_t i = 0; i < 2; i++) {
        lane_say(k, FL_MSG_STEP, i, 1, END | FL_MSG_LEAVE);
        lane_hear_status(k, (int)i, FL_ANSWER_OK);
    }
}

TEST(a_lane_stays_until_each_worker_has_heard_that_it_has_left)
{
    lane_kit k;

    open_left(&k);
    lane_say(&k, FL_MSG_BYE, 1, 0, 0);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, 900);
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_LEAVE);
    lane_hear_status(&k, 0, FL_ANSWER_OK); /* once more: it was lost */
    lane_tick_until(&k, 1800);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_say(&k, FL_MSG_BYE, 0, 0, 0);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    lane_silent(&k);
    lane_close(&k);
}

TEST(a_lane_goes_when_a_worker_that_has_left_is_not_heard_any_more)
{
    lane_kit k;

    open_left(&k);
    lane_say(&k, FL_MSG_BYE, 0, 0, 0);
    lane_tick_until(&k, 1000);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, 1001);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    lane_silent(&k);
    lane_close(&k);
}

TEST(a_pull_of_a_process_that_was_replaced_is_not_answered)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    pull_version(&k, 0, 1);
    lane_push_as(&k, 2, 0, 1, 5, 1);
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.head.n_section, 0);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_silent(&k);
    lane_close(&k);
}

TEST(a_pull_waits_for_its_version)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    pull_version(&k, 0, 1);
    lane_silent(&k);
    lane_push(&k, 0, 1, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.section[0].version, 1);
    pull_version(&k, 0, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 0, 2, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    pull_version(&k, 0, 1);
    lane_hear_refusal(&k, 0, "is of version 1, but this is 2, after a load");
    lane_close(&k);
}

TEST(who_has_left_is_not_waited_for)
{
    const double x[] = {3, 4};
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    lane_numbers(&k, 0, 1, 0, x, 2);
    lane_silent(&k);
    lane_say(&k, FL_MSG_STEP, 1, 1, END | FL_MSG_LEAVE);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.column[0][3].size, sizeof x);
    CHECK(memcmp(k.msg.column[0][3].data, x, sizeof x) == 0);
    lane_close(&k);
}

TEST(a_pass_closes_for_all_together)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, true);
    for (int i = 0; i < 2; i++) /* the second one changes nothing */
        lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_PASS_END);
    lane_silent(&k);
    lane_push(&k, 1, 1, 5, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_say(&k, FL_MSG_STEP, 1, 2, END | FL_MSG_PASS_END);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_say(&k, FL_MSG_STEP, 0, 1, END | FL_MSG_PASS_END);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 1, 3, 5, 1);
    lane_silent(&k); /* worker 0 is in the pass again */
    lane_close(&k);
}
