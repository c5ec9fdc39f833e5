/* handshake.c - a worker says hello to each server, waits for its answer, and
 * reads the addresses of its lanes. */
#include "ps/worker/handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "ps/worker/client.h"
#include "ps/locality.h"
#include "runtime/simd/simd.h"

const char *fl_address_text(const char *address)
{
    return strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
}

enum { LINGER_MS = 500, MOST_AT_ONCE_MS = 1000 };

/* The handshake: a client whose lanes are the servers' first ones. */
typedef struct handshake {
    const fl_hello_options *o;
    fl_client *client;
    fl_socket **socket; /* by server */
    fl_request *request, *again;
    char nonce[20];
    char locality[160];
    fl_awake awake; /* the clock of the deadlines */
    int64_t begun_ms, reminded_ms;
} handshake;

static void send_packet(void *arg, int lane, fl_packet *p)
{
    handshake *h = arg;

    fl_socket_send(h->socket[lane], NULL, p); /* a lost one is sent again */
}

/* To the one that we take for that server. */
static char *describe_worker(const handshake *h, int server)
{
    const fl_hello_options *o = h->o;
    fl_json *json = fl_json_object();
    char who[96], *text;

    fl_who_text(who);
    fl_json_put(json, "job", fl_json_string(o->job));
    fl_json_put(json, "mode", fl_json_string(o->mode));
    fl_json_put(json, "program", fl_json_string(o->program));
    fl_json_put(json, "who", fl_json_string(who));
    fl_json_put(json, "nonce", fl_json_string(h->nonce));
    fl_json_put(json, "isa", fl_json_string(fl_simd_best()->isa));
    fl_json_put(json, "library", fl_json_string(fleet_version()));
    fl_json_put(json, "workers", fl_json_int(o->n_worker));
    fl_json_put(json, "server", fl_json_int(server));
    text = fl_json_put(json, "servers", fl_json_int(o->n_server)) == FLEET_OK
               ? fl_json_print(json, false)
               : NULL;
    fl_json_free(json);
    return text;
}

static fleet_status say_hello(handshake *h, fl_request *r, int server)
{
    char *text = describe_worker(h, server);
    fl_msg_writer w;

    if (!text)
        return FLEET_ENOMEM;
    fl_client_cancel(h->client, r);
    fl_client_begin(h->client, server, r, &w, FL_MSG_HELLO, 0, 0);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    fl_free(text);
    FL_TRY(fl_client_add(h->client, r, &w));
    fl_client_send(h->client, r, fl_now_ms());
    return FLEET_OK;
}

/* A server that has answered must not think that the worker is gone while it
 * waits for the other servers. */
static void repeat_hello(handshake *h)
{
    int64_t ms = h->o->peer_ms / 5;

    ms = ms > 1000 ? 1000 : ms;
    if (fl_now_ms() - h->reminded_ms < ms)
        return;
    h->reminded_ms = fl_now_ms();
    for (int i = 0; i < h->o->n_server; i++)
        if (fl_request_is_answered(&h->request[i]))
            say_hello(h, &h->again[i], i);
}

static void receive_answers(handshake *h)
{
    repeat_hello(h);
    fl_socket_wait(h->socket, h->o->n_server, NULL, 100);
    for (int i = 0; i < h->o->n_server; i++) {
        fl_packet *p;

        while (fl_socket_receive(h->socket[i], NULL, &p) == FLEET_OK && p) {
            fl_client_receive(h->client, i, p, fl_now_ms());
            fl_packet_drop(p);
        }
    }
    fl_client_tick(h->client, fl_now_ms());
}

static int64_t awake_ms(handshake *h)
{
    return fl_awake_at(&h->awake, fl_now_ms());
}

/* A worker with the wrong key, or none, is not answered. */
static const char *keys_text(const handshake *h)
{
    return h->o->keys ? " Has it keys of the same folder?"
                      : " Has it keys, and this worker none (FLEET_KEYS)?";
}

/* Until server `i` has answered. To the server another process may still seem
 * alive in this worker's place: one that has just gone. */
static fleet_status await_server(handshake *h, int i)
{
    fl_request *r = &h->request[i];
    int64_t taken_ms = -1;

    for (;;) {
        if (r->state == FL_REQUEST_SENT) {
            if (awake_ms(h) - h->begun_ms > h->o->connect_ms)
                return fl_fail(
                    FLEET_ETIMEDOUT,
                    "server %d at %s has not answered within %.1f s (connect "
                    "deadline): is it running, and is that its address?%s",
                    i, fl_address_text(h->o->address[i]),
                    (double)h->o->connect_ms / 1000, keys_text(h));
            receive_answers(h);
            continue;
        }
        if (!r->answer || r->status != FL_ANSWER_TAKEN)
            return fl_client_result(h->client, r, "fleet_init_worker");
        if (taken_ms < 0)
            taken_ms = awake_ms(h);
        if (awake_ms(h) - taken_ms > h->o->peer_ms)
            return fl_client_result(h->client, r, "fleet_init_worker");
        receive_answers(h); /* waits a tenth of a second before it asks again */
        FL_TRY(say_hello(h, &h->request[i], i));
    }
}

/* --- the lanes ------------------------------------------------------------ */

/* Lane 0 is at the address that answered HELLO, whatever port it has bound: it
 * may be a forwarded one. The other lanes have the same host. */
static void tcp_address(const handshake *h, int server, int lane, int64_t port,
                        fl_address address)
{
    const char *first = h->o->address[server];

    if (lane == 0)
        snprintf(address, FL_ADDRESS_SIZE, "%s", first);
    else
        snprintf(address, FL_ADDRESS_SIZE, "%.*s:%d",
                 (int)(strrchr(first, ':') - first), first, (int)port);
}

static fleet_status read_lane(const handshake *h, int server, int number,
                              const char *text, fl_hello_lane *lane)
{
    const char *ipc = "", *inproc = "", *place = "";
    fl_json *json = NULL;
    int64_t port = 0;

    FL_TRY(fl_json_parse(text, strlen(text), "lane", &json));
    fl_at root = fl_at_root(json), at = fl_at_key(&root, "ipc");
    fleet_status status = fl_at_string(&at, &ipc);
    at = fl_at_key(&root, "inproc");
    if (status == FLEET_OK)
        status = fl_at_string(&at, &inproc);
    at = fl_at_key(&root, "place");
    if (status == FLEET_OK)
        status = fl_at_string(&at, &place);
    at = fl_at_key(&root, "port");
    if (status == FLEET_OK)
        status = fl_at_int(&at, 0, 65535, &port);
    lane->elsewhere = !*inproc && (!*place || strcmp(place, h->locality) != 0);
    if (*inproc)
        snprintf(lane->address, sizeof lane->address, "%.100s", inproc);
    else if (*ipc && !lane->elsewhere && !h->o->tcp_only)
        snprintf(lane->address, sizeof lane->address, "ipc://%.100s", ipc);
    else
        tcp_address(h, server, number, port, lane->address);
    fl_json_free(json);
    return status;
}

static fleet_status read_lanes(handshake *h, int server, fl_job_lanes *lanes)
{
    const fl_msg *msg = fl_client_answer(h->client, &h->request[server]);
    size_t capacity = (size_t)lanes->n;
    uint32_t peer;

    if (!msg || msg->head.n_section < 1 || msg->head.n_section > FL_MOST_LANE)
        return fl_fail(FLEET_EFORMAT, "server %d at %s has no lanes", server,
                       fl_address_text(h->o->address[server]));
    lanes->n_lane[server] = msg->head.n_section;
    peer = msg->head.peer;
    fl_client_set_peer(h->client, server, peer);
    FL_TRY(fl_grow(&lanes->lane, &capacity,
                   (size_t)(lanes->n + msg->head.n_section),
                   sizeof *lanes->lane));
    for (int i = 0; i < lanes->n_lane[server]; i++) {
        const fl_frame *f = &msg->column[i][FL_AT_BYTES];
        char *text = fl_strndup(f->data ? f->data : "", f->size);
        fleet_status status =
            text ? read_lane(h, server, i, text, &lanes->lane[lanes->n])
                 : FLEET_ENOMEM;

        fl_free(text);
        FL_TRY(status);
        lanes->lane[lanes->n].peer = peer;
        lanes->elsewhere = lanes->elsewhere || lanes->lane[lanes->n].elsewhere;
        lanes->n++;
    }
    return FLEET_OK;
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status connect_all(handshake *h)
{
    for (int i = 0; i < h->o->n_server; i++) {
        const char *address = h->o->address[i];
        char name[160];

        FL_TRY(fl_socket_connect_to(&h->socket[i], address, h->o->keys, i));
        snprintf(name, sizeof name, "server %d at %s", i,
                 fl_address_text(address));
        FL_TRY(fl_client_add_lane(h->client, name, h->begun_ms));
    }
    return FLEET_OK;
}

/* Server 0 first: another worker of that number must not get further. */
static fleet_status say_all(handshake *h, fl_job_lanes *lanes)
{
    const fl_msg *msg;

    FL_TRY(say_hello(h, &h->request[0], 0));
    FL_TRY(await_server(h, 0));
    msg = fl_client_answer(h->client, &h->request[0]);
    lanes->incarnation = msg ? msg->head.incarnation : 0;
    lanes->run = msg ? fl_msg_run(msg->head.job) : 0;
    fl_client_set_run(h->client, lanes->run);
    for (int i = 1; i < h->o->n_server; i++)
        FL_TRY(say_hello(h, &h->request[i], i));
    for (int i = 0; i < h->o->n_server; i++) {
        FL_TRY(await_server(h, i));
        FL_TRY(read_lanes(h, i, lanes));
    }
    return FLEET_OK;
}

static fleet_status shake_hands(handshake *h, fl_job_lanes *lanes)
{
    const fl_hello_options *o = h->o;
    const fl_client_options options = {.job = o->job,
                                       .stream = o->stream,
                                       .request_ms = o->connect_ms,
                                       .peer_ms = o->peer_ms,
                                       .step_ms = o->connect_ms,
                                       .heartbeat_ms = 1000,
                                       .pool = o->pool};
    const fl_client_host host = {h, send_packet};

    FL_TRY(fl_client_create(&h->client, &options, &host));
    h->socket = fl_alloc_array((size_t)o->n_server, sizeof(fl_socket *));
    h->request = fl_alloc_array((size_t)o->n_server, sizeof *h->request);
    h->again = fl_alloc_array((size_t)o->n_server, sizeof *h->again);
    snprintf(h->nonce, sizeof h->nonce, "%016llx",
             (unsigned long long)fl_nonce());
    if (!h->socket || !h->request || !h->again)
        return FLEET_ENOMEM;
    FL_TRY(connect_all(h));
    return say_all(h, lanes);
}

/* linger_ms: for what a worker that gives up has told. */
static void close_sockets(handshake *h, int linger_ms)
{
    fl_client_forget(h->client, h->request, h->o->n_server);
    fl_client_forget(h->client, h->again, h->o->n_server);
    for (int i = 0; h->socket && i < h->o->n_server; i++)
        fl_socket_close(h->socket[i], linger_ms);
    fl_client_destroy(h->client);
    fl_free(h->socket);
}

fleet_status fl_hello(const fl_hello_options *o, fl_job_lanes *lanes)
{
    handshake h = {.o = o, .begun_ms = fl_now_ms()};
    fleet_status status;
    fl_error error;

    h.awake = fl_awake_from(h.begun_ms, MOST_AT_ONCE_MS);
    *lanes = (fl_job_lanes){0};
    fl_locality_text(h.locality);
    status = shake_hands(&h, lanes);
    fl_error_take(&error, status);
    if (status != FLEET_OK && lanes->incarnation > 0) { /* one was granted */
        fl_client_set_incarnation(h.client, lanes->incarnation);
        fl_client_fail(h.client, status, error.text, true);
    }
    close_sockets(&h, status == FLEET_OK ? 0 : LINGER_MS);
    if (status != FLEET_OK) {
        fl_free(lanes->lane);
        lanes->lane = NULL;
    }
    return fl_error_raise(&error);
}
