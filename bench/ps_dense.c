/* ps_dense.c - P1, P2: requests that bring dense blocks and are answered with
 * as many, through our client, messages and sockets and an empty handler; over
 * the same in ZeroMQ and nothing else. Two processes, tcp, four requests in
 * flight. FLEET_KEYS: the folder of our side's keys. */
#include "base/clock.h"
#include "helper.h"
#include "net/guard.h"
#include "net/socket.h"
#include "ps/worker/client.h"
#include "raw.h"
#include "runtime/store/store.h"

enum { WINDOW = 4, ROUNDS = 18, VALUES = 3 };
static const double SECONDS = 0.25;

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
    section = fl_msg_section(&w, FL_SECTION_DENSE, 0);
    section->n_key = msg.section[0].n_key;
    fl_msg_column(&w, FL_COLUMN_VALUES, msg.column[0][VALUES].size);
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
    const fl_client_host host = {w, send_packet};
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

static void ask(worker *w, fl_request *r)
{
    size_t block = FL_BLOCK * sizeof(float), n = w->bytes / block;
    fl_section *s;
    fl_msg_writer writer;
    uint64_t *key;

    fl_request_clear(r);
    fl_client_begin(w->client, 0, r, &writer, FL_MSG_STEP, ++w->step,
                    FL_MSG_END_OF_STEP);
    s = fl_msg_section(&writer, FL_SECTION_DENSE, 0);
    s->n_key = (uint32_t)n;
    key = fl_msg_column(&writer, FL_COLUMN_KEYS, n * sizeof *key);
    for (size_t i = 0; i < n; i++)
        key[i] = i;
    fl_msg_column(&writer, FL_COLUMN_VALUES, w->bytes);
    must(fl_client_add(w->client, r, &writer) == FLEET_OK, fleet_last_error());
    fl_client_send(w->client, r, fl_now_ms());
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

static void await(worker *w, fl_request *r)
{
    const fl_msg *msg;

    while (r->state == FL_REQUEST_SENT)
        work_socket(w);
    msg = fl_client_answer(w->client, r);
    must(msg && msg->column[0][VALUES].size == w->bytes, "a wrong answer");
}

/* --- rates: bytes of both directions per second --------------------------- */

static double ours(worker *w)
{
    double began = now(), took;
    long n = 0;

    for (int i = 0; i < WINDOW; i++)
        ask(w, &w->request[i]);
    for (; (took = now() - began) < SECONDS; n++) {
        await(w, &w->request[n % WINDOW]);
        ask(w, &w->request[n % WINDOW]);
    }
    for (int i = 0; i < WINDOW; i++)
        await(w, &w->request[i]);
    return 2.0 * (double)(n + WINDOW) * (double)w->bytes / (now() - began);
}

static double raw(raw_end *e)
{
    double began = now();
    long n = 0;

    for (int i = 0; i < WINDOW; i++)
        raw_send(e);
    for (; now() - began < SECONDS; n++) {
        raw_receive(e);
        raw_send(e);
    }
    for (int i = 0; i < WINDOW; i++)
        raw_receive(e);
    return 2.0 * (double)(n + WINDOW) * (double)e->size / (now() - began);
}

static void close_worker(worker *w)
{
    fl_socket_close(w->socket, 0);
    for (int i = 0; i < WINDOW; i++)
        fl_request_done(&w->request[i]);
    fl_client_destroy(w->client);
    fl_packet_pool_destroy(w->pool);
}

/* In a process of its own, so that it may fork before it has threads. */
static void measure(int say, void *row)
{
    const struct row {
        const char *id;
        size_t bytes;
        double floor, goal;
    } *r = row;
    helper server = helper_start(serve, NULL), peer[RAW_KINDS];
    raw_end e[RAW_KINDS] = {0};
    raw_rounds all = {0};
    worker w;

    for (int k = 0; k < RAW_KINDS; k++)
        peer[k] = helper_start(raw_serve, &(raw_spec){r->bytes, k});
    connect_to(&w, server.address, r->bytes);
    for (int k = 0; k < RAW_KINDS; k++)
        raw_connect(&e[k], peer[k].address, r->bytes, k);
    for (int i = -2; i < ROUNDS; i++) {
        double our_rate;

        raw_round_begin(&all);
        our_rate = ours(&w) * 1e-9;
        raw_round_end(&all, our_rate, raw(&e[RAW_PLAIN]) * 1e-9,
                      raw(&e[RAW_TUNED]) * 1e-9);
        if (i < 0)
            raw_rounds_forget(&all); /* warm */
    }
    raw_rounds_print(&all, false, r->id, r->floor, r->goal, "GB/s");
    fflush(stdout);
    close_worker(&w);
    for (int k = 0; k < RAW_KINDS; k++) {
        raw_close(&e[k]);
        helper_end(&peer[k]);
    }
    helper_end(&server);
    helper_say(say, "done");
}

int main(int argc, char **argv)
{
    static const struct row {
        const char *id;
        size_t bytes;
        double floor, goal;
    } row[] = {{"P1-1MB", 1 << 20, 0.80, 0.92},
               {"P1-4MB", 4 << 20, 0.80, 0.92},
               {"P2", 64 << 10, 0.6, 0.8}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (is_wanted(argc, argv, row[i].id)) {
            helper h = helper_start(measure, (void *)(uintptr_t)&row[i]);

            waitpid(h.pid, NULL, 0);
        }
    return 0;
}
