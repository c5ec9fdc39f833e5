/* handshake.c - a worker says hello to each server, again where that was lost
 * or another process has its place, and reads the addresses of the lanes. */
#include "ps/worker/handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "runtime/simd/simd.h"

const char *fl_address_text(const char *address)
{
    return strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
}

enum {
    MOST_AT_ONCE_MS = 1000,
    MOST_RESEND_MS = 1000,
    ASK_AGAIN_MS = 100, /* while another process has the place */
    LOADS_MS = 50,      /* until a server that loads is asked again, at first */
    LOG_EVERY_MS = 10000
};

/* A server that is awaited; times but asked_ms are of the awake clock. */
typedef struct awaited {
    int64_t asked_ms; /* last */
    int64_t since_ms; /* its connect deadline runs since then */
    bool loads;       /* as it has said */
    int64_t again_ms; /* until it is asked how far it is: twice as long each
                         time */
    uint64_t bytes, total;
    int64_t logged_ms;
} awaited;

/* A client whose lanes are the servers' first ones. Servers are awaited one
 * after the other, and no other one is asked before server 0 has given the
 * worker its place: another worker of that number must not get further. */
struct fl_handshake {
    fl_hello_options o;
    fl_client *client;
    fl_request *request, *again; /* by server */
    awaited *at;                 /* by server */
    fl_awake awake;              /* the clock of the deadlines */
    int64_t begun_ms, reminded_ms;
    int64_t taken_ms; /* since when the place is known to be taken; -1 */
    int server;       /* that is awaited */
    bool is_over;
    fl_error error;
    fl_job_lanes lanes; /* as far as they are known */
};

/* To the one that we take for that server. */
static char *describe_worker(const fl_handshake *h, int server)
{
    const fl_hello_options *o = &h->o;
    fl_json *json = fl_json_object();
    char nonce[20], *text;

    snprintf(nonce, sizeof nonce, "%016llx", (unsigned long long)o->nonce);
    fl_json_put(json, "job", fl_json_string(o->job));
    fl_json_put(json, "mode", fl_json_string(o->mode));
    fl_json_put(json, "program", fl_json_string(o->program));
    fl_json_put(json, "who", fl_json_string(o->who));
    fl_json_put(json, "nonce", fl_json_string(nonce));
    fl_json_put(json, "isa", fl_json_string(fl_simd_best()->isa));
    fl_json_put(json, "library", fl_json_string(fleet_version()));
    if (o->life > 0)
        fl_json_put(json, "life", fl_json_int(o->life));
    fl_json_put(json, "workers", fl_json_int(o->n_worker));
    fl_json_put(json, "server", fl_json_int(server));
    text = fl_json_put(json, "servers", fl_json_int(o->n_server)) == FLEET_OK
               ? fl_json_print(json, false)
               : NULL;
    fl_json_free(json);
    return text;
}

static fleet_status say_hello(fl_handshake *h, fl_request *r, int server,
                              int64_t now_ms)
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
    fl_client_send(h->client, r, now_ms);
    h->at[server].asked_ms = now_ms;
    return FLEET_OK;
}

/* A server that knows the worker takes it for gone if it hears nothing more. */
static int64_t resend_ms(const fl_handshake *h)
{
    int64_t ms = h->o.peer_ms / 5;

    return ms < MOST_RESEND_MS ? ms : MOST_RESEND_MS;
}

/* To servers that have answered, while the worker waits for other ones. */
static void repeat_hello(fl_handshake *h, int64_t now_ms)
{
    if (now_ms - h->reminded_ms < resend_ms(h))
        return;
    h->reminded_ms = now_ms;
    for (int i = 0; i < h->o.n_server; i++)
        if (fl_request_is_answered(&h->request[i]))
            say_hello(h, &h->again[i], i, now_ms);
}

/* --- the lanes ------------------------------------------------------------ */

/* Lane 0 is at the address that answered HELLO, whatever port it has bound: it
 * may be a forwarded one. The other lanes have the same host. */
static void tcp_address(const char *first, int lane, int64_t port,
                        fl_address address)
{
    if (lane == 0)
        snprintf(address, FL_ADDRESS_SIZE, "%s", first);
    else
        snprintf(address, FL_ADDRESS_SIZE, "%.*s:%d",
                 (int)(strrchr(first, ':') - first), first, (int)port);
}

fleet_status fl_hello_read_lane(const char *first, int number, const char *text,
                                const char *locality, bool tcp_only,
                                fl_hello_lane *lane)
{
    const char *ipc = "", *inproc = "", *place = "", *home = "";
    fl_json *json = NULL;
    int64_t port = 0, process = -1;

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
    at = fl_at_key(&root, "process");
    if (status == FLEET_OK)
        status = fl_at_int(&at, 0, FL_MOST_SERVER - 1, &process);
    at = fl_at_key(&root, "home");
    if (status == FLEET_OK)
        status = fl_at_string(&at, &home);
    if (status == FLEET_OK && *home && !strrchr(home, ':'))
        status = fl_fail(FLEET_EFORMAT, "a lane's home is \"%.100s\"", home);
    lane->process = (int)process;
    snprintf(lane->home, sizeof lane->home, "%s", home);
    lane->elsewhere = !*inproc && (!*place || strcmp(place, locality) != 0);
    if (*inproc)
        snprintf(lane->address, sizeof lane->address, "%.100s", inproc);
    else if (*ipc && !lane->elsewhere && !tcp_only)
        snprintf(lane->address, sizeof lane->address, "ipc://%.100s", ipc);
    else
        tcp_address(*home ? home : first, *home ? 1 : number, port,
                    lane->address);
    fl_json_free(json);
    return status;
}

/* The lanes of the server before it, of which it has replicas. */
static fleet_status read_replicas(fl_handshake *h, const fl_msg *msg,
                                  int server, int first)
{
    int of = (server + h->o.n_server - 1) % h->o.n_server;

    if (!h->lanes.replica)
        FL_TRY(FL_NEW(&h->lanes.replica, (size_t)h->o.n_server * FL_MOST_LANE *
                                             sizeof *h->lanes.replica));
    for (int i = first; i < msg->head.n_section; i++) {
        const fl_frame *f = &msg->column[i][FL_AT_BYTES];
        char *text = fl_strndup(f->data ? f->data : "", f->size);
        fleet_status status =
            text ? fl_hello_read_lane(
                       h->o.address[server], 1, text, h->o.locality,
                       h->o.tcp_only,
                       &h->lanes.replica[of * FL_MOST_LANE + i - first])
                 : FLEET_ENOMEM;

        fl_free(text);
        FL_TRY(status);
    }
    return FLEET_OK;
}

static fleet_status read_lanes(fl_handshake *h, int server)
{
    fl_job_lanes *lanes = &h->lanes;
    int copies = h->o.replicas ? 2 : 1;
    const fl_msg *msg = fl_client_answer(h->client, &h->request[server]);
    size_t capacity = (size_t)lanes->n;
    uint32_t peer;

    if (!msg || msg->head.n_section < copies ||
        msg->head.n_section > FL_MOST_LANE * copies ||
        msg->head.n_section % copies != 0)
        return fl_fail(FLEET_EFORMAT,
                       "server %d at %s has told %d addresses of lanes, "
                       "expected %sfrom %d to %d",
                       server, fl_address_text(h->o.address[server]),
                       msg ? msg->head.n_section : 0,
                       copies == 2 ? "an even number " : "", copies,
                       FL_MOST_LANE * copies);
    lanes->n_lane[server] = msg->head.n_section / copies;
    if (h->o.replicas)
        FL_TRY(read_replicas(h, msg, server, lanes->n_lane[server]));
    peer = msg->head.peer;
    fl_client_set_peer(h->client, server, peer);
    FL_TRY(fl_grow(&lanes->lane, &capacity,
                   (size_t)(lanes->n + msg->head.n_section),
                   sizeof *lanes->lane));
    for (int i = 0; i < lanes->n_lane[server]; i++) {
        const fl_frame *f = &msg->column[i][FL_AT_BYTES];
        char *text = fl_strndup(f->data ? f->data : "", f->size);
        fleet_status status =
            text ? fl_hello_read_lane(h->o.address[server], i, text,
                                      h->o.locality, h->o.tcp_only,
                                      &lanes->lane[lanes->n])
                 : FLEET_ENOMEM;

        fl_free(text);
        FL_TRY(status);
        lanes->lane[lanes->n].peer = peer;
        lanes->elsewhere = lanes->elsewhere || lanes->lane[lanes->n].elsewhere;
        lanes->n++;
    }
    return FLEET_OK;
}

/* --- answers -------------------------------------------------------------- */

/* A worker with the wrong key, or none, is not answered. */
static const char *keys_text(const fl_handshake *h)
{
    return h->o.keys ? " Has it keys of the same folder?"
                     : " Has it keys, and this worker none (FLEET_KEYS)?";
}

/* "40 %", or nothing. */
static const char *percent_text(const awaited *a, char text[16])
{
    uint64_t percent = a->total ? a->bytes * 100 / a->total : 0;

    *text = 0;
    if (a->total > 0)
        snprintf(text, 16, ", %d %%", (int)(percent < 99 ? percent : 99));
    return text;
}

static fleet_status await_answer(const fl_handshake *h, int i, int64_t awake_ms)
{
    const awaited *a = &h->at[i];
    char percent[16];

    if (awake_ms - a->since_ms <= h->o.connect_ms)
        return FLEET_OK;
    if (a->loads)
        return fl_fail(FLEET_ETIMEDOUT,
                       "server %d at %s is loading%s, and has not got on for "
                       "%.1f s (connect deadline)",
                       i, fl_address_text(h->o.address[i]),
                       percent_text(a, percent),
                       (double)h->o.connect_ms / 1000);
    return fl_fail(FLEET_ETIMEDOUT,
                   "server %d at %s has not answered within %.1f s (connect "
                   "deadline): is it running, and is that its address?%s",
                   i, fl_address_text(h->o.address[i]),
                   (double)h->o.connect_ms / 1000, keys_text(h));
}

/* To the server another process may still seem alive in this worker's place:
 * one that has just gone. */
static fleet_status ask_again(fl_handshake *h, int64_t awake_ms, int64_t now_ms)
{
    fl_request *r = &h->request[h->server];

    if (h->taken_ms < 0)
        h->taken_ms = awake_ms;
    if (awake_ms - h->taken_ms > h->o.peer_ms)
        return fl_client_result(h->client, r, "fleet_init_worker");
    if (now_ms - h->at[h->server].asked_ms < ASK_AGAIN_MS)
        return FLEET_OK;
    return say_hello(h, r, h->server, now_ms);
}

/* Server 0 has given the worker its place: now the other servers are asked. One
 * that is made again from its journal does not know yet whose places are whose,
 * and says no incarnation. */
static fleet_status enter_job(fl_handshake *h, int64_t awake_ms, int64_t now_ms)
{
    const fl_msg *msg = fl_client_answer(h->client, &h->request[0]);

    if (h->lanes.incarnation > 0 || !msg || msg->head.incarnation == 0)
        return FLEET_OK;
    h->lanes.incarnation = msg->head.incarnation;
    h->lanes.run = fl_msg_run(msg->head.job);
    fl_client_set_run(h->client, h->lanes.run);
    fl_client_set_incarnation(h->client, h->lanes.incarnation);
    for (int i = 1; i < h->o.n_server; i++) {
        h->at[i].since_ms = awake_ms;
        FL_TRY(say_hello(h, &h->request[i], i, now_ms));
    }
    return FLEET_OK;
}

static void log_load(const fl_handshake *h, int server, int64_t awake_ms)
{
    awaited *a = &h->at[server];
    char percent[16];

    if (a->loads && awake_ms - a->logged_ms < LOG_EVERY_MS)
        return;
    a->logged_ms = awake_ms;
    FL_INFO(h->o.log, "worker %u waits: server %d at %s is loading%s",
            h->o.stream, server, fl_address_text(h->o.address[server]),
            percent_text(a, percent));
}

/* A load of moments costs no second, and one of minutes no flood of messages;
 * the connect deadline has some answers in it. */
static fleet_status ask_how_far(fl_handshake *h, int server, int64_t now_ms)
{
    awaited *a = &h->at[server];
    int64_t most = resend_ms(h);

    if (h->o.connect_ms / 5 < most)
        most = h->o.connect_ms / 5;
    if (a->again_ms == 0)
        a->again_ms = LOADS_MS;
    if (a->again_ms > most)
        a->again_ms = most;
    if (now_ms - a->asked_ms < a->again_ms)
        return FLEET_OK;
    a->again_ms *= 2;
    return say_hello(h, &h->request[server], server, now_ms);
}

/* The server has given the worker its place, and must go on to hear of it. */
static fleet_status await_load(fl_handshake *h, int server, int64_t awake_ms,
                               int64_t now_ms)
{
    const fl_msg *msg = fl_client_answer(h->client, &h->request[server]);
    awaited *a = &h->at[server];

    if (msg && (!a->loads || msg->answer.applied > a->bytes)) {
        a->bytes = msg->answer.applied;
        a->total = msg->answer.durable;
        a->since_ms = awake_ms;
        log_load(h, server, awake_ms);
        a->loads = true;
    }
    if (msg)
        fl_client_set_peer(h->client, server, msg->head.peer);
    FL_TRY(await_answer(h, server, awake_ms));
    if (server == 0)
        FL_TRY(enter_job(h, awake_ms, now_ms));
    return ask_how_far(h, server, now_ms);
}

/* Whether it has answered, or will. One after the awaited one may have to be
 * asked again; its refusal ends all. */
static fleet_status look_at_server(fl_handshake *h, int server,
                                   int64_t awake_ms, int64_t now_ms)
{
    const fl_request *r = &h->request[server];

    if (r->state == FL_REQUEST_IDLE)
        return FLEET_OK; /* not asked yet */
    if (r->state == FL_REQUEST_SENT)
        return await_answer(h, server, awake_ms);
    if (r->answer && r->status == FL_ANSWER_COMING)
        return await_load(h, server, awake_ms, now_ms);
    if (r->answer && r->status == FL_ANSWER_TAKEN)
        return server == h->server ? ask_again(h, awake_ms, now_ms) : FLEET_OK;
    return fl_client_result(h->client, r, "fleet_init_worker");
}

static fleet_status look_at_servers(fl_handshake *h, int64_t now_ms)
{
    int64_t awake_ms = fl_awake_at(&h->awake, now_ms);

    FL_TRY(fl_client_status(h->client));
    for (int i = h->server; i < h->o.n_server; i++)
        FL_TRY(look_at_server(h, i, awake_ms, now_ms));
    if (!fl_request_is_answered(&h->request[h->server]))
        return FLEET_OK;
    if (h->server == 0)
        FL_TRY(enter_job(h, awake_ms, now_ms));
    FL_TRY(read_lanes(h, h->server));
    h->taken_ms = -1;
    h->is_over = ++h->server == h->o.n_server;
    return FLEET_OK;
}

/* A worker that has its place tells the servers why it gives up: each in the
 * name of the process that has answered. */
static void give_up(fl_handshake *h, fleet_status status)
{
    fl_error_take(&h->error, status);
    h->is_over = true;
    if (h->lanes.incarnation == 0)
        return;
    for (int i = h->server; i < h->o.n_server; i++)
        if (fl_request_is_answered(&h->request[i]))
            fl_client_set_peer(
                h->client, i,
                fl_client_answer(h->client, &h->request[i])->head.peer);
    fl_client_fail(h->client, status, h->error.text, true);
}

static void get_on(fl_handshake *h, int64_t now_ms)
{
    int before = -1;

    while (!h->is_over && before != h->server) {
        fleet_status status;

        before = h->server;
        status = look_at_servers(h, now_ms);
        if (status != FLEET_OK)
            give_up(h, status);
    }
}

void fl_handshake_receive(fl_handshake *h, int server, fl_packet *p,
                          int64_t now_ms)
{
    if (h->is_over)
        return;
    fl_client_receive(h->client, server, p, now_ms);
    get_on(h, now_ms);
}

void fl_handshake_tick(fl_handshake *h, int64_t now_ms)
{
    if (h->is_over)
        return;
    repeat_hello(h, now_ms);
    fl_client_tick(h->client, now_ms);
    get_on(h, now_ms);
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status add_servers(fl_handshake *h)
{
    for (int i = 0; i < h->o.n_server; i++) {
        char name[160];

        snprintf(name, sizeof name, "server %d at %s", i,
                 fl_address_text(h->o.address[i]));
        FL_TRY(fl_client_add_lane(h->client, name, h->begun_ms));
    }
    return FLEET_OK;
}

static fleet_status begin(fl_handshake *h, const fl_client_host *host)
{
    const fl_client_options options = {.job = h->o.job,
                                       .stream = h->o.stream,
                                       .request_ms = h->o.connect_ms,
                                       .peer_ms = h->o.peer_ms,
                                       .step_ms = h->o.connect_ms,
                                       .heartbeat_ms = resend_ms(h),
                                       .whole_sums = true,
                                       .pool = h->o.pool};

    FL_TRY(fl_client_create(&h->client, &options, host));
    FL_TRY(FL_NEW(&h->request, (size_t)h->o.n_server * sizeof *h->request));
    FL_TRY(FL_NEW(&h->again, (size_t)h->o.n_server * sizeof *h->again));
    FL_TRY(FL_NEW(&h->at, (size_t)h->o.n_server * sizeof *h->at));
    h->at[0].since_ms = h->begun_ms;
    FL_TRY(add_servers(h));
    return say_hello(h, &h->request[0], 0, h->begun_ms);
}

fleet_status fl_handshake_create(fl_handshake **handshake,
                                 const fl_hello_options *o,
                                 const fl_client_host *host, int64_t now_ms)
{
    fleet_status status;
    fl_handshake *h;

    *handshake = NULL;
    FL_TRY(FL_NEW(&h, sizeof *h));
    h->o = *o;
    h->begun_ms = now_ms;
    h->awake = fl_awake_from(now_ms, MOST_AT_ONCE_MS);
    h->taken_ms = -1;
    status = begin(h, host);
    if (status != FLEET_OK) {
        fl_handshake_destroy(h);
        return status;
    }
    *handshake = h;
    return FLEET_OK;
}

bool fl_handshake_is_over(const fl_handshake *h)
{
    return h->is_over;
}

fleet_status fl_handshake_result(fl_handshake *h, fl_job_lanes *lanes)
{
    FL_TRY(fl_error_raise(&h->error));
    *lanes = h->lanes;
    h->lanes.lane = NULL;
    h->lanes.replica = NULL;
    return FLEET_OK;
}

void fl_handshake_destroy(fl_handshake *h)
{
    if (!h)
        return;
    if (h->client) {
        fl_client_forget(h->client, h->request, h->o.n_server);
        fl_client_forget(h->client, h->again, h->o.n_server);
    }
    fl_client_destroy(h->client);
    fl_free(h->at);
    fl_free(h->lanes.lane);
    fl_free(h->lanes.replica);
    fl_free(h);
}
