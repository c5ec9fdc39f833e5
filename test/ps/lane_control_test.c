/* lane_control_test.c - what a lane says to fleetctl, and who may ask. */
#define SUITE lane_control
#include "base/json/json.h"
#include "base/memory.h"
#include "lane_kit.h"
#include "ps/control/control.h"
#include "test.h"

#include <string.h>

#define LANE_JOB "job" /* lane_kit.c */

enum { ASKER = 201 }; /* of its peer, the first byte */

static void ask_as(lane_kit *k, const char *job, const char *word,
                   const fl_peer *peer)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_ADMIN,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_msg_job(job, 0),
                              .stream = FL_CONTROL_STREAM,
                              .request = 1};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, k->pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, word);
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_lane_receive(k->lane, peer, p, k->now_ms);
    fl_packet_drop(p);
}

static void ask(lane_kit *k, const char *word)
{
    ask_as(k, LANE_JOB, word, &(fl_peer){.size = 1, .id = {ASKER}});
}

/* What it says of itself; the caller frees it. */
static fl_json *hear_status(lane_kit *k)
{
    const fl_msg *msg;
    fl_json *json;
    char *text;

    ask(k, FL_CONTROL_STATUS);
    msg = lane_hear(k, ASKER);
    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    text = fl_msg_get_text(msg, FL_SECTION_TEXT);
    CHECK_OK(fl_json_parse(text, strlen(text), "status", &json));
    fl_free(text);
    return json;
}

static int64_t number(const fl_at *at, const char *key)
{
    fl_at value = fl_at_key(at, key);
    int64_t n = -1;

    CHECK_OK(fl_at_int(&value, -1, INT64_MAX, &n));
    return n;
}

static const char *word(const fl_at *at, const char *key)
{
    fl_at value = fl_at_key(at, key);
    const char *text = "";

    CHECK_OK(fl_at_string(&value, &text));
    return text;
}

TEST(a_lane_says_what_it_has)
{
    static const uint64_t keys[] = {3, 5, 8};
    lane_kit k;
    fl_json *json;
    fl_at at, list, one;

    lane_open(&k, SIM_SGD, 2, false);
    lane_push_rows(&k, 1, 1, keys, 3, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    json = hear_status(&k);
    at = fl_at_root(json);
    CHECK_INT(number(&at, "version"), 1);
    CHECK_INT(number(&at, "rows"), 3);
    CHECK(number(&at, "bytes") > 0);
    CHECK_INT(number(&at, "buckets"), 1024);
    CHECK_TEXT(word(&at, "copy"), "only");
    CHECK_TEXT(word(&at, "state"), "serves");
    list = fl_at_key(&at, "workers");
    CHECK_INT(fl_at_count(&list), 2);
    one = fl_at_index(&list, 0);
    CHECK_INT(number(&one, "step"), 0);
    one = fl_at_index(&list, 1);
    CHECK_INT(number(&one, "step"), 1);
    CHECK_TEXT(word(&one, "state"), "trains");
    fl_json_free(json);
    lane_close(&k);
}

/* Its store is not looked at meanwhile. */
TEST(a_lane_that_saves_says_so_and_nothing_of_rows)
{
    fl_json *json;
    fl_at at;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    lane_command(&k, 0, 1, "save");
    json = hear_status(&k);
    at = fl_at_root(json);
    CHECK_TEXT(word(&at, "state"), "saves, loads or hashes");
    CHECK(fl_at_key(&at, "rows").json == NULL);
    fl_json_free(json);
    fl_lane_command_done(k.lane, FLEET_OK, NULL, 0, 0, k.now_ms);
    lane_close(&k);
}

/* Until the end of its log, of which it has no more to say. */
TEST(a_lane_that_is_made_again_says_that_it_comes_back)
{
    fl_json *json;
    fl_at at;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    fl_lane_begin_replay(k.lane, k.now_ms);
    json = hear_status(&k);
    at = fl_at_root(json);
    CHECK_TEXT(word(&at, "state"), "comes back");
    fl_json_free(json);
    fl_lane_end_replay(k.lane, FLEET_OK, NULL, k.now_ms);
    lane_close(&k);
}

/* Answers to workers do; it holds none of them back. */
TEST(what_fleetctl_is_told_does_not_wait_for_a_replica)
{
    fl_json *json;
    fl_at at;
    lane_kit k;

    lane_replica = FL_REPLICA_LEADS;
    lane_open(&k, SIM_SGD, 1, true);
    lane_replica = FL_NO_REPLICA;
    lane_push(&k, 0, 1, 3, 1);
    lane_silent(&k);
    json = hear_status(&k);
    at = fl_at_root(json);
    CHECK_TEXT(word(&at, "copy"), "leads");
    CHECK_INT(number(&at, "view"), 0);
    fl_json_free(json);
    lane_close(&k);
}

static void check_refused(lane_kit *k, const char *job, const char *what,
                          const fl_peer *peer, const char *words)
{
    const fl_msg *msg;
    char *text;

    ask_as(k, job, what, peer);
    msg = lane_hear(k, ASKER);
    CHECK_INT(msg->head.status, FL_ANSWER_REFUSED);
    text = fl_msg_get_text(msg, FL_SECTION_TEXT);
    CHECK_CONTAINS(text, words);
    fl_free(text);
}

TEST(nobody_else_may_ask)
{
    static const int foreign[] = {1, FL_GUARD_NOBODY, FL_GUARD_SUBSCRIBER,
                                  FL_GUARD_SERVER};
    fl_peer peer = {.size = 1, .id = {ASKER}};
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    check_refused(&k, "other", FL_CONTROL_STATUS, &peer,
                  "is for another job: this server is of \"" LANE_JOB "\"");
    check_refused(&k, LANE_JOB, "dance", &peer,
                  "what this server does not know: \"dance\"");
    check_refused(&k, LANE_JOB, FL_CONTROL_GIVE "-4294967296", &peer,
                  "expected a server's number, got \"-4294967296\"");
    check_refused(&k, LANE_JOB, FL_CONTROL_GIVE "4294967296", &peer,
                  "expected a server's number, got \"4294967296\"");
    peer.is_far = true;
    check_refused(&k, LANE_JOB, FL_CONTROL_STATUS, &peer,
                  "came from another machine: without keys");
    peer.is_far = false;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        peer.sender = foreign[i];
        check_refused(&k, LANE_JOB, FL_CONTROL_STATUS, &peer,
                      "with a key that is good for other things");
    }
    peer.sender = FL_GUARD_CONTROL;
    ask_as(&k, LANE_JOB, FL_CONTROL_STATUS, &peer);
    CHECK_INT(lane_hear(&k, ASKER)->head.status, FL_ANSWER_OK);
    lane_close(&k);
}

/* It is good for nothing else. */
TEST(fleetctls_key_speaks_for_no_worker)
{
    fl_msg_head head = lane_head(FL_MSG_HEARTBEAT, 0, 0, 0);
    fl_peer peer = {.size = 1, .id = {ASKER}, .sender = FL_GUARD_CONTROL};
    fl_msg_writer w;
    fl_packet *p;
    char *text;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, true);
    fl_msg_begin(&w, k.pool, &head);
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_lane_receive(k.lane, &peer, p, k.now_ms);
    fl_packet_drop(p);
    text = fl_msg_get_text(lane_hear(&k, ASKER), FL_SECTION_TEXT);
    CHECK_CONTAINS(text, "its key is good for commands alone");
    fl_free(text);
    lane_close(&k);
}
