/* stage_chain_test.c - what a stage between others asks of its socket: batches
 * that are taken together are answered in their order; a batch behind a pass
 * waits for its end; a heter worker speaks for the workers whose batches it
 * brings, and those do not; what waits hears that the next stage gets on; a
 * worker that leaves waits for a stage that comes back. */
#define SUITE stage_chain
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/socket.h"
#include "ps/stage/stage_client.h"
#include "ps/stage/stage_server.h"
#include "ps/stage/stage_wire.h"

enum { FLIGHT = 3, RUN = 7, STEP = 5, FIRST = 2, WORKERS = 4, HETER = 1 };

static const char boundary[] = "h float32[-1,1]\n";
static const fleet_var var_h = {
    .name = "h",
    .dtype = FLEET_FLOAT32,
    .shape = {.n_dim = 2, .dim = {-1, 1}},
};

static fleet_status fine(void *arg)
{
    (void)arg;
    return FLEET_OK;
}

/* Of one worker, number FIRST. */
static fl_stage_server_options server_options(void)
{
    return (fl_stage_server_options){.address = "inproc://chain",
                                     .listen_fd = -1,
                                     .name = "heter worker 1",
                                     .job = "night",
                                     .run = RUN,
                                     .first_trainer = FIRST,
                                     .n_trainer = 1,
                                     .boundary = boundary,
                                     .n_in_flight = FLIGHT,
                                     .peer_ms = 5000,
                                     .step_ms = 5000,
                                     .status = fine};
}

static fl_stage_client_options client_options(void)
{
    return (fl_stage_client_options){.address = "inproc://chain",
                                     .name = "heter worker 1",
                                     .own_name = "heter worker 0",
                                     .job = "night",
                                     .run = RUN,
                                     .incarnation = 1,
                                     .trainer = FIRST,
                                     .boundary = boundary,
                                     .n_in_flight = FLIGHT,
                                     .connect_ms = 5000,
                                     .request_ms = 5000,
                                     .peer_ms = 5000,
                                     .step_ms = 5000,
                                     .status = fine};
}

static void send_one(fl_stage_client *c, int number, bool last)
{
    float h = (float)number;
    const fl_stage_value value = {
        .var = &var_h, .data = &h, .rows = 1, .cols = 1, .ld = 1};
    const fl_stage_batch b = {.batch = 1,
                              .capacity = 1,
                              .number = number,
                              .last = last,
                              .trains = true,
                              .value = &value,
                              .n_value = 1};
    fl_stage_link *link = fl_stage_client_link(c);

    CHECK_OK(link->send(link, &b));
}

static float receive_one(fl_stage_client *c, int number)
{
    fl_stage_link *link = fl_stage_client_link(c);
    float loss = -1;
    const fl_stage_batch b = {.number = number, .loss = &loss};

    CHECK_OK(link->receive(link, &b));
    return loss;
}

static fl_stage_event next_event(fl_stage_server *s)
{
    fl_stage_event event;
    fl_packet *p;

    CHECK_OK(fl_stage_server_next(s, FIRST, false, &event, &p));
    fl_packet_drop(p);
    return event;
}

/* With that loss. */
static void answer(fl_stage_server *s, float loss)
{
    static const fl_trail_packets lane[] = {{NULL, 0}};
    const fl_stage_parts parts = {.lane = lane, .n_lane = 1};
    const fl_stage_value v = {
        .var = &var_h, .data = &loss, .rows = 1, .cols = 1, .ld = 1};
    fl_msg_writer w;

    fl_stage_server_begin(s, FIRST, &w);
    CHECK_OK(fl_stage_write(&w, 0, &v));
    CHECK_OK(fl_stage_server_answer(s, FIRST, &w, &parts));
}

TEST(batches_that_are_taken_together_are_answered_in_their_order)
{
    const fl_stage_server_options o = server_options();
    const fl_stage_client_options to = client_options();
    fl_stage_server *s;
    fl_stage_client *c;

    CHECK_OK(fl_stage_server_open(&s, &o));
    CHECK_OK(fl_stage_client_open(&c, &to));
    for (int n = FLIGHT; n > 1; n--) {
        for (int i = 0; i < n; i++)
            send_one(c, i, i + 1 == n);
        for (int i = 0; i < n; i++)
            CHECK_INT(next_event(s), FL_STAGE_BATCH);
        for (int i = 0; i < n; i++)
            answer(s, 10.0f + (float)i);
        for (int i = 0; i < n; i++)
            CHECK(receive_one(c, i) == 10.0f + (float)i);
    }
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    CHECK(fl_stage_server_where(s, FIRST).left);
    fl_stage_server_close(s, NULL);
}

static uint64_t number_now;

static uint64_t give_number(void *arg)
{
    (void)arg;
    return number_now;
}

/* The process before has died when the pass was over on all lanes, and it had
 * not heard of that. */
TEST(a_batch_behind_a_pass_waits_for_the_pass_to_be_over)
{
    fl_stage_server_options o = server_options();
    fl_stage_client_options to = client_options();
    fl_stage_server *s;
    fl_stage_client *c;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    CHECK_OK(fl_stage_log_open(&o.stage_log, test_path("log"), FIRST, 1, 0));
    o.nonce = 77;
    to.number = give_number;
    CHECK_OK(fl_stage_server_open(&s, &o));
    CHECK_OK(fl_stage_client_open(&c, &to));
    fl_stage_server_stands(s, STEP, 4);
    number_now = 20;
    CHECK_OK(fl_stage_client_end_pass(c));
    number_now = 21;
    send_one(c, 0, true);
    while (fl_stage_server_where(s, FIRST).number < 21)
        usleep(500);
    CHECK_INT(next_event(s), FL_STAGE_PASS_ENDED);
    CHECK_INT(fl_stage_server_where(s, FIRST).ended_at, 20);
    fl_stage_server_pass_over(s, STEP + 1);
    CHECK_INT(next_event(s), FL_STAGE_BATCH);
    answer(s, 3);
    CHECK(receive_one(c, 0) == 3);
    number_now = 22;
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(o.stage_log);
}

/* --- keys ----------------------------------------------------------------- */

static int listen_somewhere(char address[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0);
    CHECK(listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static fl_keys *keys_of(int worker)
{
    fl_keys *keys;

    CHECK_OK(fl_keys_read(&keys, test_path("keys"), false, worker));
    return keys;
}

/* Heter worker 0 has key 4 and brings the batches of worker 2 to heter worker
 * 1. Worker 2 may not come by itself. */
TEST(batches_come_by_the_key_of_the_process_that_brings_them)
{
    const int key = WORKERS;
    fl_keys *server, *worker, *heter;
    fl_stage_server_options o = server_options();
    fl_stage_client_options to = client_options();
    char address[64];
    fl_stage_server *s;
    fl_stage_client *c;

    CHECK_OK(fl_keys_make(test_path("keys"), 1, WORKERS + 2));
    server = keys_of(WORKERS + HETER);
    worker = keys_of(FIRST);
    heter = keys_of(WORKERS);
    o.listen_fd = listen_somewhere(address);
    o.address = to.address = address;
    o.keys = server;
    o.key = &key;
    to.key = WORKERS + HETER;
    CHECK_OK(fl_stage_server_open(&s, &o));
    to.keys = worker;
    to.connect_ms = 300;
    CHECK_FAILS(fl_stage_client_open(&c, &to), FLEET_ETIMEDOUT,
                "has not answered a hello");
    to.keys = heter;
    to.connect_ms = 5000 * TEST_SLOWNESS;
    CHECK_OK(fl_stage_client_open(&c, &to));
    (void)fl_fail(FLEET_EIO, "out of ink");
    fl_stage_client_close(c);
    CHECK_TEXT(fleet_last_error(), "out of ink"); /* as the next one hears */
    CHECK_INT(fleet_last_status(), FLEET_EIO);
    CHECK_FAILS(fl_stage_server_next(s, FIRST, false, &(fl_stage_event){0},
                                     &(fl_packet *){NULL}),
                FLEET_EPEER, "heter worker 0 has given up: out of ink");
    fl_stage_server_close(s, NULL);
    fl_keys_destroy(server);
    fl_keys_destroy(worker);
    fl_keys_destroy(heter);
}

/* --- ends ----------------------------------------------------------------- */

/* Worker FIRST is not late: its batches come by way of heter worker 0. */
TEST(who_is_late_is_who_brings_the_batches)
{
    const int key = WORKERS;
    fl_stage_server_options o = server_options();
    fl_stage_event event;
    fl_stage_server *s;
    fl_packet *p;

    o.key = &key;
    o.n_worker = WORKERS;
    o.step_ms = 100;
    CHECK_OK(fl_stage_server_open(&s, &o));
    CHECK_FAILS(fl_stage_server_next(s, FIRST, true, &event, &p),
                FLEET_ETIMEDOUT, "heter worker 0 has kept heter worker 1 and");
    fl_stage_server_close(s, NULL);
}

/* Of a worker that has left; `told`: so was the next stage, it is said then. */
static void check_place(fl_stage_server_options *o, bool told, bool tell)
{
    fl_stage_server *s;
    fl_stage_place at;

    CHECK_OK(fl_stage_log_open(&o->stage_log, test_path("log"), FIRST, 1, 0));
    CHECK_OK(fl_stage_server_open(&s, o));
    at = fl_stage_server_where(s, FIRST);
    CHECK(at.left && at.told == told);
    if (tell)
        CHECK_OK(fl_stage_server_told(s, FIRST));
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(o->stage_log);
}

/* The next process looks for it no more. */
TEST(that_the_next_stage_knows_of_a_leave_is_in_the_log)
{
    fl_stage_server_options o = server_options();
    const fl_stage_client_options to = client_options();
    fl_stage_server *s;
    fl_stage_client *c;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    CHECK_OK(fl_stage_log_open(&o.stage_log, test_path("log"), FIRST, 1, 0));
    CHECK_OK(fl_stage_server_open(&s, &o));
    CHECK_OK(fl_stage_client_open(&c, &to));
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(o.stage_log);
    check_place(&o, false, true);
    check_place(&o, true, false);
}

/* --- progress ------------------------------------------------------------- */

typedef struct between {
    fl_stage_server *server;
    fl_stage_client *client;
    uint64_t begin, next; /* progress: of the client, of the next stage */
    bool answered;
} between;

/* While the client waits: the next stage gets on three times. */
static fleet_status get_on(void *arg)
{
    between *b = arg;

    if (!b->client || b->answered)
        return FLEET_OK;
    fl_stage_server_gets_on(b->server, b->next);
    b->answered = fl_stage_client_progress(b->client) >= b->begin + 3;
    b->next += !b->answered;
    if (b->answered)
        answer(b->server, 1);
    return FLEET_OK;
}

/* A batch waits as long as the next stage gets on with those of others. */
TEST(what_waits_hears_that_the_next_stage_gets_on)
{
    const fl_stage_server_options o = server_options();
    fl_stage_client_options to = client_options();
    between b = {.next = 1};
    fl_stage_client *c;

    CHECK_OK(fl_stage_server_open(&b.server, &o));
    to.peer_ms = to.step_ms = 1000 * TEST_SLOWNESS;
    to.status = get_on;
    to.arg = &b;
    CHECK_OK(fl_stage_client_open(&c, &to));
    send_one(c, 0, true);
    CHECK_INT(next_event(b.server), FL_STAGE_BATCH);
    b.client = c;
    b.begin = fl_stage_client_progress(c);
    CHECK(receive_one(c, 0) == 1);
    CHECK(b.answered && b.next > 3);
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    fl_stage_server_close(b.server, NULL);
}

/* --- a next stage that comes back ----------------------------------------- */

enum { HEARTBEAT = 100, REQUEST = 10 * HEARTBEAT, AWAY = 2 * REQUEST };

typedef struct away {
    fl_stage_server_options o;
    fl_stage_server *server; /* NULL: it is away */
    int fd;
    int64_t until_ms; /* when it comes back */
} away;

static void come(away *a)
{
    a->o.listen_fd = dup(a->fd); /* the port stays open, as fleetrun's does */
    CHECK(a->o.listen_fd >= 0);
    CHECK_OK(fl_stage_log_open(&a->o.stage_log, test_path("log"), FIRST, 1, 0));
    CHECK_OK(fl_stage_server_open(&a->server, &a->o));
}

static void go(away *a)
{
    fl_stage_server_close(a->server, NULL); /* without a word */
    fl_stage_log_close(a->o.stage_log);
    a->server = NULL;
}

/* While the client waits. */
static fleet_status come_back(void *arg)
{
    away *a = arg;

    if (!a->server && fl_now_ms() >= a->until_ms)
        come(a);
    return FLEET_OK;
}

/* It is silent for longer than a lane of servers is waited for by what leaves
 * it, and the process that is started again waits for that worker. */
TEST(a_worker_that_leaves_waits_for_a_stage_that_comes_back)
{
    away a = {.o = server_options()};
    fl_stage_client_options to = client_options();
    char address[64];
    fl_stage_client *c;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    a.fd = listen_somewhere(address);
    a.o.address = to.address = address;
    a.o.nonce = 77;
    to.peer_ms = 5 * HEARTBEAT;
    to.request_ms = REQUEST * TEST_SLOWNESS;
    to.restart_ms = 20000 * TEST_SLOWNESS;
    to.connect_ms = 20000 * TEST_SLOWNESS;
    to.status = come_back;
    to.arg = &a;
    come(&a);
    CHECK_OK(fl_stage_client_open(&c, &to));
    go(&a);
    a.until_ms = fl_now_ms() + AWAY * TEST_SLOWNESS;
    CHECK_OK(fl_stage_client_leave(c));
    CHECK(a.server != NULL);
    CHECK_INT(next_event(a.server), FL_STAGE_LEFT);
    fl_stage_client_close(c);
    go(&a);
    close(a.fd);
}
