/* ps_refused_test.c - a worker that cannot be one of the job's is told why, in
 * words that it can read; and an answer is summed as its request was. A client
 * and a lane that hand each other their packets. */
#define SUITE ps_refused
#include "base/memory.h"
#include "net_kit.h"
#include "ps/worker/client.h"
#include "ps/server/lane.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

typedef struct pair {
    fl_store store;
    fl_partition layout;
    fl_bucket_map map;
    fl_ps_lane *lane;
    fl_client *client;
    fl_request request;
    int version;    /* of the lane's library; 0: this one's */
    uint16_t flags; /* of the last answer */
} pair;

static fl_packet *copy_of(const fl_packet *p)
{
    fl_packet *copy;

    CHECK_OK(fl_packet_create(net_pool, &copy));
    for (int i = 0; i < p->n_frame; i++)
        memcpy(fl_packet_add(copy, p->frame[i].size), p->frame[i].data,
               p->frame[i].size);
    return copy;
}

static void to_client(void *arg, const fl_peer *to, fl_packet *p)
{
    pair *a = arg;
    fl_packet *copy = copy_of(p);

    (void)to;
    if (a->version)
        ((uint8_t *)copy->frame[0].data)[4] = (uint8_t)a->version;
    memcpy(&a->flags, (char *)copy->frame[0].data + 6, sizeof a->flags);
    fl_client_receive(a->client, 0, copy, 0);
    fl_packet_drop(copy);
}

static void to_lane(void *arg, int lane, fl_packet *p)
{
    pair *a = arg;

    (void)lane;
    fl_lane_receive(a->lane, &(fl_peer){.size = 1}, p, 0);
}

static fleet_status no_command(void *arg, const fl_lane_command *command)
{
    (void)arg;
    (void)command;
    return FLEET_OK;
}

static void open_pair(pair *a, const char *job, bool whole)
{
    static fl_server_identity identity = {.nonce = 7, .run = 5};
    static const char *const address[] = {"{}"};
    const fl_lane_host lane_host = {
        .arg = a, .send = to_client, .begin = no_command};
    const fl_client_host client_host = {.arg = a, .send = to_lane};
    fl_lane_options lane = {.layout = &a->layout,
                            .identity = &identity,
                            .n_lane = 1,
                            .n_stream = 1,
                            .job = "ours",
                            .mode = "ps-sync",
                            .program = "",
                            .address = address,
                            .most_open = 1 << 20};
    fl_client_options client = {.job = job, .whole_sums = whole};

    net_open_pool();
    lane.pool = client.pool = net_pool;
    a->layout.store = &a->store;
    a->layout.n_server = 1;
    fl_bucket_map_begin(&a->map, 1, (int[]){1});
    lane.map = &a->map;
    CHECK_OK(fl_lane_create(&a->lane, &lane, &lane_host, 0));
    CHECK_OK(fl_client_create(&a->client, &client, &client_host));
    CHECK_OK(fl_client_add_lane(a->client, "server 0", 0));
}

static void close_pair(pair *a)
{
    fl_request_done(&a->request);
    fl_client_destroy(a->client);
    fl_lane_destroy(a->lane);
    net_close_pool();
    test_check_leaks();
}

/* number: that the server has in the worker's list. */
static void say_hello(pair *a, const char *job, int number)
{
    char text[300];
    fl_msg_writer w;

    snprintf(text, sizeof text,
             "{\"job\":\"%s\",\"mode\":\"ps-sync\",\"program\":\"\","
             "\"who\":\"here:1\",\"isa\":\"plain\",\"nonce\":\"1\","
             "\"workers\":1,\"servers\":1,\"server\":%d}",
             job, number);
    fl_client_begin(a->client, 0, &a->request, &w, FL_MSG_HELLO, 0, 0);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    CHECK_OK(fl_client_add(a->client, &a->request, &w));
    fl_client_send(a->client, &a->request, 0);
}

TEST(a_worker_of_the_job_is_welcome)
{
    pair a = {0};

    open_pair(&a, "ours", false);
    say_hello(&a, "ours", 0);
    CHECK_OK(fl_client_result(a.client, &a.request, "hello"));
    CHECK_INT(fl_client_answer(a.client, &a.request)->head.incarnation, 1);
    close_pair(&a);
}

TEST(a_worker_of_another_job_is_told_so)
{
    pair a = {0};

    open_pair(&a, "theirs", false);
    say_hello(&a, "theirs", 0);
    CHECK_INT(a.request.state, FL_REQUEST_DONE);
    CHECK_FAILS(fl_client_result(a.client, &a.request, "hello"), FLEET_EINVAL,
                "the worker is of job \"theirs\", this server of \"ours\"");
    close_pair(&a);
}

TEST(a_worker_with_another_list_of_servers_is_told_so)
{
    pair a = {0};

    open_pair(&a, "ours", false);
    say_hello(&a, "ours", 1);
    CHECK_FAILS(fl_client_result(a.client, &a.request, "hello"), FLEET_EINVAL,
                "this is server 0, but number 1 in the worker's "
                "PADDLE_PSERVERS_IP_PORT_LIST: all processes must have the "
                "same list");
    close_pair(&a);
}

TEST(an_answer_of_another_version_ends_the_waiting)
{
    pair a = {.version = 2};

    open_pair(&a, "ours", false);
    say_hello(&a, "ours", 0);
    CHECK_INT(a.request.state, FL_REQUEST_DONE);
    CHECK_FAILS(fl_client_result(a.client, &a.request, "hello"),
                FLEET_EUNSUPPORTED,
                "server 0 speaks protocol 2, this worker 1");
    close_pair(&a);
}

TEST(an_answer_is_summed_as_its_request_was)
{
    pair a = {0}, b = {0};

    open_pair(&a, "ours", true);
    say_hello(&a, "ours", 0);
    CHECK_OK(fl_client_result(a.client, &a.request, "hello"));
    CHECK_INT(a.flags, FL_MSG_CRC_ALL);
    close_pair(&a);
    open_pair(&b, "ours", false);
    say_hello(&b, "ours", 0);
    CHECK_INT(b.flags, 0);
    close_pair(&b);
}
