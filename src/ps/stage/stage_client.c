/* stage_client.c - batches in flight, or one other request, and the wait for
 * their answers. */
#include "ps/stage/stage_client.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/socket.h"
#include "ps/stage/stage_wire.h"

enum { IDLE_BYTES = 32 << 20 /* of packets that are kept */ };

struct fl_stage_client {
    fl_stage_link link; /* first */
    fl_stage_client_options o;
    int64_t heartbeat_ms;
    fl_packet_pool *pool;
    fl_socket *socket;
    fl_client *client;
    fl_request *request; /* by place */
    uint64_t n_request;  /* that were made */
    uint64_t sent;       /* number of the last batches */
    int n_sent;          /* of these */
    bool left;
};

static void send_packet(void *arg, int lane, fl_packet *p)
{
    fl_stage_client *c = arg;

    (void)lane;
    fl_socket_send(c->socket, NULL, p); /* a lost one is sent again */
}

/* --- a request ------------------------------------------------------------ */

static fleet_status receive_all(fl_stage_client *c)
{
    for (fl_packet *p;;) {
        FL_TRY(fl_socket_receive(c->socket, NULL, &p));
        if (!p)
            return FLEET_OK;
        fl_client_receive(c->client, 0, p, fl_now_ms());
        fl_packet_drop(p);
    }
}

/* The other process hears why, if it is this one's or the job's failure. */
static fleet_status give_up(fl_stage_client *c, fleet_status code)
{
    fl_client_fail(c->client, code, fleet_last_error(), true);
    return fl_client_status(c->client);
}

static fleet_status wait_and_look(fl_stage_client *c, const fl_request *r)
{
    while (r->state != FL_REQUEST_DONE) {
        fleet_status status = receive_all(c);

        if (status == FLEET_OK && r->state == FL_REQUEST_DONE)
            break;
        if (status == FLEET_OK)
            status = fl_socket_wait(&c->socket, 1, NULL, (int)c->heartbeat_ms);
        if (status == FLEET_OK)
            status = c->o.status(c->o.arg);
        if (status != FLEET_OK)
            return give_up(c, status);
        fl_client_tick(c->client, fl_now_ms());
    }
    return fl_client_result(c->client, r, "the next stage");
}

/* The other process is missed while this one waits, and not else. */
static fleet_status wait_for_answer(fl_stage_client *c, const fl_request *r)
{
    fleet_status status;

    fl_client_watch(c->client, true, fl_now_ms());
    status = wait_and_look(c, r);
    fl_client_watch(c->client, false, fl_now_ms());
    return status;
}

/* The message is written; it goes. */
static fleet_status send_request(fl_stage_client *c, fl_request *r,
                                 fl_msg_writer *w)
{
    FL_TRY(fl_client_add(c->client, r, w));
    c->n_request++;
    fl_client_send(c->client, r, fl_now_ms());
    return FLEET_OK;
}

/* Where a batch was sent and could not be pushed, for a full disk, say, or as
 * one that is in flight with it is wrong, the next request has its number, and
 * would get the answer to that batch. */
static fleet_status next_number(const fl_stage_client *c, uint64_t *number)
{
    *number = c->o.number ? c->o.number(c->o.arg) : c->n_request + 1;
    FL_TRY(fl_client_status(c->client));
    return *number > c->sent
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE,
                         "%s has trained a batch that this worker has failed "
                         "to train: the two stages are not at the same batch "
                         "any more",
                         c->o.name);
}

static fleet_status say(fl_stage_client *c, uint16_t flags)
{
    fl_request *r = &c->request[0];
    fl_msg_writer w;
    uint64_t number;

    FL_TRY(next_number(c, &number));
    fl_request_clear(r);
    fl_client_begin(c->client, 0, r, &w, FL_MSG_FORWARD, number, flags);
    FL_TRY(send_request(c, r, &w));
    return wait_for_answer(c, r);
}

uint64_t fl_stage_client_progress(const fl_stage_client *c)
{
    return fl_client_progress(c->client);
}

fleet_status fl_stage_client_end_pass(fl_stage_client *c)
{
    return say(c, FL_MSG_PASS_END);
}

fleet_status fl_stage_client_leave(fl_stage_client *c)
{
    FL_TRY(say(c, FL_MSG_LEAVE));
    c->left = true;
    return FLEET_OK;
}

/* --- a batch -------------------------------------------------------------- */

static fleet_status write_batch(fl_msg_writer *w, const fl_stage_batch *b)
{
    fleet_status status = FLEET_OK;
    fl_packet *p;

    for (int i = 0; i < b->n_value && status == FLEET_OK; i++)
        status = fl_stage_write(w, i + 1, &b->value[i]);
    fl_stage_set_capacity(w, b->capacity);
    if (status == FLEET_OK)
        return status;
    if (w->status == FLEET_OK)
        w->status = status;
    (void)fl_msg_end(w, false, &p); /* which drops what there is */
    return status;
}

static fleet_status read_answer(fl_stage_client *c, const fl_request *r,
                                const fl_stage_batch *b)
{
    const fl_msg *msg = fl_client_answer(c->client, r);
    const fleet_var loss = {.name = "the loss", .dtype = FLEET_FLOAT32};
    const fl_stage_value at = {
        .var = &loss, .data = b->loss, .rows = 1, .cols = 1, .ld = 1};

    if (!msg)
        return fl_last_code();
    FL_TRY(fl_stage_read_into(msg, 0, &at));
    for (int i = 0; i < b->n_gradient; i++)
        FL_TRY(fl_stage_read_into(msg, i + 1, &b->gradient[i]));
    return FLEET_OK;
}

/* The first one gives all that are in flight together their number. */
static fleet_status send_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    fl_stage_client *c = (fl_stage_client *)(void *)link;
    fl_request *r = &c->request[b->number];
    uint64_t number = c->sent;
    fl_msg_writer w;

    if (b->number == 0)
        FL_TRY(next_number(c, &number));
    else if (b->number != c->n_sent || b->number >= c->o.n_in_flight)
        return fl_fail(FLEET_ESTATE, "batch %d of %d in flight comes behind %d",
                       b->number, c->o.n_in_flight, c->n_sent);
    fl_request_clear(r);
    fl_client_begin(c->client, 0, r, &w, FL_MSG_FORWARD, number,
                    b->last ? FL_MSG_END_OF_STEP : 0);
    w.head.piece = (uint16_t)b->number;
    FL_TRY(write_batch(&w, b));
    FL_TRY(send_request(c, r, &w));
    c->sent = number;
    c->n_sent = b->number + 1;
    return FLEET_OK;
}

static fleet_status receive_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    fl_stage_client *c = (fl_stage_client *)(void *)link;
    fl_request *r = &c->request[b->number];
    fleet_status status;

    FL_TRY(wait_for_answer(c, r));
    status = read_answer(c, r, b);
    fl_request_clear(r); /* what is kept of it is for batches in flight */
    return status == FLEET_OK ? status : give_up(c, status);
}

fl_stage_link *fl_stage_client_link(fl_stage_client *c)
{
    return &c->link;
}

/* --- its life ------------------------------------------------------------- */

static fleet_status make_client(fl_stage_client *c)
{
    const fl_client_options options = {.job = c->o.job,
                                       .stream = (uint32_t)c->o.trainer,
                                       .request_ms = c->o.request_ms,
                                       .peer_ms = c->o.peer_ms,
                                       .step_ms = c->o.step_ms + c->o.peer_ms,
                                       .restart_ms = c->o.restart_ms,
                                       .waits_to_leave = c->o.restart_ms > 0,
                                       .heartbeat_ms = c->heartbeat_ms,
                                       .whole_sums = true,
                                       .window = SIZE_MAX / 2,
                                       .pool = c->pool,
                                       .log = c->o.log};
    const fl_client_host host = {c, send_packet, NULL};
    char name[FL_LANE_NAME];

    FL_TRY(fl_client_create(&c->client, &options, &host));
    fl_client_set_run(c->client, c->o.run);
    fl_client_set_incarnation(c->client, c->o.incarnation);
    snprintf(name, sizeof name, "%s at %s", c->o.name,
             strncmp(c->o.address, "tcp://", 6) == 0 ? c->o.address + 6
                                                     : c->o.address);
    return fl_client_add_lane(c->client, name, fl_now_ms());
}

static fleet_status wait_for_hello(fl_stage_client *c)
{
    const fl_request *r = &c->request[0];
    int64_t end_ms = fl_now_ms() + c->o.connect_ms;

    while (r->state != FL_REQUEST_DONE) {
        FL_TRY(receive_all(c));
        if (r->state == FL_REQUEST_DONE)
            break;
        FL_TRY(fl_socket_wait(&c->socket, 1, NULL, (int)c->heartbeat_ms));
        FL_TRY(c->o.status(c->o.arg));
        if (fl_now_ms() > end_ms)
            return fl_fail(FLEET_ETIMEDOUT,
                           "%s has not answered a hello for %.1f s (connect "
                           "deadline)",
                           fl_client_lane_name(c->client, 0),
                           (double)c->o.connect_ms / 1000);
        fl_client_tick(c->client, fl_now_ms());
    }
    return fl_client_result(c->client, r, "the next stage");
}

static fleet_status say_hello(fl_stage_client *c)
{
    fl_request *r = &c->request[0];
    const fl_msg *msg;
    fl_msg_writer w;

    fl_client_begin(c->client, 0, r, &w, FL_MSG_HELLO, 0, FL_MSG_CRC_ALL);
    fl_msg_text(&w, FL_SECTION_HELLO, c->o.boundary);
    FL_TRY(fl_client_add(c->client, r, &w));
    fl_client_send(c->client, r, fl_now_ms());
    FL_TRY(wait_for_hello(c));
    msg = fl_client_answer(c->client, r);
    if (!msg)
        return fl_last_code();
    fl_client_set_peer(c->client, 0, msg->head.peer);
    return FLEET_OK;
}

fleet_status fl_stage_client_open(fl_stage_client **client,
                                  const fl_stage_client_options *o)
{
    int64_t ms = o->peer_ms / 5;
    fl_stage_client *c;
    fleet_status status;
    fl_error error;

    FL_TRY(FL_NEW(client, sizeof *c));
    c = *client;
    c->link = (fl_stage_link){.send = send_batch, .receive = receive_batch};
    c->o = *o;
    c->o.n_in_flight = o->n_in_flight > 1 ? o->n_in_flight : 1;
    c->heartbeat_ms = ms < 20 ? 20 : ms > 1000 ? 1000 : ms;
    status = FL_NEW(&c->request, (size_t)c->o.n_in_flight * sizeof *c->request);
    if (status == FLEET_OK)
        status = fl_packet_pool_create(&c->pool, IDLE_BYTES);
    if (status == FLEET_OK)
        status = o->keys ? fl_socket_connect_worker(&c->socket, o->address,
                                                    o->keys, o->key)
                         : fl_socket_connect(&c->socket, o->address);
    if (status == FLEET_OK)
        status = make_client(c);
    if (status == FLEET_OK)
        status = say_hello(c);
    if (status == FLEET_OK)
        return status;
    fl_error_take(&error, status);
    c->left = true;
    fl_stage_client_close(c);
    *client = NULL;
    return fl_error_raise(&error);
}

/* The thread's failure stays as it is. */
static void say_why(const fl_stage_client *c)
{
    char name[32], text[900];
    fl_error why;

    fl_error_take(&why, fleet_last_status());
    snprintf(name, sizeof name, "worker %d", c->o.trainer);
    snprintf(text, sizeof text, "%s has given up: %.700s",
             c->o.own_name ? c->o.own_name : name,
             *why.text ? why.text : "it has not left the job");
    fl_client_fail(c->client, FLEET_EPEER, text, true);
    fl_error_clear();
    (void)fl_error_raise(&why);
}

void fl_stage_client_close(fl_stage_client *c)
{
    if (!c)
        return;
    if (c->client && !c->left)
        say_why(c);
    if (c->client)
        fl_client_forget(c->client, c->request, c->o.n_in_flight);
    else
        fl_free(c->request);
    fl_client_destroy(c->client);
    fl_socket_close(c->socket, (int)c->heartbeat_ms);
    fl_packet_pool_destroy(c->pool);
    fl_free(c);
}
