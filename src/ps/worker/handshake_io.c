/* handshake_io.c - the sockets of a handshake. */
#include "ps/worker/handshake_io.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "net/socket.h"
#include "ps/locality.h"

enum { LINGER_MS = 500, WAIT_MS = 100 };

typedef struct hello_sockets {
    fl_socket **socket; /* by server */
    int n;
} hello_sockets;

static void send_packet(void *arg, int server, fl_packet *p)
{
    hello_sockets *s = arg;

    fl_socket_send(s->socket[server], NULL, p); /* a lost one is sent again */
}

static fleet_status connect_all(hello_sockets *s, const fl_hello_options *o)
{
    FL_TRY(FL_NEW(&s->socket, (size_t)o->n_server * sizeof(fl_socket *)));
    for (; s->n < o->n_server; s->n++)
        FL_TRY(fl_socket_connect_to(&s->socket[s->n], o->address[s->n], o->keys,
                                    s->n));
    return FLEET_OK;
}

static void receive_answers(hello_sockets *s, fl_handshake *h)
{
    fl_socket_wait(s->socket, s->n, NULL, WAIT_MS);
    for (int i = 0; i < s->n; i++) {
        fl_packet *p;

        while (fl_socket_receive(s->socket[i], NULL, &p) == FLEET_OK && p) {
            fl_handshake_receive(h, i, p, fl_now_ms());
            fl_packet_drop(p);
        }
    }
    fl_handshake_tick(h, fl_now_ms());
}

static fleet_status shake_hands(hello_sockets *s, const fl_hello_options *o,
                                fl_job_lanes *lanes)
{
    const fl_client_host host = {.arg = s, .send = send_packet};
    fleet_status status;
    fl_handshake *h;

    FL_TRY(connect_all(s, o));
    FL_TRY(fl_handshake_create(&h, o, &host, fl_now_ms()));
    while (!fl_handshake_is_over(h))
        receive_answers(s, h);
    status = fl_handshake_result(h, lanes);
    fl_handshake_destroy(h);
    return status;
}

fleet_status fl_hello(const fl_hello_options *o, fl_job_lanes *lanes)
{
    fl_hello_options whole = *o;
    char who[96], locality[160];
    hello_sockets s = {0};
    fleet_status status;
    fl_error error;

    *lanes = (fl_job_lanes){0};
    fl_who_text(who);
    fl_locality_text(locality);
    if (o->life == 0)
        whole.nonce = fl_nonce();
    whole.who = who;
    whole.locality = locality;
    status = shake_hands(&s, &whole, lanes);
    fl_error_take(&error, status);
    /* what a worker that gives up has told goes out before it is gone */
    for (int i = 0; i < s.n; i++)
        fl_socket_close(s.socket[i], status == FLEET_OK ? 0 : LINGER_MS);
    fl_free(s.socket);
    return fl_error_raise(&error);
}

static fleet_status connect_lane(fl_socket **socket, const fl_hello_lane *lane,
                                 const fl_keys *keys, int server, int *n)
{
    FL_TRY(fl_socket_connect_to(&socket[*n], lane->address, keys, server));
    ++*n;
    return FLEET_OK;
}

/* The process of the next server has a server's replicas. */
fleet_status fl_hello_connect(const fl_job_lanes *lanes, int n_server,
                              const fl_keys *keys, fl_socket ***sockets, int *n)
{
    size_t most = 2 * (size_t)lanes->n; /* lanes may move */
    const fl_hello_lane *lane = lanes->lane;

    *n = 0;
    FL_TRY(FL_NEW(sockets, most * sizeof **sockets));
    for (int s = 0; s < n_server; s++)
        for (int i = 0; i < lanes->n_lane[s]; i++)
            FL_TRY(connect_lane(*sockets, lane++, keys, s, n));
    lane = lanes->replica;
    for (int s = 0; lane && s < n_server; s++, lane += FL_MOST_LANE)
        for (int i = 0; i < lanes->n_lane[s]; i++)
            FL_TRY(
                connect_lane(*sockets, &lane[i], keys, (s + 1) % n_server, n));
    *n = (int)most;
    return FLEET_OK;
}

static void name_server(int server, const fl_address address,
                        char name[FL_LANE_NAME])
{
    snprintf(name, FL_LANE_NAME, "server %d at %.100s", server,
             fl_address_text(address));
}

fleet_status fl_hello_reconnect(fl_socket **sockets, int n_lane, int number,
                                const char *text, fl_address *address,
                                int n_server, const fl_keys *keys,
                                bool tcp_only, char name[FL_LANE_NAME])
{
    fl_hello_lane lane = {0};
    char locality[160];
    fl_socket *other;
    int process;
    bool moved;

    fl_locality_text(locality);
    FL_TRY(fl_hello_read_lane(address[0], 1, text, locality, tcp_only, &lane));
    process = lane.process;
    moved = process >= 0;
    if (!moved) { /* that of its server, or the next one's */
        int server = number % n_lane / (n_lane / n_server);

        process = (server + (number >= n_lane)) % n_server;
    }
    if (process >= n_server && !*lane.home)
        return fl_fail(FLEET_EINVAL, "a lane is said to be at server %d of %d",
                       process, n_server);
    if (process < n_server)
        FL_TRY(fl_hello_read_lane(address[process], 1, text, locality, tcp_only,
                                  &lane));
    FL_TRY(fl_socket_connect_to(&other, lane.address, keys, process));
    fl_socket_close(sockets[number], 0);
    sockets[number] = other;
    if (moved)
        name_server(process, *lane.home ? lane.home : address[process], name);
    return FLEET_OK;
}

fleet_status fl_hello_add_lanes(const fl_job_lanes *lanes, fl_address *address,
                                int n_server, fl_client *client)
{
    int n = 0;

    for (int s = 0; s < n_server; s++)
        for (int i = 0; i < lanes->n_lane[s]; i++, n++) {
            char name[FL_LANE_NAME];

            name_server(s, address[s], name);
            FL_TRY(fl_client_add_lane(client, name, fl_now_ms()));
            fl_client_set_peer(client, n, lanes->lane[n].peer);
        }
    return FLEET_OK;
}
