/* ps_empty.h - a server whose handler is empty, and a worker that sends it
 * requests: our client, messages and sockets, and nothing behind them. Two
 * processes, tcp, WINDOW requests in flight. FLEET_KEYS: the folder of our
 * side's keys. */
#pragma once

#include "base/clock.h"
#include "helper.h"
#include "net/guard.h"
#include "net/socket.h"
#include "ps/worker/client.h"
#include "runtime/store/store.h"

enum { WINDOW = 4 };

/* In place of a table's number, of pairs. */
enum { EMPTY_PUSH, EMPTY_PULL };

/* NULL: without. They stay as long as the process. */
static fl_keys *keys_of(bool is_server)
{
    const char *folder = getenv("FLEET_KEYS");
    fl_keys *keys = NULL;

    if (folder)
        must(fl_keys_read(&keys, folder, is_server, 0) == FLEET_OK,
             fleet_last_error());
    return keys;
}

/* --- the server ----------------------------------------------------------- */

static void guard(fl_socket *s)
{
    fl_keys *keys = keys_of(true);
    fl_guard *g;

    if (keys)
        must(fl_guard_create(&g, keys) == FLEET_OK &&
                 fl_socket_guard(s, g) == FLEET_OK,
             fleet_last_error());
}

/* Of blocks as many as came; of pairs none to a push, a float for each key to a
 * pull. */
static size_t answer_bytes(const fl_msg *msg)
{
    const fl_section *s = &msg->section[0];

    if (s->op == FL_SECTION_DENSE)
        return msg->column[0][FL_AT_VALUES].size;
    return s->table == EMPTY_PULL ? s->n_key * sizeof(float) : 0;
}

static void answer(fl_socket *s, fl_packet_pool *pool, const fl_peer *to,
                   const fl_packet *p)
{
    static fl_msg msg;
    fl_msg_head head;
    fl_msg_writer w;
    fl_packet *reply;
    fl_section *section;

    must(fl_msg_decode(p, &msg) == FLEET_OK, fleet_last_error());
    head = msg.head;
    head.kind = FL_MSG_ANSWER;
    head.flags = 0;
    fl_msg_begin(&w, pool, &head);
    w.answer.credit_bytes = 1u << 30;
    section = fl_msg_section(&w, msg.section[0].op, 0);
    section->n_key = msg.section[0].n_key;
    if (answer_bytes(&msg) > 0)
        fl_msg_column(&w, FL_COLUMN_VALUES, answer_bytes(&msg));
    must(fl_msg_end(&w, false, &reply) == FLEET_OK, fleet_last_error());
    fl_socket_send(s, to, reply);
    fl_packet_drop(reply);
}

static void serve(int say, void *arg)
{
    char bound[FL_ADDRESS_SIZE];
    fl_packet_pool *pool = NULL;
    fl_socket *s = NULL;
    fl_wakeup bell;

    (void)arg;
    must(fl_packet_pool_create(&pool, 256 << 20) == FLEET_OK &&
             fl_wakeup_create(&bell) == FLEET_OK &&
             fl_socket_listen(&s) == FLEET_OK,
         fleet_last_error());
    guard(s);
    must(fl_socket_bind(s, "tcp://127.0.0.1:*", -1, bound) == FLEET_OK,
         fleet_last_error());
    helper_say(say, bound);
    for (;;) {
        fl_packet *p;
        fl_peer from;

        fl_socket_wait(&s, 1, &bell, 500);
        while (fl_socket_receive(s, &from, &p) == FLEET_OK && p) {
            answer(s, pool, &from, p);
            fl_packet_drop(p);
        }
    }
}

/* --- the worker ----------------------------------------------------------- */

typedef struct worker {
    fl_socket *socket;
    fl_packet_pool *pool;
    fl_client *client;
    fl_request request[WINDOW];
    size_t bytes;
    uint64_t step;
} worker;

static void send_packet(void *arg, int lane, fl_packet *p)
{
    (void)lane;
    must(fl_socket_send(((worker *)arg)->socket, NULL, p) == FLEET_OK,
         fleet_last_error());
}

static void connect_to(worker *w, const char *address, size_t bytes)
{
    const fl_client_host host = {.arg = w, .send = send_packet};
    fl_client_options o = {.job = "bench",
                           .request_ms = 30000,
                           .peer_ms = 10000,
                           .heartbeat_ms = 1000};

    *w = (worker){.bytes = bytes};
    must(fl_packet_pool_create(&w->pool, 256 << 20) == FLEET_OK,
         fleet_last_error());
    o.pool = w->pool;
    must(fl_client_create(&w->client, &o, &host) == FLEET_OK &&
             fl_client_add_lane(w->client, "server 0", fl_now_ms()) ==
                 FLEET_OK &&
             fl_socket_connect_to(&w->socket, address, keys_of(false), 0) ==
                 FLEET_OK,
         fleet_last_error());
}

static void work_socket(worker *w)
{
    fl_packet *p;

    fl_socket_wait(&w->socket, 1, NULL, 500);
    while (fl_socket_receive(w->socket, NULL, &p) == FLEET_OK && p) {
        fl_client_receive(w->client, 0, p, fl_now_ms());
        fl_packet_drop(p);
    }
}

static void close_worker(worker *w)
{
    fl_socket_close(w->socket, 0);
    for (int i = 0; i < WINDOW; i++)
        fl_request_done(&w->request[i]);
    fl_client_destroy(w->client);
    fl_packet_pool_destroy(w->pool);
}
