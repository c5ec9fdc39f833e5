/* guard_test.c - who has a key of the job is let in and named; who has none, or
 * another one, is not, whatever he says; and nobody on the way reads along. */
#define _GNU_SOURCE
#define SUITE guard
#include "net_kit.h"
#include "test.h"
#include "wire_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { QUIET_MS = 400 };

/* A server's socket, with the keys of its job. */
typedef struct door {
    fl_keys *server, *worker[2], *stranger; /* of another job */
    fl_guard *guard;
    fl_socket *socket;
    fl_address bound;
    int port;
} door;

static void open_door(door *d)
{
    CHECK_OK(fl_keys_make(test_path("keys"), 2, 2));
    CHECK_OK(fl_keys_make(test_path("other"), 1, 2));
    CHECK_OK(fl_keys_read(&d->server, test_path("keys"), true, 0));
    for (int i = 0; i < 2; i++)
        CHECK_OK(fl_keys_read(&d->worker[i], test_path("keys"), false, i));
    CHECK_OK(fl_keys_read(&d->stranger, test_path("other"), false, 0));
    CHECK_OK(fl_guard_create(&d->guard, d->server));
    net_open_pool();
    CHECK_OK(fl_socket_listen(&d->socket));
    CHECK_OK(fl_socket_guard(d->socket, d->guard));
    CHECK_OK(fl_socket_bind(d->socket, "tcp://127.0.0.1:0", -1, d->bound));
    d->port = atoi(strrchr(d->bound, ':') + 1);
}

static void close_door(door *d)
{
    net_end(d->socket, NULL);
    fl_guard_destroy(d->guard);
    fl_keys_destroy(d->server);
    fl_keys_destroy(d->worker[0]);
    fl_keys_destroy(d->worker[1]);
    fl_keys_destroy(d->stranger);
}

static fl_socket *come(const char *address, const fl_keys *keys)
{
    fl_socket *s;

    CHECK_OK(fl_socket_connect_to(&s, address, keys, 0));
    return s;
}

/* Nothing comes to the server; by then so many were refused. */
static void check_refused(door *d, uint64_t least)
{
    int64_t end = fl_now_ms() + QUIET_MS, last = end + NET_WAIT;
    fl_packet *p;

    while (fl_now_ms() < end || fl_socket_refused(d->socket) < least) {
        CHECK(fl_now_ms() < last);
        CHECK_OK(fl_socket_wait(&d->socket, 1, NULL, 20));
        CHECK_OK(fl_socket_receive(d->socket, NULL, &p));
        CHECK(!p);
    }
}

static void check_comes_as(door *d, const char *address, const fl_keys *keys,
                           int sender)
{
    fl_socket *s = come(address, keys);
    fl_peer from;

    net_send(s, NULL, 40, 3);
    net_check_received(d->socket, &from, 40, 3);
    CHECK_INT(from.sender, sender);
    net_send(d->socket, &from, 80, 4);
    net_check_received(s, NULL, 80, 4);
    fl_socket_close(s, 0);
}

TEST(who_has_a_key_of_the_job_is_let_in_and_named)
{
    door d;

    open_door(&d);
    check_comes_as(&d, d.bound, d.worker[1], 2);
    check_comes_as(&d, d.bound, d.worker[0], 1);
    CHECK_INT(fl_socket_refused(d.socket), 0);
    close_door(&d);
}

TEST(who_has_no_key_is_not_let_in)
{
    fl_socket *s;
    door d;

    open_door(&d);
    s = come(d.bound, NULL);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    check_comes_as(&d, d.bound, d.worker[1], 2);
    fl_socket_close(s, 0);
    close_door(&d);
}

/* He even knows the server's public key. */
TEST(a_key_of_another_job_is_not_let_in)
{
    fl_socket *s;
    door d;

    open_door(&d);
    memcpy(d.stranger->known[FL_ROLE_SERVER][0], d.server->own, sizeof(fl_key));
    s = come(d.bound, d.stranger);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    close_door(&d);
}

/* A server's key is no worker's. */
TEST(a_key_of_another_role_is_not_let_in)
{
    fl_socket *s;
    door d;

    open_door(&d);
    s = come(d.bound, d.server);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    close_door(&d);
}

/* It has copies of what that one keeps. */
TEST(one_server_may_be_let_in_and_no_other_one)
{
    fl_keys *other;
    fl_socket *s;
    door d;

    open_door(&d);
    CHECK_OK(fl_keys_read(&other, test_path("keys"), true, 1));
    fl_guard_let_in(d.guard, 1);
    check_comes_as(&d, d.bound, other, FL_GUARD_SERVER + 1);
    s = come(d.bound, d.server);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    close_door(&d);
    fl_keys_destroy(other);
}

TEST(a_server_with_another_key_is_told_nothing)
{
    fl_socket *s;
    door d;

    open_door(&d);
    memcpy(d.worker[0]->known[FL_ROLE_SERVER][0],
           d.stranger->known[FL_ROLE_SERVER][0], sizeof(fl_key));
    s = come(d.bound, d.worker[0]);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    close_door(&d);
}

/* It is server 0 that listens. */
TEST(another_server_of_the_job_is_not_taken_for_the_one_that_is_meant)
{
    fl_socket *s;
    door d;

    open_door(&d);
    CHECK_OK(fl_socket_connect_to(&s, d.bound, d.worker[0], 1));
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    close_door(&d);
}

TEST(a_server_that_has_no_key_at_all_is_told_nothing)
{
    fl_address bound;
    fl_socket *open, *s;
    fl_packet *p;
    door d;

    open_door(&d);
    open = net_listen("tcp://127.0.0.1:0", bound);
    s = come(bound, d.worker[0]);
    net_send(s, NULL, 40, 1);
    CHECK_OK(fl_socket_wait(&open, 1, NULL, QUIET_MS));
    CHECK_OK(fl_socket_receive(open, NULL, &p));
    CHECK(!p);
    fl_socket_close(s, 0);
    fl_socket_close(open, 0);
    close_door(&d);
}

TEST(a_server_without_a_line_is_not_connected_to)
{
    fl_socket *s;
    door d;

    open_door(&d);
    CHECK_FAILS(fl_socket_connect_to(&s, d.bound, d.worker[0], 5), FLEET_ENOENT,
                "none of server 5");
    close_door(&d);
}

TEST(who_comes_by_the_folder_needs_no_key)
{
    char address[300];
    fl_socket *s;
    door d;

    open_door(&d);
    snprintf(address, sizeof address, "ipc://%s", test_path("s"));
    CHECK_OK(fl_socket_bind(d.socket, address, -1, NULL));
    check_comes_as(&d, address, NULL, 0);
    check_comes_as(&d, address, d.worker[1], 0);
    s = come(d.bound, NULL); /* by tcp it still does */
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    CHECK_OK(fl_socket_bind(d.socket, "inproc://guard", -1, NULL));
    check_comes_as(&d, "inproc://guard", NULL, 0);
    close_door(&d);
}

/* Each door asks for keys of its own job. */
TEST(two_guards_of_one_process_know_their_own_keys)
{
    fl_keys *server;
    fl_guard *guard;
    fl_socket *s, *listener;
    fl_address bound;
    fl_peer from;
    door d;

    open_door(&d);
    CHECK_OK(fl_keys_read(&server, test_path("other"), true, 0));
    CHECK_OK(fl_guard_create(&guard, server));
    CHECK_OK(fl_socket_listen(&listener));
    CHECK_OK(fl_socket_guard(listener, guard));
    CHECK_OK(fl_socket_bind(listener, "tcp://127.0.0.1:0", -1, bound));
    s = come(bound, d.stranger);
    net_send(s, NULL, 40, 1);
    net_check_received(listener, &from, 40, 1);
    CHECK_INT(from.sender, 1);
    fl_socket_close(s, 0);
    memcpy(d.stranger->known[FL_ROLE_SERVER][0], d.server->own, sizeof(fl_key));
    s = come(d.bound, d.stranger);
    net_send(s, NULL, 40, 1);
    check_refused(&d, 1);
    fl_socket_close(s, 0);
    fl_socket_close(listener, 0);
    fl_guard_destroy(guard);
    fl_keys_destroy(server);
    check_comes_as(&d, d.bound, d.worker[1], 2);
    close_door(&d);
}

/* --- on the wire ---------------------------------------------------------- */

/* A message whose frame is so many times that number. */
static void send_floats(fl_socket *s, const fl_peer *to, float x)
{
    enum { N = 1000 };
    fl_packet *p;
    float *data;

    CHECK_OK(fl_packet_create(net_pool, &p));
    data = fl_packet_add(p, N * sizeof *data);
    for (int i = 0; i < N; i++)
        data[i] = x;
    CHECK_OK(fl_socket_send(s, to, p));
    fl_packet_drop(p);
}

/* There and back through a proxy; what both have said. */
static void talk_through(door *d, wire *w, const fl_keys *keys)
{
    char address[64];
    fl_socket *s;
    fl_peer from;

    wire_open(w, d->port);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", w->port);
    s = come(address, keys);
    send_floats(s, NULL, 0.71875f);
    fl_packet_drop(net_receive(d->socket, &from));
    send_floats(d->socket, &from, 0.71875f);
    fl_packet_drop(net_receive(s, NULL));
    fl_socket_close(s, 0);
    wire_close(w);
}

static bool shows_floats(const wire *w)
{
    const float pattern[] = {0.71875f, 0.71875f};

    return wire_has(w, pattern, sizeof pattern);
}

TEST(a_socket_without_keys_beside_guarded_ones_lets_all_in)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server, *client;
    fl_peer from;
    door d;

    open_door(&d);
    server = net_listen("tcp://127.0.0.1:0", bound);
    client = net_connect(bound);
    net_send(client, NULL, 40, 3);
    net_check_received(server, &from, 40, 3);
    CHECK_INT(from.sender, 0);
    fl_socket_close(client, 0);
    fl_socket_close(server, 0);
    close_door(&d);
}

TEST(nobody_on_the_way_reads_along)
{
    door d, open;
    wire w;

    open_door(&d);
    talk_through(&d, &w, d.worker[0]);
    CHECK(w.all.n > 8000);
    CHECK(!shows_floats(&w));
    wire_done(&w);
    open = d;
    open.socket = net_listen("tcp://127.0.0.1:0", open.bound);
    open.port = atoi(strrchr(open.bound, ':') + 1);
    talk_through(&open, &w, NULL);
    CHECK(shows_floats(&w));
    wire_done(&w);
    fl_socket_close(open.socket, 0);
    close_door(&d);
}

TEST(what_was_recorded_says_nothing_when_it_is_sent_again)
{
    door d;
    wire w;
    int fd;

    open_door(&d);
    talk_through(&d, &w, d.worker[0]);
    CHECK(w.first.n > 4000);
    fd = wire_connect(d.port);
    wire_say(fd, w.first.bytes, w.first.n);
    wire_hear_end(fd);
    check_refused(&d, 1);
    wire_done(&w);
    close_door(&d);
}

TEST(who_speaks_ZMTP_by_hand_without_a_key_is_hung_up_on)
{
    char bytes[100] = {1};
    door d;
    int fd;

    open_door(&d);
    fd = wire_connect(d.port);
    wire_greet(fd);
    wire_say_frame(fd, bytes, sizeof bytes, false);
    wire_hear_end(fd);
    check_refused(&d, 1);
    close_door(&d);
}

TEST(a_child_of_fork_guards_for_itself)
{
    door d;
    pid_t child;

    open_door(&d);
    child = test_fork();
    if (child == 0) {
        fl_guard *guard;

        CHECK_OK(fl_guard_create(&guard, d.server));
        fl_guard_destroy(d.guard);
        fl_guard_destroy(guard);
        _exit(0);
    }
    CHECK(test_ends_within(child, NET_WAIT));
    check_comes_as(&d, d.bound, d.worker[1], 2);
    close_door(&d);
}
