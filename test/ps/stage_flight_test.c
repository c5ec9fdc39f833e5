/* stage_flight_test.c - several batches of a trainer in flight to the process
 * of the next stage: none is waited for before all are sent, each counts once
 * and in its order, no more of them come than there is room for, and with a log
 * they are answered together, also by the process that comes after. */
#define SUITE stage_flight
#include "net_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "net/socket.h"
#include "ps/stage/stage_client.h"
#include "ps/stage/stage_server.h"
#include "ps/stage/stage_wire.h"

enum { FLIGHT = 3, ROWS = 4, CAPACITY = 9, RUN = 7, NONCE = 77, STEP = 5 };

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

static fl_stage_server *open_server(fl_stage_log *log)
{
    const fl_stage_server_options o = {.address = "inproc://flight",
                                       .listen_fd = -1,
                                       .name = "heter worker 0",
                                       .job = "night",
                                       .run = RUN,
                                       .n_trainer = 1,
                                       .boundary = boundary,
                                       .n_in_flight = FLIGHT,
                                       .peer_ms = 5000,
                                       .step_ms = 5000,
                                       .stage_log = log,
                                       .nonce = NONCE,
                                       .status = fine};
    fl_stage_server *s;

    CHECK_OK(fl_stage_server_open(&s, &o));
    return s;
}

/* The number of the batch that comes next: its first value. */
static int take_batch(fl_stage_server *s)
{
    fl_stage_buffer room = {0};
    fl_stage_event event;
    fl_stage_value h;
    fl_packet *p;
    int64_t capacity;
    fl_msg msg;
    int number;

    CHECK_OK(fl_stage_server_next(s, 0, false, &event, &p));
    CHECK_INT(event, FL_STAGE_BATCH);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_OK(fl_stage_capacity(&msg, &capacity));
    CHECK_INT(capacity, CAPACITY);
    CHECK_OK(fl_stage_read(&msg, 1, &var_h, &room, &h));
    number = (int)((float *)h.data)[0];
    CHECK_INT((msg.head.flags & FL_MSG_END_OF_STEP) != 0, number + 1 == FLIGHT);
    CHECK_INT(msg.head.piece, number);
    fl_stage_buffer_done(&room);
    fl_packet_drop(p);
    return number;
}

/* Its answer: the number, as loss. */
static void answer(fl_stage_server *s, int number)
{
    static const fl_trail_packets lane[] = {{NULL, 0}};
    const fl_stage_parts parts = {.lane = lane, .n_lane = 1};
    float loss = (float)number;
    const fl_stage_value v = {
        .var = &var_h, .data = &loss, .rows = 1, .cols = 1, .ld = 1};
    fl_msg_writer w;

    fl_stage_server_begin(s, 0, &w);
    CHECK_OK(fl_stage_write(&w, 0, &v));
    CHECK_OK(fl_stage_server_answer(s, 0, &w, &parts));
}

/* --- by a client ---------------------------------------------------------- */

static fl_stage_client *open_client(void)
{
    const fl_stage_client_options o = {.address = "inproc://flight",
                                       .name = "heter worker 0",
                                       .job = "night",
                                       .run = RUN,
                                       .incarnation = 1,
                                       .boundary = boundary,
                                       .n_in_flight = FLIGHT,
                                       .connect_ms = 5000,
                                       .request_ms = 5000,
                                       .peer_ms = 5000,
                                       .step_ms = 5000,
                                       .status = fine};
    fl_stage_client *c;

    CHECK_OK(fl_stage_client_open(&c, &o));
    return c;
}

static fl_stage_batch batch_of(int number, float *loss)
{
    return (fl_stage_batch){.batch = ROWS,
                            .capacity = CAPACITY,
                            .number = number,
                            .last = number + 1 == FLIGHT,
                            .trains = true,
                            .loss = loss};
}

static fleet_status send_one(fl_stage_client *c, int number)
{
    float h[ROWS] = {(float)number};
    const fl_stage_value value = {
        .var = &var_h, .data = h, .rows = ROWS, .cols = 1, .ld = 1};
    fl_stage_link *link = fl_stage_client_link(c);
    fl_stage_batch b = batch_of(number, NULL);

    b.value = &value;
    b.n_value = 1;
    return link->send(link, &b);
}

static float receive_one(fl_stage_client *c, int number)
{
    fl_stage_link *link = fl_stage_client_link(c);
    float loss = -1;
    const fl_stage_batch b = batch_of(number, &loss);

    CHECK_OK(link->receive(link, &b));
    return loss;
}

/* All on one thread: a send that waited would wait for good. */
TEST(all_are_sent_before_one_is_answered)
{
    fl_stage_server *s = open_server(NULL);
    fl_stage_client *c = open_client();

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < FLIGHT; i++)
            CHECK_OK(send_one(c, i));
        for (int i = 0; i < FLIGHT; i++) {
            CHECK_INT(take_batch(s), i);
            answer(s, i);
            CHECK(receive_one(c, i) == (float)i);
        }
    }
    CHECK_OK(fl_stage_client_end_pass(c));
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    fl_stage_server_close(s, NULL);
}

TEST(one_that_fails_in_flight_is_the_last)
{
    fl_stage_server *s = open_server(NULL);
    fl_stage_client *c = open_client();

    CHECK_OK(send_one(c, 0));
    CHECK_FAILS(send_one(c, 2), FLEET_ESTATE, "batch 2 of 3 in flight");
    fl_stage_client_close(c); /* it tells the other side */
    fl_stage_server_close(s, NULL);
}

/* --- by hand -------------------------------------------------------------- */

typedef struct hand {
    fl_packet_pool *pool;
    fl_socket *socket;
} hand;

/* Of the trainer's process; the second one counts its requests otherwise. */
static uint32_t incarnation_now = 1;

static uint64_t request_of(uint64_t step, int piece)
{
    return 1000 * incarnation_now + 10 * step + (uint64_t)piece + 1;
}

static void send_raw(const hand *h, fl_msg_kind kind, uint64_t step, int piece,
                     uint16_t flags)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = (uint8_t)kind,
                              .job = fl_msg_job("night", RUN),
                              .incarnation = incarnation_now,
                              .step = step,
                              .request = request_of(step, piece),
                              .flags = flags,
                              .piece = (uint16_t)piece,
                              .peer = kind == FL_MSG_HELLO ? 0 : NONCE};
    float value[ROWS] = {(float)piece};
    const fl_stage_value v = {
        .var = &var_h, .data = value, .rows = ROWS, .cols = 1, .ld = 1};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, h->pool, &head);
    if (kind == FL_MSG_HELLO)
        fl_msg_text(&w, FL_SECTION_HELLO, boundary);
    else if (kind == FL_MSG_FORWARD && !(flags & FL_MSG_PASS_END))
        CHECK_OK(fl_stage_write(&w, 1, &v));
    fl_stage_set_capacity(&w, CAPACITY);
    CHECK_OK(fl_msg_end(&w, true, &p));
    CHECK_OK(fl_socket_send(h->socket, NULL, p));
    fl_packet_drop(p);
}

static void send_piece(const hand *h, uint64_t step, int piece)
{
    send_raw(h, FL_MSG_FORWARD, step, piece,
             piece + 1 == FLIGHT ? FL_MSG_END_OF_STEP : 0);
}

/* The next answer: to which request, and what it says. */
static void check_answer(const hand *h, uint64_t step, int piece, int status)
{
    fl_packet *p = NULL;
    fl_msg msg;

    while (!p) {
        CHECK_OK(fl_socket_wait(&h->socket, 1, NULL, 10000));
        CHECK_OK(fl_socket_receive(h->socket, NULL, &p));
    }
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.request, request_of(step, piece));
    CHECK_INT(msg.head.status, status);
    fl_packet_drop(p);
}

static hand shake(void)
{
    hand h;

    CHECK_OK(fl_packet_pool_create(&h.pool, 1 << 20));
    CHECK_OK(fl_socket_connect(&h.socket, "inproc://flight"));
    send_raw(&h, FL_MSG_HELLO, 0, 0, 0);
    check_answer(&h, 0, 0, FL_ANSWER_OK);
    return h;
}

static void let_go(const hand *h)
{
    fl_socket_close(h->socket, 0);
    fl_packet_pool_destroy(h->pool);
}

TEST(each_counts_once_in_its_order_and_no_more_come)
{
    fl_stage_server *s = open_server(NULL);
    hand h = shake();

    send_piece(&h, STEP, 1);
    send_piece(&h, STEP, 0);
    send_piece(&h, STEP, 0);
    check_answer(&h, STEP, 0, FL_ANSWER_WAITING);
    send_piece(&h, STEP, FLIGHT);
    check_answer(&h, STEP, FLIGHT, FL_ANSWER_REFUSED);
    send_piece(&h, STEP + 1, 0);
    check_answer(&h, STEP + 1, 0, FL_ANSWER_REFUSED);
    for (int i = 0; i < FLIGHT; i++) {
        if (i == 2)
            send_piece(&h, STEP, 2);
        CHECK_INT(take_batch(s), i);
        answer(s, i);
        check_answer(&h, STEP, i, FL_ANSWER_OK);
    }
    send_piece(&h, STEP, 1);
    check_answer(&h, STEP, 1, FL_ANSWER_OK); /* again */
    send_piece(&h, STEP - 1, 0);
    check_answer(&h, STEP - 1, 0, FL_ANSWER_REFUSED);
    send_piece(&h, STEP + 1, 0);
    CHECK_INT(take_batch(s), 0);
    let_go(&h);
    fl_stage_server_close(s, NULL);
}

static fl_stage_log *open_log(void)
{
    fl_stage_log *log;

    CHECK_OK(fl_stage_log_open(&log, test_path("log"), 0, 1, false));
    return log;
}

TEST(answers_that_waited_for_the_log_are_of_the_process_that_asked_last)
{
    fl_stage_log *log;
    fl_stage_server *s;
    hand before, after;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    log = open_log();
    s = open_server(log);
    before = shake();
    for (int i = 0; i < FLIGHT - 1; i++) {
        send_piece(&before, STEP, i);
        CHECK_INT(take_batch(s), i);
        answer(s, i);
    }
    let_go(&before);
    incarnation_now = 2;
    after = shake();
    for (int i = 0; i < FLIGHT - 1; i++) {
        send_piece(&after, STEP, i);
        check_answer(&after, STEP, i, FL_ANSWER_WAITING);
    }
    send_piece(&after, STEP, FLIGHT - 1);
    CHECK_INT(take_batch(s), FLIGHT - 1);
    answer(s, FLIGHT - 1);
    for (int i = 0; i < FLIGHT; i++)
        check_answer(&after, STEP, i, FL_ANSWER_OK);
    let_go(&after);
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(log);
}

TEST(with_a_log_they_are_answered_when_all_are_written_down)
{
    fl_stage_log *log;
    fl_stage_server *s;
    hand h;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    log = open_log();
    s = open_server(log);
    h = shake();
    for (int i = 0; i < FLIGHT; i++)
        send_piece(&h, STEP, i);
    for (int i = 0; i < FLIGHT - 1; i++) {
        CHECK_INT(take_batch(s), i);
        answer(s, i);
    }
    CHECK(!fl_stage_log_last(log, 0, RUN));
    send_piece(&h, STEP, 0);
    check_answer(&h, STEP, 0, FL_ANSWER_WAITING); /* and no answer before */
    CHECK_INT(take_batch(s), FLIGHT - 1);
    answer(s, FLIGHT - 1);
    for (int i = 0; i < FLIGHT; i++)
        check_answer(&h, STEP, i, FL_ANSWER_OK);
    let_go(&h);
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(log);

    log = open_log();
    CHECK_INT(fl_stage_log_last(log, 0, RUN)->n_answer, FLIGHT);
    s = open_server(log);
    h = shake();
    for (int i = FLIGHT - 1; i >= 0; i--) {
        send_piece(&h, STEP, i);
        check_answer(&h, STEP, i, FL_ANSWER_OK);
    }
    let_go(&h);
    fl_stage_server_close(s, NULL);
    fl_stage_log_close(log);
}
