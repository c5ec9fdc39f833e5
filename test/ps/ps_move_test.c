/* ps_move_test.c - jobs of real processes whose lanes go from server to server
 * while they train, as fleetctl says: to the bits of a job that nothing has
 * befallen in sync, and with each push once in async. */
#define SUITE ps_move
#include "move_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/keys.h"
#include "net/socket.h"
#include "ps/control/control.h"
#include "ps/server/lane.h"

/* A lane of each of two servers goes to one whose key does not speak for a copy
 * of it; the job's first lane, too, and that one back. With keys, by tcp. */
TEST_LIMIT(lanes_move_under_load_to_the_same_bits, 120)
{
    ps_job j = move_job(3);
    uint64_t want = ps_hash(&j);

    setenv("FLEET_TRANSPORT", "tcp", 1);
    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, 3, 2));
    move_start(&j);
    move_lane(&j, "move 0:0 2", "server 0, lane 0: from server 0 to server 2");
    move_lane(&j, "move 1:1 0", "server 1, lane 1: from server 1 to server 0");
    move_lane(&j, "move 0:0 0", "server 0, lane 0: from server 2 to server 0");
    move_lane(&j, "move 0:0 0", "server 0, lane 0: is at server 0");
    move_lane(&j, "move 0:0 2", "server 0, lane 0: from server 0 to server 2");
    CHECK(move_check_end(&j) == want);
}

/* Three servers are two, and its process ends by itself. */
TEST_LIMIT(a_server_that_is_drained_ends_and_the_job_goes_on_to_the_same_bits,
           120)
{
    ps_job j = move_job(3);
    uint64_t want = ps_hash(&j);

    move_start(&j);
    move_lane(&j, "drain 2", "server 2, lane 1: from server 2 to server ");
    ps_check_ends(ps_server(&j, 2));
    move_lane(&j, "status", "by server 0");
    CHECK(move_check_end(&j) == want);
}

TEST_LIMIT(a_worker_that_has_not_come_was_never_heard_of, 60)
{
    ps_job j = move_job(1);
    char said[8000];

    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    CHECK_INT(move_control(&j, "status", said), 0);
    CHECK_CONTAINS(said, "  -  has not come (-)");
    CHECK(strstr(said, "ms ago") == NULL);
    ps_kill(ps_server(&j, 0), SIGTERM);
    CHECK_INT(ps_wait(ps_server(&j, 0)), 0);
}

/* As fleetctl says it, which dies before it has told the lane to go. */
static void tell_taker_alone(const ps_job *j)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_ADMIN,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_msg_job("default", 0),
                              .stream = FL_CONTROL_STREAM,
                              .request = 1};
    char address[40];
    fl_packet_pool *pool;
    fl_socket *socket;
    fl_msg_writer w;
    fl_packet *p;

    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j->port[0]);
    CHECK_OK(fl_packet_pool_create(&pool, 1 << 20));
    CHECK_OK(fl_socket_connect_to(&socket, address, NULL, 0));
    fl_msg_begin(&w, pool, &head);
    fl_msg_text(
        &w, FL_SECTION_TEXT,
        FL_CONTROL_TAKE
        "{\"server\":1,\"lane\":0,\"lanes\":2,\"at\":1,"
        "\"address\":\"{\\\"port\\\":1}\",\"home\":\"tcp://127.0.0.1:1\"}");
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_socket_send(socket, NULL, p);
    fl_packet_drop(p);
    for (p = NULL; !p;) {
        CHECK_OK(fl_socket_wait(&socket, 1, NULL, 100));
        CHECK_OK(fl_socket_receive(socket, NULL, &p));
    }
    fl_packet_drop(p);
    fl_socket_close(socket, 0);
    fl_packet_pool_destroy(pool);
}

/* It would wait for the connect deadline. */
TEST_LIMIT(a_taker_that_finds_no_lane_ends_with_the_job, 20)
{
    ps_job j = move_job(2);

    move_start(&j);
    tell_taker_alone(&j);
    move_check_end(&j);
}

TEST_LIMIT(a_taker_that_finds_no_lane_ends_with_a_job_that_fails, 20)
{
    ps_job j = move_job(2);

    move_start(&j);
    tell_taker_alone(&j);
    move_check_killed(&j);
}

/* What it has nobody knows; the next one is not drained into one that ends. */
TEST_LIMIT(a_server_that_is_silent_is_not_drained, 120)
{
    ps_job j = move_job(3);
    char said[8000];

    j.peer_ms = 10 * PS_SECOND; /* it is not missed */
    move_start(&j);
    move_lane(&j, "drain 2", "server 2, lane 1: from server 2 to server ");
    move_lane(&j, "drain 1", "server 1, lane 1: from server 1 to server 0");
    kill(ps_server(&j, 0)->pid, SIGSTOP);
    CHECK_INT(move_control(&j, "--timeout 1000 drain 0", said), 2);
    CHECK_CONTAINS(said, "server 0 may have lanes yet");
    kill(ps_server(&j, 0)->pid, SIGCONT);
    move_check_end(&j);
}

/* --- async ---------------------------------------------------------------- */

TEST_LIMIT(lanes_that_move_in_async_have_each_push_once, 120)
{
    ps_job j = move_sums_job(2);
    uint64_t want = ps_hash(&j);

    move_start(&j);
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    move_lane(&j, "move 1:0 0", "server 1, lane 0: from server 1 to server 0");
    move_lane(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    CHECK(move_check_end(&j) == want);
}

/* A lane to the other server and back: what workers gather, pushes that are
 * under way, and how far workers may be apart. */
static void check_moves(ps_job *j)
{
    uint64_t want = ps_hash(j);

    move_start(j);
    move_lane(j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    move_lane(j, "move 0:1 0", "server 0, lane 1: from server 1 to server 0");
    CHECK(move_check_end(j) == want);
}

TEST_LIMIT(lanes_that_move_in_half_async_have_each_gradient_once, 120)
{
    ps_job j = move_sums_job(2);

    j.how.merged = 4; /* means of 4 and of 16 samples are exact */
    j.how.bounds_staleness = true;
    j.how.max_staleness = 1;
    check_moves(&j);
}

TEST_LIMIT(lanes_that_move_in_geo_have_each_change_once, 120)
{
    ps_job j = move_sums_job(2);

    j.how.geo = 4;
    check_moves(&j);
}

/* --- ends ----------------------------------------------------------------- */

/* Nothing else has what it kept. */
TEST_LIMIT(a_server_that_dies_as_a_lane_leaves_it_ends_the_job_by_its_name, 120)
{
    ps_job j = move_job(2);
    char said[8000];

    move_start(&j);
    kill(ps_server(&j, 1)->pid, SIGSTOP); /* it takes nothing */
    CHECK_INT(move_control(&j, "--timeout 1000 move 0:1 1", said), 2);
    CHECK_CONTAINS(said, "server 1 does not answer");
    kill(ps_server(&j, 1)->pid, SIGKILL);
    kill(ps_server(&j, 1)->pid, SIGCONT);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), "server 1 at ");
    ps_check_fails(ps_server(&j, 0), "server 1 at ");
}
