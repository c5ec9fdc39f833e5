/* stage_link_test.c - a trainer and the process of the next stage over real
 * sockets: what goes and comes back, with gaps and ragged; a request that comes
 * twice counts once, also of processes that go on for others; what differs, who
 * is silent and who gives up are named. */
#define SUITE stage_link
#include "net_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/socket.h"
#include "ps/stage/stage_client.h"
#include "ps/stage/stage_server.h"
#include "ps/stage/stage_wire.h"

enum { ROWS = 3, COLS = 2, LD = 5, RUN = 7, INCARNATION = 2 };

static const char boundary[] = "h float32[-1,2]\nids int64[-1] ragged\n";

/* The other process: a thread, which answers with twice the values. */
typedef struct other {
    fl_stage_server *server;
    fl_stage_server_options o;
    pthread_t thread;
    int batches, left;
    _Atomic int ended;
    int64_t ids; /* that have come */
    fleet_status status;
    char error[300];
} other;

static const fleet_var var_h = {
    .name = "h",
    .dtype = FLEET_FLOAT32,
    .shape = {.n_dim = 2, .dim = {-1, COLS}},
};
static const fleet_var var_ids = {
    .name = "ids",
    .dtype = FLEET_INT64,
    .shape = {.n_dim = 1, .dim = {-1}},
    .ragged = true,
};

static fleet_status fine(void *arg)
{
    (void)arg;
    return FLEET_OK;
}

static fleet_status answer_batch(other *x, const fl_packet *p)
{
    fl_stage_buffer room[2] = {{0}};
    fl_stage_value h, ids, back;
    float loss = 0;
    fl_msg_writer w;
    fl_msg msg;

    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_OK(fl_stage_read(&msg, 1, &var_h, &room[0], &h));
    CHECK_OK(fl_stage_read(&msg, 2, &var_ids, &room[1], &ids));
    CHECK_FAILS(fl_stage_read(&msg, 3, &var_h, &room[0], &back), FLEET_EFORMAT,
                "the message lacks value 3, \"h\"");
    CHECK_INT(h.rows, ROWS);
    for (int i = 0; i < ROWS * COLS; i++) {
        loss += ((float *)h.data)[i];
        ((float *)h.data)[i] *= 2;
    }
    for (int64_t i = 0; i < ids.offsets[ids.rows]; i++)
        x->ids += ((int64_t *)ids.data)[i];
    back = (fl_stage_value){
        .var = &var_h, .data = &loss, .rows = 1, .cols = 1, .ld = 1};
    fl_stage_server_begin(x->server, 0, &w);
    CHECK_OK(fl_stage_write(&w, 0, &back));
    CHECK_OK(fl_stage_write(&w, 1, &h));
    fl_stage_buffer_done(&room[0]);
    fl_stage_buffer_done(&room[1]);
    x->batches++;
    return fl_stage_server_answer(x->server, 0, &w, NULL);
}

/* Until the trainer has left. */
static void *serve(void *arg)
{
    other *x = arg;

    while (!x->left && x->status == FLEET_OK) {
        fl_stage_event event;
        fl_packet *p;

        x->status = fl_stage_server_next(x->server, 0, false, &event, &p);
        if (x->status != FLEET_OK) {
            snprintf(x->error, sizeof x->error, "%s", fleet_last_error());
            break;
        }
        if (event == FL_STAGE_BATCH)
            x->status = answer_batch(x, p);
        fl_packet_drop(p);
        x->ended += event == FL_STAGE_PASS_ENDED;
        x->left += event == FL_STAGE_LEFT;
        if (event == FL_STAGE_PASS_ENDED)
            fl_stage_server_pass_over(x->server, 0);
    }
    return NULL;
}

static void open_other(other *x)
{
    *x = (other){.o = {.address = "inproc://stage",
                       .listen_fd = -1,
                       .name = "heter worker 0",
                       .job = "night",
                       .run = RUN,
                       .n_trainer = 1,
                       .boundary = boundary,
                       .peer_ms = 5000,
                       .step_ms = 5000,
                       .status = fine}};
    CHECK_OK(fl_stage_server_open(&x->server, &x->o));
}

static void start_other(other *x)
{
    CHECK(pthread_create(&x->thread, NULL, serve, x) == 0);
}

static void end_other(other *x)
{
    CHECK(pthread_join(x->thread, NULL) == 0);
    fl_stage_server_close(x->server, NULL);
}

static fl_stage_client_options trainer_options(void)
{
    return (fl_stage_client_options){.address = "inproc://stage",
                                     .name = "heter worker 0",
                                     .job = "night",
                                     .run = RUN,
                                     .incarnation = INCARNATION,
                                     .boundary = boundary,
                                     .connect_ms = 5000,
                                     .request_ms = 5000,
                                     .peer_ms = 5000,
                                     .step_ms = 5000,
                                     .status = fine};
}

static fleet_status exchange_once(fl_stage_client *c)
{
    fl_stage_link *link = fl_stage_client_link(c);
    float h[ROWS * LD], g[ROWS * LD] = {0}, loss = 0, sum = 0;
    int64_t ids[] = {4, 5, 6}, offsets[] = {0, 1, 1, 3};
    fl_stage_value value[] = {
        {.var = &var_h, .data = h, .rows = ROWS, .cols = COLS, .ld = LD},
        {.var = &var_ids,
         .data = ids,
         .offsets = offsets,
         .rows = ROWS,
         .cols = 1,
         .ld = 1}};
    fl_stage_value back = value[0];
    fl_stage_batch b = {.batch = ROWS,
                        .capacity = ROWS,
                        .last = true,
                        .trains = true,
                        .value = value,
                        .n_value = 2,
                        .gradient = &back,
                        .n_gradient = 1,
                        .loss = &loss};

    back.data = g;
    for (int i = 0; i < ROWS * LD; i++)
        h[i] = (float)i;
    FL_TRY(link->send(link, &b));
    FL_TRY(link->receive(link, &b));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < LD; i++) {
            sum += i < COLS ? h[r * LD + i] : 0;
            CHECK(g[r * LD + i] == (i < COLS ? 2 * h[r * LD + i] : 0));
        }
    CHECK(loss == sum);
    return FLEET_OK;
}

TEST(a_batch_goes_and_its_gradients_come_back)
{
    fl_stage_client_options o = trainer_options();
    fl_stage_client *c;
    other x;

    open_other(&x);
    start_other(&x);
    CHECK_OK(fl_stage_client_open(&c, &o));
    CHECK_OK(exchange_once(c));
    CHECK_OK(exchange_once(c));
    CHECK_OK(fl_stage_client_end_pass(c));
    while (x.ended == 0) /* in a job the servers make it wait */
        usleep(500);
    CHECK_OK(exchange_once(c));
    CHECK_OK(fl_stage_client_leave(c));
    fl_stage_client_close(c);
    end_other(&x);
    CHECK_INT(x.batches, 3);
    CHECK_INT(x.ended, 1);
    CHECK_INT(x.ids, 3 * (4 + 5 + 6));
}

static uint64_t same_number(void *arg)
{
    (void)arg;
    return 7;
}

/* It would get the gradients of the batch before. */
TEST(a_batch_behind_one_that_was_not_pushed_is_refused)
{
    fl_stage_client_options o = trainer_options();
    fl_stage_client *c;
    other x;

    o.number = same_number;
    open_other(&x);
    start_other(&x);
    CHECK_OK(fl_stage_client_open(&c, &o));
    CHECK_OK(exchange_once(c));
    CHECK_FAILS(exchange_once(c), FLEET_ESTATE,
                "heter worker 0 has trained a batch that this worker has "
                "failed to train");
    fl_stage_client_close(c);
    end_other(&x);
    CHECK_INT(x.batches, 1);
}

/* --- requests that come again --------------------------------------------- */

static uint32_t incarnation_now = INCARNATION;

static void send_message(fl_socket *s, fl_packet_pool *pool, fl_msg_kind kind,
                         uint64_t step, uint32_t peer, uint16_t flags)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = (uint8_t)kind,
                              .job = fl_msg_job("night", RUN),
                              .incarnation = incarnation_now,
                              .step = step,
                              .request = step + 1,
                              .flags = flags,
                              .peer = peer};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, pool, &head);
    if (kind == FL_MSG_HELLO)
        fl_msg_text(&w, FL_SECTION_HELLO, boundary);
    CHECK_OK(fl_msg_end(&w, true, &p));
    CHECK_OK(fl_socket_send(s, NULL, p));
    fl_packet_drop(p);
}

/* The head of the next answer. */
static fl_msg_head hear(fl_socket *s)
{
    fl_packet *p = NULL;
    fl_msg msg;

    while (!p) {
        CHECK_OK(fl_socket_wait(&s, 1, NULL, 10000));
        CHECK_OK(fl_socket_receive(s, NULL, &p));
    }
    CHECK_OK(fl_msg_decode(p, &msg));
    fl_packet_drop(p);
    return msg.head;
}

TEST(a_request_that_comes_twice_counts_once_and_is_answered_twice)
{
    fl_packet_pool *pool;
    uint32_t peer;
    fl_socket *s;
    other x;

    open_other(&x);
    CHECK_OK(fl_packet_pool_create(&pool, 1 << 20));
    CHECK_OK(fl_socket_connect(&s, "inproc://stage"));
    send_message(s, pool, FL_MSG_HELLO, 0, 0, 0);
    peer = hear(s).peer;
    for (int i = 0; i < 2; i++) {
        send_message(s, pool, FL_MSG_FORWARD, 1, peer, FL_MSG_PASS_END);
        CHECK_INT(hear(s).status, FL_ANSWER_OK);
    }
    send_message(s, pool, FL_MSG_FORWARD, 3, peer + 1, FL_MSG_PASS_END);
    CHECK_INT(hear(s).status, FL_ANSWER_FENCED); /* of another process */
    send_message(s, pool, FL_MSG_FORWARD, 3, peer, FL_MSG_LEAVE);
    CHECK_INT(hear(s).status, FL_ANSWER_OK);
    send_message(s, pool, FL_MSG_FORWARD, 2, peer, 0);
    CHECK_INT(hear(s).status, FL_ANSWER_REFUSED); /* numbers grow */
    start_other(&x);
    end_other(&x);
    CHECK_INT(x.ended, 0); /* it has left, which is all that counts then */
    fl_socket_close(s, 0);
    fl_packet_pool_destroy(pool);
}

/* --- a process that goes on ----------------------------------------------- */

typedef struct logged {
    other x;
    fl_stage_log *log;
    fl_packet_pool *pool;
    fl_socket *socket;
    uint32_t peer;
} logged;

enum { NONCE = 77, ONE_STEP = 4, FIRST_BATCH = 12 };

/* A server with the log of the one before it, if there was one. */
static void open_logged(logged *k)
{
    CHECK_OK(fl_stage_log_open(&k->log, test_path("log"), 0, 1, false));
    k->x = (other){.o = {.address = "inproc://stage",
                         .listen_fd = -1,
                         .name = "heter worker 0",
                         .job = "night",
                         .run = RUN,
                         .n_trainer = 1,
                         .boundary = boundary,
                         .peer_ms = 5000,
                         .step_ms = 5000,
                         .stage_log = k->log,
                         .nonce = NONCE,
                         .status = fine}};
    CHECK_OK(fl_stage_server_open(&k->x.server, &k->x.o));
    CHECK_OK(fl_packet_pool_create(&k->pool, 1 << 20));
    CHECK_OK(fl_socket_connect(&k->socket, "inproc://stage"));
}

static void close_logged(logged *k)
{
    fl_stage_server_close(k->x.server, NULL);
    fl_stage_log_close(k->log);
    fl_socket_close(k->socket, 0);
    fl_packet_pool_destroy(k->pool);
}

/* A message of a few bytes stands for a batch, its gradients and its answer. */
static fl_packet *packet_of(logged *k, const char *text)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION, .kind = FL_MSG_STEP};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, k->pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, text);
    CHECK_OK(fl_msg_end(&w, true, &p));
    return p;
}

static void do_batch(logged *k)
{
    fl_packet *gradient = packet_of(k, "gradients"), *p;
    const fl_trail_packets lane[] = {{&gradient, 1}, {NULL, 0}};
    const fl_stage_parts parts = {.lane = lane, .n_lane = 2};
    fl_stage_event event;
    fl_msg_writer w;

    CHECK_OK(fl_stage_server_next(k->x.server, 0, false, &event, &p));
    CHECK_INT(event, FL_STAGE_BATCH);
    fl_packet_drop(p);
    fl_stage_server_begin(k->x.server, 0, &w);
    fl_msg_text(&w, FL_SECTION_TEXT, "answer");
    CHECK_OK(fl_stage_server_answer(k->x.server, 0, &w, &parts));
    fl_packet_drop(gradient);
}

/* An answer, by the text in it, to a request of that incarnation. */
static void check_answer(logged *k, const char *text, uint32_t incarnation)
{
    fl_packet *p = NULL;
    fl_msg msg;
    char *said;

    for (int i = 0; !p && i < 3 * TEST_SLOWNESS; i++) {
        CHECK_OK(fl_socket_wait(&k->socket, 1, NULL, 2000));
        CHECK_OK(fl_socket_receive(k->socket, NULL, &p));
    }
    CHECK(p != NULL);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.status, FL_ANSWER_OK);
    CHECK_INT(msg.head.incarnation, incarnation);
    said = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    CHECK_TEXT(said ? said : "", text);
    fl_free(said);
    fl_packet_drop(p);
}

static fleet_status look_at(void *arg, uint64_t step, int lane,
                            const fl_packet *p)
{
    int *seen = arg;
    fl_msg msg;
    char *said;

    CHECK_OK(fl_msg_decode(p, &msg));
    said = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    CHECK_INT(step, ONE_STEP);
    CHECK_TEXT(said, lane < 0 ? "answer" : "gradients");
    CHECK(lane <= 0);
    fl_free(said);
    ++*seen;
    return FLEET_OK;
}

/* The batch is done, and its answer may be lost: the next process has both. */
static void die_behind_a_batch(logged *k)
{
    open_logged(k);
    send_message(k->socket, k->pool, FL_MSG_HELLO, 0, 0, 0);
    CHECK_INT(hear(k->socket).peer, NONCE);
    fl_stage_server_stands(k->x.server, ONE_STEP, 3);
    send_message(k->socket, k->pool, FL_MSG_FORWARD, FIRST_BATCH, NONCE,
                 FL_MSG_END_OF_STEP);
    do_batch(k);
    check_answer(k, "answer", INCARNATION);
    close_logged(k);
    open_logged(k);
}

static fl_stage_event next_event(logged *k)
{
    fl_stage_event event;
    fl_packet *p;

    CHECK_OK(fl_stage_server_next(k->x.server, 0, false, &event, &p));
    fl_packet_drop(p);
    return event;
}

TEST(a_process_goes_on_behind_the_batch_that_was_done)
{
    uint64_t step, updates;
    int seen = 0;
    logged k;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    die_behind_a_batch(&k);
    CHECK(fl_stage_server_goes_on(k.x.server, &step, &updates));
    CHECK(step == ONE_STEP && updates == 3);
    CHECK_OK(fl_stage_log_each_packet(k.log, 0, look_at, &seen));
    CHECK_INT(seen, 2);
    CHECK_INT(next_event(&k), FL_STAGE_TRAINED);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH, NONCE,
                 FL_MSG_END_OF_STEP);
    check_answer(&k, "answer", INCARNATION);
    fl_stage_server_stands(k.x.server, ONE_STEP + 1, 4);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 1, NONCE,
                 FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 1, NONCE,
                 FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION);
    CHECK_INT(next_event(&k), FL_STAGE_PASS_ENDED);
    close_logged(&k);

    open_logged(&k); /* its batch is of an earlier step */
    CHECK(fl_stage_server_goes_on(k.x.server, &step, &updates));
    CHECK_INT(step, ONE_STEP + 1);
    CHECK_INT(next_event(&k), FL_STAGE_PASS_ENDED);
    fl_stage_server_pass_over(k.x.server, ONE_STEP + 2);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 1, NONCE,
                 FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 2, NONCE,
                 FL_MSG_LEAVE);
    check_answer(&k, "", INCARNATION);
    CHECK_INT(next_event(&k), FL_STAGE_LEFT);
    close_logged(&k);
    CHECK_OK(fl_stage_log_open(&k.log, test_path("log"), 0, 1, false));
    CHECK(fl_stage_log_last(k.log, 0, RUN)->left);
    CHECK_INT(fl_stage_log_last(k.log, 0, RUN)->n_ended, 1);
    CHECK(!fl_stage_log_last(k.log, 0, RUN + 1));
    fl_stage_log_close(k.log);
}

/* Its update is made then, whether the heter worker knows of that or not. */
TEST(an_end_that_comes_before_the_round_is_known_to_be_over_is_behind_it)
{
    uint64_t step, updates;
    logged k;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    die_behind_a_batch(&k);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 1, NONCE,
                 FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION);
    close_logged(&k);

    open_logged(&k);
    CHECK(fl_stage_server_goes_on(k.x.server, &step, &updates));
    CHECK(step == ONE_STEP + 1 && updates == 4);
    CHECK_INT(next_event(&k), FL_STAGE_PASS_ENDED);
    close_logged(&k);
}

/* The next process may not know that the pass is over, and lanes do. */
TEST(a_pass_that_was_under_way_is_ended_before_all_have_left)
{
    logged k;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    die_behind_a_batch(&k);
    CHECK_INT(next_event(&k), FL_STAGE_TRAINED);
    fl_stage_server_stands(k.x.server, ONE_STEP + 1, 4);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 1, NONCE,
                 FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH + 2, NONCE,
                 FL_MSG_LEAVE);
    check_answer(&k, "", INCARNATION);
    close_logged(&k);

    open_logged(&k);
    CHECK_INT(next_event(&k), FL_STAGE_PASS_ENDED);
    fl_stage_server_pass_over(k.x.server, ONE_STEP + 2);
    CHECK_INT(next_event(&k), FL_STAGE_LEFT);
    close_logged(&k);
}

static void send_as(logged *k, uint32_t incarnation, fl_msg_kind kind,
                    uint64_t step, uint16_t flags)
{
    incarnation_now = incarnation;
    send_message(k->socket, k->pool, kind, step, NONCE, flags);
    incarnation_now = INCARNATION;
}

/* It computes the batch again whose push the one before had not sent, and ends
 * passes again. */
TEST(another_process_of_a_trainer_gets_the_answer_to_its_batch)
{
    logged k;

    CHECK(mkdir(test_path("log"), 0700) == 0);
    die_behind_a_batch(&k);
    CHECK_INT(next_event(&k), FL_STAGE_TRAINED);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH, NONCE,
                 FL_MSG_END_OF_STEP);
    check_answer(&k, "answer", INCARNATION);
    send_as(&k, INCARNATION + 1, FL_MSG_HELLO, 0, 0);
    check_answer(&k, "", INCARNATION + 1);
    send_as(&k, INCARNATION + 1, FL_MSG_FORWARD, 5, FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION + 1);
    send_as(&k, INCARNATION + 1, FL_MSG_FORWARD, FIRST_BATCH,
            FL_MSG_END_OF_STEP);
    check_answer(&k, "answer", INCARNATION + 1);
    send_message(k.socket, k.pool, FL_MSG_FORWARD, FIRST_BATCH, NONCE,
                 FL_MSG_END_OF_STEP);
    CHECK_INT(hear(k.socket).status, FL_ANSWER_FENCED);
    send_as(&k, INCARNATION + 1, FL_MSG_FORWARD, FIRST_BATCH + 1,
            FL_MSG_PASS_END);
    check_answer(&k, "", INCARNATION + 1);
    CHECK_INT(next_event(&k), FL_STAGE_PASS_ENDED);
    close_logged(&k);
}

/* --- what goes wrong ------------------------------------------------------ */

static void check_refused(const fl_stage_client_options *o, fleet_status code,
                          const char *words)
{
    fl_stage_client *c;

    CHECK_FAILS(fl_stage_client_open(&c, o), code, words);
    CHECK(c == NULL);
}

TEST(names_what_differs)
{
    fl_stage_client_options o = trainer_options();
    other x;

    open_other(&x);
    o.boundary = "h float32[-1,3]\nids int64[-1] ragged\n";
    check_refused(&o, FLEET_EINVAL,
                  "heter worker 0 at inproc://stage says: the stages are cut "
                  "otherwise: \"h float32[-1,2]\" there, \"h float32[-1,3]\"");
    o = trainer_options();
    o.run = RUN + 1;
    check_refused(&o, FLEET_EPEER, "this is a worker of another run");
    fl_stage_server_close(x.server, NULL);
}

TEST(serves_its_own_trainers_alone)
{
    fl_stage_client_options o = trainer_options();
    fl_stage_client *c;
    fl_stage_event event;
    fl_packet *p;
    other x;

    open_other(&x);
    fl_stage_server_close(x.server, NULL);
    x.o.first_trainer = x.o.n_trainer = 2;
    CHECK_OK(fl_stage_server_open(&x.server, &x.o));
    o.connect_ms = 100;
    for (o.trainer = 1; o.trainer < 5; o.trainer += 3)
        check_refused(&o, FLEET_ETIMEDOUT, "has not answered a hello");
    o = trainer_options();
    o.trainer = 3;
    CHECK_OK(fl_stage_client_open(&c, &o));
    CHECK_OK(fl_stage_client_end_pass(c));
    CHECK_OK(fl_stage_server_next(x.server, 3, false, &event, &p));
    CHECK(event == FL_STAGE_PASS_ENDED && !p);
    fl_stage_server_close(x.server, "out of paper");
    CHECK_FAILS(fl_stage_client_end_pass(c), FLEET_EPEER, "out of paper");
    fl_stage_client_close(c);
}

TEST(names_who_does_not_answer)
{
    fl_stage_client_options o = trainer_options();

    o.connect_ms = 100;
    check_refused(&o, FLEET_ETIMEDOUT,
                  "heter worker 0 at inproc://stage has not answered a hello");
}

TEST(each_side_hears_why_the_other_gives_up)
{
    fl_stage_client_options o = trainer_options();
    fl_stage_client *c;
    other x;

    open_other(&x);
    CHECK_OK(fl_stage_client_open(&c, &o));
    fl_stage_server_close(x.server, "out of paper");
    CHECK_FAILS(exchange_once(c), FLEET_EPEER, "out of paper");
    fl_stage_client_close(c);

    open_other(&x);
    start_other(&x);
    CHECK_OK(fl_stage_client_open(&c, &o));
    (void)fl_fail(FLEET_EIO, "out of ink");
    fl_stage_client_close(c);
    end_other(&x);
    CHECK_INT(x.status, FLEET_EPEER);
    CHECK_CONTAINS(x.error, "worker 0 has given up: out of ink");
}

static fleet_status job_has_failed(void *arg)
{
    (void)arg;
    return fl_fail(FLEET_EPEER, "a server is gone");
}

TEST(a_wait_ends_when_the_job_has_failed)
{
    fl_stage_client_options o = trainer_options();
    fl_stage_event event;
    fl_packet *p;
    other x;

    o.status = job_has_failed;
    check_refused(&o, FLEET_EPEER, "a server is gone");
    open_other(&x);
    fl_stage_server_close(x.server, NULL);
    x.o.status = job_has_failed;
    CHECK_OK(fl_stage_server_open(&x.server, &x.o));
    CHECK_FAILS(fl_stage_server_next(x.server, 0, false, &event, &p),
                FLEET_EPEER, "a server is gone");
    x.o.step_ms = 100;
    fl_stage_server_close(x.server, NULL);
    x.o.status = fine;
    CHECK_OK(fl_stage_server_open(&x.server, &x.o));
    CHECK_FAILS(fl_stage_server_next(x.server, 0, true, &event, &p),
                FLEET_ETIMEDOUT, "worker 0 has kept heter worker 0");
    fl_stage_server_close(x.server, NULL);
}
