/* lane_follow_test.c - two copies of a lane with nothing around them: when the
 * one that follows has a record, and what it does with what the other says. */
#define SUITE lane_follow
#include "lane_kit.h"
#include "ps/control/lane_move.h"
#include "ps/server/lane_copy.h"
#include "test.h"

#include <string.h>

enum { FOLLOWER = 200 }; /* of its peer, the first byte */

typedef struct pair {
    lane_kit leader, follower;
} pair;

/* What the follower has asked comes to the leader. */
static bool carry_question(pair *c)
{
    const fl_peer peer = {.size = 1, .id = {FOLLOWER}};
    fl_packet *p = c->follower.asked;

    c->follower.asked = NULL;
    if (!p)
        return false;
    fl_lane_receive(c->leader.lane, &peer, p, c->leader.now_ms);
    fl_packet_drop(p);
    return true;
}

/* And answers, until there is nothing to say; nobody else hears anything. */
static void settle(pair *c)
{
    while (carry_question(c) || c->leader.n_sent > 0) {
        if (c->leader.n_sent == 0)
            continue;
        lane_hear(&c->leader, FOLLOWER);
        fl_lane_follow(c->follower.lane, c->leader.heard, c->follower.now_ms);
    }
}

static void open_follower(pair *c)
{
    lane_replica = FL_REPLICA_FOLLOWS;
    lane_open(&c->follower, SIM_SGD, 1, true);
    lane_replica = FL_NO_REPLICA;
    fl_lane_begin_follow(c->follower.lane, NULL, 0);
    settle(c);
}

static void open_pair(pair *c)
{
    lane_replica = FL_REPLICA_LEADS;
    lane_open(&c->leader, SIM_SGD, 1, true);
    open_follower(c);
}

static void close_pair(pair *c)
{
    lane_close(&c->leader);
    lane_close(&c->follower);
}

/* A worker has promised the leader to stay, or has gone over to the follower,
 * and says so. */
static void say_view(lane_kit *k, uint32_t view)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_msg_writer w;

    head.view = fl_view_with(0, view);
    lane_begin(k, &w, &head);
    lane_tell(k, &w, 0);
}

TEST(a_replica_whose_leader_has_given_way_waits_for_a_worker_and_leads)
{
    pair c;

    open_pair(&c);
    say_view(&c.leader, FL_VIEW_TAKEN);
    lane_hear_status(&c.leader, 0, FL_ANSWER_FENCED);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_GONE);
    lane_tick_until(&c.follower, 200);
    settle(&c);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_RUNS);
    CHECK_INT(fl_lane_replica(c.follower.lane), FL_REPLICA_FOLLOWS);
    say_view(&c.follower, FL_VIEW_TAKEN);
    lane_hear_status(&c.follower, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_replica(c.follower.lane), FL_REPLICA_ALONE);
    close_pair(&c);
}

/* An answer of 2,000 rows has 24,000 bytes: two of them fit, also while they
 * wait. */
TEST(answers_that_wait_for_the_replica_take_of_the_workers_share)
{
    fl_lane_counts n;
    pair c;

    lane_replica = FL_REPLICA_LEADS;
    lane_open_small(&c.leader, 1, true, 0, 64 << 10);
    open_follower(&c);
    lane_push(&c.leader, 0, 1, 7, 1);
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, c.follower.now_ms);
    for (int i = 0; i < 5; i++)
        lane_pull(&c.leader, 0, 1, 2000);
    lane_silent(&c.leader);
    n = fl_lane_counted(c.leader.lane);
    CHECK_INT(n.pulls, 2);
    CHECK_INT(n.deferred, 3);
    CHECK(n.answer_bytes > 2 * 24000 && n.answer_bytes <= 64 << 10);
    CHECK(carry_question(&c));
    CHECK_INT(c.leader.n_sent, 3); /* the step's, and two pulls' */
    for (int i = 0; i < 6; i++) {
        lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
        fl_lane_resume(c.leader.lane, ++c.leader.now_ms);
    }
    n = fl_lane_counted(c.leader.lane);
    CHECK_INT(n.pulls, 5);
    CHECK_INT(n.unanswered, 0);
    close_pair(&c);
}

/* The leader has loaded, and the follower is about to do it again. */
static void load(pair *c)
{
    lane_load(&c->leader, 0, 1, "save");
    CHECK_INT(c->leader.n_command, 1);
    fl_lane_command_done(c->leader.lane, FLEET_OK, NULL, 0, 0,
                         c->leader.now_ms);
    settle(c);
    CHECK_INT(c->follower.n_command, 1);
    CHECK_INT(c->follower.command, FL_COMMAND_LOAD);
}

TEST(a_load_is_answered_when_the_replica_has_done_it_again)
{
    pair c;

    open_pair(&c);
    load(&c);
    lane_tick_until(&c.follower, 300);
    settle(&c); /* the worker hears nothing */
    fl_lane_command_done(c.follower.lane, FLEET_OK, NULL, 0, 0,
                         c.follower.now_ms);
    lane_tick_until(&c.follower, 600);
    CHECK(carry_question(&c));
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    close_pair(&c);
}

TEST(a_load_that_the_replica_cannot_do_again_ends_the_job_with_its_words)
{
    pair c;

    open_pair(&c);
    load(&c);
    fl_lane_command_done(c.follower.lane, FLEET_EIO, "the disk is full", 0, 0,
                         c.follower.now_ms);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_state_of(c.leader.lane), FL_LANE_FAILED);
    CHECK_CONTAINS(fl_lane_error(c.leader.lane)->text,
                   "the replica of server 0, lane 0");
    CHECK_CONTAINS(fl_lane_error(c.leader.lane)->text, "the disk is full");
    close_pair(&c);
}

/* --- one that is made again ----------------------------------------------- */

/* Both, with an update that a worker was told of; then another process has the
 * follower's place, and the leader misses the one before. */
static void open_again(pair *c)
{
    open_pair(c);
    lane_push(&c->leader, 0, 1, 7, 1);
    lane_hear(&c->leader, FOLLOWER);
    fl_lane_follow(c->follower.lane, c->leader.heard, 0);
    CHECK(carry_question(c));
    lane_hear_status(&c->leader, 0, FL_ANSWER_OK);
    lane_close(&c->follower);
    lane_tick_until(&c->leader, 600);
    open_follower(c);
}

/* The worker promises to stay: the leader is alone. */
static void let_alone(pair *c)
{
    lane_tick_until(&c->leader, 700);
    say_view(&c->leader, FL_VIEW_ALONE);
    lane_hear_status(&c->leader, 0, FL_ANSWER_OK);
    lane_tick_until(&c->leader, 800);
    CHECK_INT(fl_lane_replica(c->leader.lane), FL_REPLICA_ALONE);
}

/* The newcomer asks; what the leader is is written, and sent. */
static void copy(pair *c)
{
    lane_tick_until(&c->follower, 400);
    settle(c);
    CHECK(c->leader.copy != NULL);
    fl_lane_write_copy(c->leader.lane, c->leader.copy);
    fl_lane_copy_written(c->leader.lane, c->leader.copy, c->leader.now_ms);
    c->leader.copy = NULL;
    settle(c);
}

static uint64_t hash_of(const lane_kit *k)
{
    uint64_t rows = 0;

    return sim_rows_hash(k->store, "first", &rows) + rows;
}

/* A heartbeat of a worker that knows the way to the copy of that epoch: the
 * answer, which is there still. */
static const fl_msg *say_epoch(lane_kit *k, uint16_t epoch, uint32_t view)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_msg_writer w;

    head.view = fl_view_with(0, view);
    head.piece = epoch;
    lane_begin(k, &w, &head);
    lane_tell(k, &w, 0);
    return &k->msg;
}

/* It has no record of what the leader is, so nobody makes it lead; and it says
 * that somebody is dead. */
TEST(a_replica_that_was_started_again_is_not_the_one_before)
{
    pair c;

    open_again(&c);
    CHECK(fl_lane_is_late(c.follower.lane));
    say_view(&c.follower, FL_VIEW_TAKEN);
    CHECK_INT(fl_lane_replica(c.follower.lane), FL_REPLICA_FOLLOWS);
    let_alone(&c); /* before the peer deadline */
    close_pair(&c);
}

TEST(a_replica_is_made_again_and_follows_when_workers_know_where_it_is)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    copy(&c);
    CHECK(hash_of(&c.follower) == hash_of(&c.leader));
    CHECK_INT(fl_lane_version(c.follower.lane), 1);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    say_epoch(&c.leader, 0, FL_VIEW_ALONE);
    lane_hear(&c.leader, 0);
    CHECK_INT(c.leader.msg.head.piece, 1);
    CHECK_INT(c.leader.msg.section[0].op, FL_SECTION_HELLO);
    say_epoch(&c.leader, 1, FL_VIEW_ALONE);
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, c.follower.now_ms);
    lane_hear(&c.leader, 0);
    CHECK_INT(c.leader.msg.head.n_section, 0);
    settle(&c);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    CHECK(!strstr(c.leader.lines, "it has a replica again"));
    say_view(&c.leader, 4);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK_CONTAINS(c.leader.lines, "it has a replica again (view 4)");
    say_view(&c.follower, 4 + FL_VIEW_TAKEN);
    lane_hear_status(&c.follower, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_replica(c.follower.lane), FL_REPLICA_ALONE);
    close_pair(&c);
}

/* Its thread may be late: it has written all, and not said so. */
TEST(a_replica_does_not_follow_before_what_writes_it_has_ended)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    lane_tick_until(&c.follower, 400);
    settle(&c);
    CHECK(c.leader.copy != NULL);
    fl_lane_write_copy(c.leader.lane, c.leader.copy);
    fl_lane_copy_goes_on(c.leader.lane, c.leader.now_ms);
    settle(&c);
    say_epoch(&c.leader, 1, FL_VIEW_ALONE);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    settle(&c);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    fl_lane_copy_written(c.leader.lane, c.leader.copy, c.leader.now_ms);
    c.leader.copy = NULL;
    settle(&c);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    close_pair(&c);
}

/* It has not heard of the epoch yet, and asks once more. */
TEST(answers_wait_for_a_replica_that_is_about_to_follow)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    copy(&c);
    say_epoch(&c.leader, 1, FL_VIEW_ALONE);
    lane_hear(&c.leader, FOLLOWER); /* it is lost */
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_silent(&c.leader);
    lane_tick_until(&c.follower, 600);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, c.follower.now_ms);
    CHECK(carry_question(&c));
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    close_pair(&c);
}

/* Training goes on meanwhile. */
TEST(a_replica_that_is_made_again_gets_the_updates_behind)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    lane_tick_until(&c.follower, 400);
    settle(&c);
    CHECK(c.leader.copy != NULL);
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK); /* it does not wait */
    copy(&c);
    CHECK_INT(fl_lane_version(c.follower.lane), 2);
    CHECK(hash_of(&c.follower) == hash_of(&c.leader));
    close_pair(&c);
}

/* Another one may be made then; not for the same process. */
TEST(a_replica_that_is_not_heard_of_is_not_made)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    copy(&c);
    for (int64_t ms = 1000; ms <= 2000; ms += 500) {
        lane_tick_until(&c.leader, ms);
        say_view(&c.leader, FL_VIEW_ALONE);
        lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    }
    CHECK_CONTAINS(c.leader.lines, "its replica is not made again: its process "
                                   "was not heard of");
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    lane_tick_until(&c.follower, 600);
    settle(&c);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_LEFT);
    lane_close(&c.follower);
    open_follower(&c);
    copy(&c);
    CHECK(hash_of(&c.follower) == hash_of(&c.leader));
    close_pair(&c);
}

TEST(a_replica_that_cannot_be_written_leaves_the_lane_as_it_was)
{
    pair c;

    open_again(&c);
    let_alone(&c);
    c.leader.fails_commands = true;
    lane_tick_until(&c.follower, 400);
    settle(&c);
    CHECK_CONTAINS(c.leader.lines, "is not made again: no thread");
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK(!c.leader.lane->frozen);
    close_pair(&c);
}

/* --- keys ----------------------------------------------------------------- */

/* The next server of one is that one. */
TEST(the_next_servers_key_alone_speaks_for_a_replica)
{
    static const int foreign[] = {1, FL_GUARD_NOBODY, FL_GUARD_SUBSCRIBER,
                                  FL_GUARD_SERVER + 1};
    fl_peer peer = {.size = 1, .id = {FOLLOWER}};
    uint64_t n = sizeof foreign / sizeof *foreign;
    pair c;

    lane_replica = FL_REPLICA_LEADS;
    lane_open(&c.leader, SIM_SGD, 1, true);
    lane_replica = FL_REPLICA_FOLLOWS;
    lane_open(&c.follower, SIM_SGD, 1, true);
    fl_lane_begin_follow(c.follower.lane, NULL, 0);
    for (uint64_t i = 0; i < n; i++) {
        peer.sender = foreign[i];
        fl_lane_receive(c.leader.lane, &peer, c.follower.asked, 0);
        lane_silent(&c.leader);
    }
    CHECK_INT(fl_lane_counted(c.leader.lane).foreign, n);
    peer.sender = FL_GUARD_SERVER;
    fl_lane_receive(c.leader.lane, &peer, c.follower.asked, 0);
    lane_hear_status(&c.leader, FOLLOWER, FL_ANSWER_OK);
    close_pair(&c);
}

/* --- what it cannot begin with -------------------------------------------- */

/* A worker that comes later hears the words, too. */
TEST(a_replica_that_cannot_begin_dooms_its_leader)
{
    pair c;

    lane_replica = FL_REPLICA_LEADS;
    lane_open(&c.leader, SIM_SGD, 1, true);
    lane_replica = FL_REPLICA_FOLLOWS;
    lane_open(&c.follower, SIM_SGD, 1, true);
    fl_lane_begin_follow(c.follower.lane, NULL, 0);
    CHECK_OK(fl_lane_replay_load(c.follower.lane, "save"));
    CHECK(carry_question(&c));
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, 0);
    fl_lane_command_done(c.follower.lane, FLEET_ENOENT, "no such save", 0, 0,
                         0);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_FAILED);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_state_of(c.leader.lane), FL_LANE_RUNS);
    CHECK_CONTAINS(fl_lane_error(c.leader.lane)->text, "no such save");
    CHECK_CONTAINS(c.leader.lines, "server 0 cannot begin");
    close_pair(&c);
}

/* Its way to the leader opens late. */
TEST(a_replica_asks_again_when_it_has_found_its_leader)
{
    pair c;

    lane_replica = FL_REPLICA_FOLLOWS;
    lane_open(&c.follower, SIM_SGD, 1, true);
    fl_lane_begin_follow(c.follower.lane, NULL, 0);
    fl_packet_drop(c.follower.asked);
    c.follower.asked = NULL;
    fl_lane_found_leader(c.follower.lane, 5);
    CHECK(c.follower.asked != NULL);
    lane_close(&c.follower);
}

/* Its leader is not there. */
static fl_lane_state alone_after(int64_t ms, bool comes_again)
{
    fl_lane_state state;
    lane_kit k;

    lane_replica = FL_REPLICA_FOLLOWS;
    lane_comes_again = comes_again;
    lane_open(&k, SIM_SGD, 1, true);
    lane_replica = FL_NO_REPLICA;
    lane_comes_again = false;
    fl_lane_begin_follow(k.lane, NULL, 0);
    lane_tick_until(&k, ms);
    state = fl_lane_state_of(k.lane);
    CHECK(!fl_lane_was_fenced(k.lane));
    lane_close(&k);
    return state;
}

TEST(a_replica_that_comes_again_to_a_job_that_is_over_does_not_fail)
{
    CHECK_INT(alone_after(2500, true), FL_LANE_RUNS);
    CHECK_INT(alone_after(3500, true), FL_LANE_LEFT);
    CHECK_INT(alone_after(3500, false), FL_LANE_FAILED);
}

/* --- a lane that goes to another process ---------------------------------- */

/* The only copy, with an update that a worker was told of, is to go; the taker
 * has what it is. */
static void open_moving(pair *c)
{
    lane_open(&c->leader, SIM_SGD, 1, true);
    lane_push(&c->leader, 0, 1, 7, 1);
    lane_hear_status(&c->leader, 0, FL_ANSWER_OK);
    CHECK_OK(fl_lane_move(c->leader.lane, 0));
    open_follower(c);
    copy(c);
    CHECK(hash_of(&c->follower) == hash_of(&c->leader));
}

/* The worker knows the way, so the taker is a copy. */
static void join(pair *c)
{
    say_epoch(&c->leader, 1, FL_VIEW_ALONE);
    lane_hear(&c->leader, FOLLOWER);
    fl_lane_follow(c->follower.lane, c->leader.heard, c->follower.now_ms);
    lane_hear_status(&c->leader, 0, FL_ANSWER_OK);
    settle(c);
    CHECK_INT(fl_lane_replica(c->leader.lane), FL_REPLICA_LEADS);
}

/* All workers know the epoch: the taker is to say that it is there. */
static void begin_epoch(pair *c)
{
    CHECK_INT(lane_hear(&c->leader, FOLLOWER)->head.n_section, 0);
    fl_lane_follow(c->follower.lane, c->leader.heard, c->follower.now_ms);
}

/* The worker hears it at once, and what it sends to the old place again. */
TEST(a_lane_that_moves_is_led_by_the_taker)
{
    pair c;

    open_moving(&c);
    join(&c);
    say_view(&c.leader, 4);
    begin_epoch(&c);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK(carry_question(&c));
    CHECK_INT(lane_hear(&c.leader, 0)->head.status, FL_ANSWER_FENCED);
    CHECK_INT(fl_view_of(&c.leader.msg.head), 4 + FL_VIEW_TAKEN);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_GONE);
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_FENCED);
    say_view(&c.follower, 4 + FL_VIEW_TAKEN);
    lane_hear_status(&c.follower, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_replica(c.follower.lane), FL_REPLICA_ALONE);
    lane_push(&c.follower, 0, 1, 7, 1);
    lane_hear_status(&c.follower, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(c.follower.lane), 1);
    lane_push(&c.follower, 0, 2, 8, 1);
    lane_hear_status(&c.follower, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(c.follower.lane), 2);
    lane_tick_until(&c.leader, c.leader.now_ms + 700);
    CHECK_INT(fl_lane_state_of(c.leader.lane), FL_LANE_LEFT);
    close_pair(&c);
}

TEST(a_lane_stays_if_the_taker_is_not_heard_of)
{
    pair c;

    open_moving(&c);
    for (int64_t ms = 500; ms <= 2000; ms += 500) {
        lane_tick_until(&c.leader, ms);
        say_view(&c.leader, FL_VIEW_ALONE);
        lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    }
    CHECK_CONTAINS(c.leader.lines,
                   "its move is given up: its process was not heard of");
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    close_pair(&c);
}

TEST(a_lane_stays_if_nobody_takes_it)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    CHECK_OK(fl_lane_move(k.lane, 0));
    lane_tick_until(&k, k.now_ms + 900);
    CHECK(strstr(k.lines, "its move is given up") == NULL);
    lane_tick_until(&k, k.now_ms + 300);
    CHECK_CONTAINS(k.lines, "its move is given up: the process of server 0 has "
                            "not asked for it");
    CHECK_OK(fl_lane_move(k.lane, 0));
    lane_close(&k);
}

/* Nobody would tell it to lead, and each answer would wait for it. */
TEST(a_taker_whose_move_was_given_up_comes_too_late)
{
    pair c;

    lane_open(&c.leader, SIM_SGD, 1, true);
    CHECK_OK(fl_lane_move(c.leader.lane, 0));
    lane_tick_until(&c.leader, c.leader.now_ms + 1200);
    CHECK_CONTAINS(c.leader.lines, "its move is given up");
    open_follower(&c);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_LEFT);
    CHECK(!c.leader.lane->replica->copy);
    CHECK_OK(fl_lane_move(c.leader.lane, 0));
    lane_close(&c.follower);
    open_follower(&c);
    CHECK(c.leader.lane->replica->copy);
    close_pair(&c);
}

static void lose_all(lane_kit *k)
{
    while (k->n_sent > 0)
        lane_hear(k, k->sent[0].to);
}

/* It dies as a copy, before the worker has said that it knows the epoch. */
TEST(a_lane_stays_if_the_taker_dies_before_it_leads)
{
    pair c;

    open_moving(&c);
    join(&c);
    lane_push(&c.leader, 0, 2, 8, 1);
    lane_tick_until(&c.leader, c.leader.now_ms + 1200);
    lose_all(&c.leader); /* the taker never gets the record */
    say_view(&c.leader, 4 + FL_VIEW_ALONE);
    lose_all(&c.leader);
    lane_tick_until(&c.leader, c.leader.now_ms + 200);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK); /* of the push */
    lane_push(&c.leader, 0, 3, 8, 1);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_version(c.leader.lane), 3);
    close_pair(&c);
}

/* It dies as all workers know the epoch, and is not missed for a while. */
TEST(a_taker_that_is_not_there_any_more_gets_no_lane)
{
    pair c;

    open_moving(&c);
    join(&c);
    say_view(&c.leader, 4);
    begin_epoch(&c);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    lane_tick_until(&c.leader, c.leader.now_ms + 900);
    lane_push(&c.leader, 0, 2, 8, 1);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    lane_tick_until(&c.leader, c.leader.now_ms + 300);
    lose_all(&c.leader);
    say_view(&c.leader, 4 + FL_VIEW_ALONE);
    lose_all(&c.leader);
    lane_tick_until(&c.leader, c.leader.now_ms + 200);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK); /* of the push */
    close_pair(&c);
}

TEST(a_lane_stays_until_all_workers_know_the_epoch)
{
    pair c;

    open_moving(&c);
    join(&c);
    lane_tick_until(&c.follower, c.follower.now_ms + 200);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    close_pair(&c);
}

/* The taker is well; but a worker does not reach it, so that it never says that
 * it knows the epoch. */
TEST(a_lane_stays_if_a_worker_does_not_reach_the_taker)
{
    pair c;

    open_moving(&c);
    join(&c);
    for (int i = 0; i < 6; i++) {
        CHECK(strstr(c.leader.lines, "its move is given up") == NULL || i == 5);
        lane_tick_until(&c.leader, c.leader.now_ms + 450);
        lane_tick_until(&c.follower, c.follower.now_ms + 450);
        while (carry_question(&c))
            ;
        say_view(&c.leader, FL_VIEW_ALONE);
        lose_all(&c.leader);
    }
    CHECK_CONTAINS(c.leader.lines,
                   "its move is given up: not all workers reach it");
    say_view(&c.leader, 4 + FL_VIEW_ALONE);
    lane_tick_until(&c.leader, c.leader.now_ms + 200);
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_ALONE);
    close_pair(&c);
}

/* Nobody would tell the taker to lead: it hears of the job's end, and is not
 * left with a lane that has gone. */
TEST(a_lane_that_all_workers_have_left_does_not_go)
{
    pair c;

    open_moving(&c);
    join(&c);
    say_view(&c.leader, 4);
    begin_epoch(&c);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    lane_say(&c.leader, FL_MSG_STEP, 0, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, c.follower.now_ms);
    CHECK(carry_question(&c));
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    lane_say(&c.leader, FL_MSG_BYE, 0, 2, 0);
    lane_tick_until(&c.leader, c.leader.now_ms + 200);
    lane_hear(&c.leader, FOLLOWER);
    fl_lane_follow(c.follower.lane, c.leader.heard, c.follower.now_ms);
    CHECK_INT(fl_lane_state_of(c.leader.lane), FL_LANE_LEFT);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_LEFT);
    close_pair(&c);
}

TEST(a_taker_that_has_found_no_lane_ends_with_the_job)
{
    pair c;

    lane_replica = FL_REPLICA_FOLLOWS;
    lane_open(&c.follower, SIM_SGD, 1, true);
    lane_replica = FL_NO_REPLICA;
    fl_lane_begin_follow(c.follower.lane, NULL, 0);
    fl_lane_seek_no_more(c.follower.lane);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_LEFT);
    lane_close(&c.follower);
    open_moving(&c);
    fl_lane_seek_no_more(c.leader.lane);
    fl_lane_seek_no_more(c.follower.lane);
    CHECK_INT(fl_lane_state_of(c.leader.lane), FL_LANE_RUNS);
    CHECK_INT(fl_lane_state_of(c.follower.lane), FL_LANE_RUNS);
    close_pair(&c);
}

/* Two processes would write its files, or its result would go nowhere. */
TEST(a_lane_that_saves_goes_when_it_has)
{
    pair c;

    open_moving(&c);
    join(&c);
    lane_command(&c.leader, 0, 2, "save");
    CHECK_INT(c.leader.n_command, 1);
    say_view(&c.leader, 4);
    lane_hear(&c.leader, 0); /* the save waits */
    begin_epoch(&c);
    lane_hear_status(&c.leader, 0, FL_ANSWER_OK);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_LEADS);
    fl_lane_command_done(c.leader.lane, FLEET_OK, NULL, 0, 0, c.leader.now_ms);
    lane_tick_until(&c.follower, c.follower.now_ms + 200);
    CHECK(carry_question(&c));
    CHECK_INT(fl_lane_replica(c.leader.lane), FL_REPLICA_GONE);
    close_pair(&c);
}

TEST(lanes_that_may_not_move_say_why)
{
    lane_kit k;

    lane_no_move = "so be it";
    lane_open(&k, SIM_SGD, 1, true);
    lane_no_move = NULL;
    CHECK_FAILS(fl_lane_move(k.lane, 0), FLEET_EUNSUPPORTED,
                "its lanes stay where they are: so be it");
    lane_close(&k);
    lane_open(&k, SIM_SGD, 1, true);
    CHECK_FAILS(fl_lane_move(k.lane, 1), FLEET_EINVAL,
                "there is no server 1: expected 0 to 0");
    CHECK_OK(fl_lane_move(k.lane, 0));
    CHECK_OK(fl_lane_move(k.lane, 0));
    lane_close(&k);
}
