/* lane_keys_test.c - a lane takes a message of a worker from that worker's key
 * alone: of any other one nothing comes but a refusal. */
#define SUITE lane_keys
#include "lane_kit.h"
#include "test.h"

/* A heartbeat, a pull, a step or whatever of worker 0, by the key of another
 * sender (fl_guard_sender()). */
static void say_as(lane_kit *k, fl_msg_kind kind, int sender)
{
    fl_msg_head head = lane_head(kind, 0, 1, 0);
    fl_peer from = {.size = 1, .sender = sender};
    fl_msg_writer w;
    fl_packet *p;

    if (kind == FL_MSG_HEARTBEAT)
        head.incarnation = 9;
    lane_begin(k, &w, &head);
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_lane_receive(k->lane, &from, p, k->now_ms);
    fl_packet_drop(p);
}

static void check_foreign(lane_kit *k, fl_msg_kind kind, int sender,
                          const char *words)
{
    uint64_t before = fl_lane_counted(k->lane).foreign;

    say_as(k, kind, sender);
    lane_hear_refusal(k, 0, words);
    lane_silent(k);
    CHECK_INT(fl_lane_counted(k->lane).foreign, before + 1);
    CHECK_INT(fl_lane_state_of(k->lane), FL_LANE_RUNS);
}

TEST(no_message_of_another_worker_is_taken)
{
    static const fl_msg_kind kind[] = {
        FL_MSG_HELLO, FL_MSG_STEP,   FL_MSG_CLIP,      FL_MSG_PULL,
        FL_MSG_QUERY, FL_MSG_REDUCE, FL_MSG_HEARTBEAT, FL_MSG_ABORT,
        FL_MSG_BYE,   FL_MSG_LEASE};
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        check_foreign(&k, kind[i], 2,
                      "worker 1 has sent a message of worker 0: its key does "
                      "not speak for that one");
        check_foreign(&k, kind[i], FL_GUARD_NOBODY,
                      "a message of worker 0 came without a key");
    }
    CHECK_INT(fl_lane_counted(k.lane).steps, 0);
    lane_push(&k, 0, 1, 7, 1); /* its incarnation is still 1 */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_counted(k.lane).steps, 1);
    lane_close(&k);
}

TEST(a_workers_own_messages_are_taken)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    say_as(&k, FL_MSG_HEARTBEAT, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    say_as(&k, FL_MSG_HEARTBEAT, 0); /* by ipc */
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_counted(k.lane).foreign, 0);
    lane_close(&k);
}
