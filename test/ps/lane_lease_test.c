/* lane_lease_test.c - a lane gives workers leases: what it refuses, and that a
 * question that comes twice, or late, does no harm. */
#define SUITE lane_lease
#include "lane_kit.h"
#include "test.h"

#include <string.h>

#include "base/error.h"

static const fl_lease_pass pass = {.pass = 2, .dataset = 1, .batches = 3};

static void ask(lane_kit *k, uint32_t stream, uint64_t sums, uint64_t number)
{
    lane_lease(k, stream, sums,
               &(fl_lease_question){.pass = pass, .number = number});
}

static void hears(lane_kit *k, int to, uint64_t want)
{
    const fl_msg *msg = lane_hear(k, to);
    uint64_t got;

    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    CHECK_INT(msg->head.n_section, 1);
    CHECK_INT(msg->section[0].op, FL_SECTION_LEASE);
    CHECK_INT(msg->column[0][FL_AT_BYTES].size, sizeof got);
    memcpy(&got, msg->column[0][FL_AT_BYTES].data, sizeof got);
    CHECK_INT(got, want);
}

TEST(whoever_asks_gets_the_next_lease_and_again_the_same)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    ask(&k, 0, 0, 0);
    hears(&k, 0, 0);
    ask(&k, 0, 0, 1);
    hears(&k, 0, 1);
    ask(&k, 1, 0, 0);
    hears(&k, 1, 2);
    ask(&k, 0, 0, 1); /* the answer was lost */
    hears(&k, 0, 1);
    ask(&k, 0, 0, 0); /* a process that goes on */
    hears(&k, 0, 0);
    ask(&k, 0, 0, 2);
    hears(&k, 0, 3);
    CHECK_INT(fl_lane_counted(k.lane).leases, 4);
    lane_silent(&k);
    lane_close(&k);
}

/* What was asked before a sum is of a pass that is over: who is started again
 * behind it gets what it had, and nothing else. */
TEST(a_question_of_a_pass_before_gets_nothing_new)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    ask(&k, 0, 0, 0);
    hears(&k, 0, 0);
    lane_numbers(&k, 0, 1, FL_REDUCTION_PASS, NULL, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_lease(
        &k, 0, 1,
        &(fl_lease_question){.pass = {.pass = 3, .dataset = 1, .batches = 3}});
    hears(&k, 0, 0);
    ask(&k, 0, 0, 1);
    lane_silent(&k);
    ask(&k, 0, 2, 0); /* sums that it has not made */
    lane_silent(&k);
    CHECK_INT(fl_lane_counted(k.lane).gaps, 2);
    ask(&k, 0, 0, 0);
    hears(&k, 0, 0);
    CHECK_INT(k.lane->leases.pass.pass, 3);
    lane_close(&k);
}

TEST(what_cannot_be_given_is_refused_by_name)
{
    fl_msg_head head = lane_head(FL_MSG_LEASE, 0, 0, 0);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 2, false);
    ask(&k, 0, 0, 0);
    hears(&k, 0, 0);
    lane_lease(
        &k, 1, 0,
        &(fl_lease_question){.pass = {.pass = 9, .dataset = 1, .batches = 3}});
    lane_hear_refusal(&k, 1,
                      "worker 1 asks for a lease of 3 batches of pass 9 "
                      "of dataset 1, and others have leases");
    ask(&k, 1, 0, 5);
    lane_hear_refusal(&k, 1, "worker 1 asks for lease 6 of its own");
    lane_begin(&k, &w, &head);
    fl_msg_section(&w, FL_SECTION_LEASE, 0);
    memset(fl_msg_column(&w, FL_COLUMN_BYTES, 7), 0, 7);
    lane_tell(&k, &w, 0);
    lane_silent(&k);
    CHECK_INT(fl_lane_counted(k.lane).bad, 1);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_close(&k);
    lane_open(&k, SIM_SGD, 2, true);
    ask(&k, 0, 0, 0);
    lane_hear_refusal(&k, 0,
                      "worker 0 asks for a lease: lane 0 of server 0 "
                      "has them, where workers update apart");
    lane_close(&k);
}
