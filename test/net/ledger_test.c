/* ledger_test.c - what a peer has been sent weighs on its account until the
 * peer has read it, or is gone; and no longer than that. */
#define _GNU_SOURCE
#define SUITE ledger
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net_kit.h"
#include "wire_kit.h"

TEST(accounts_are_apart_and_the_total_is_their_sum)
{
    fl_ledger *l;

    CHECK_OK(fl_ledger_create(&l, 3));
    fl_ledger_charge(l, 0, 100);
    fl_ledger_charge(l, 2, 7);
    fl_ledger_charge(l, 2, 3);
    CHECK_INT(fl_ledger_held(l, 0), 100);
    CHECK_INT(fl_ledger_held(l, 1), 0);
    CHECK_INT(fl_ledger_held(l, 2), 10);
    CHECK_INT(fl_ledger_total(l), 110);
    fl_ledger_credit(l, 2, 7);
    CHECK_INT(fl_ledger_held(l, 2), 3);
    CHECK_INT(fl_ledger_total(l), 103);
    fl_ledger_credit(l, 2, 3);
    fl_ledger_credit(l, 0, 100);
    CHECK_INT(fl_ledger_total(l), 0);
    fl_ledger_drop(l);
    fl_ledger_drop(NULL);
    test_check_leaks();
}

/* A packet of n frames of that size, charged to account 0. */
static fl_packet *charged(fl_ledger *l, int n, size_t size)
{
    fl_packet *p;

    CHECK_OK(fl_packet_create(net_pool, &p));
    for (int i = 0; i < n; i++)
        net_fill(p, size, 1);
    fl_packet_charge(p, l, 0);
    return p;
}

/* Its bytes, and what lies around them; of small frames there are copies. */
TEST(a_packet_weighs_what_it_takes_until_its_last_reference_goes)
{
    static const struct {
        int n;
        size_t size, least, most;
    } c[] = {{1, 88, 88, 2000},
             {1, 1 << 20, 1 << 20, (1 << 20) + 2000},
             {3, 4000, 5 * 4000, 6 * 4000},
             {64, 100, 6400 * 2, 6400 * 7}};

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        fl_ledger *l;
        fl_packet *p;

        net_open_pool();
        CHECK_OK(fl_ledger_create(&l, 1));
        p = charged(l, c[i].n, c[i].size);
        CHECK(fl_ledger_held(l, 0) >= c[i].least);
        CHECK(fl_ledger_held(l, 0) <= c[i].most);
        fl_packet_drop(fl_packet_keep(p));
        CHECK(fl_ledger_held(l, 0) >= c[i].least);
        fl_packet_drop(p);
        CHECK_INT(fl_ledger_held(l, 0), 0);
        fl_ledger_drop(l);
        net_close_pool();
        test_check_leaks();
    }
}

TEST(a_ledger_lives_as_long_as_what_was_charged)
{
    fl_ledger *l;
    fl_packet *p;

    net_open_pool();
    CHECK_OK(fl_ledger_create(&l, 1));
    p = charged(l, 2, 100);
    fl_ledger_drop(l);
    fl_packet_drop(p);
    net_close_pool();
    test_check_leaks();
}

/* --- sockets -------------------------------------------------------------- */

/* A peer that says a word, and reads when it is told to. */
typedef struct slow_peer {
    fl_socket *server;
    fl_peer peer;
    int fd;
} slow_peer;

/* ZeroMQ lets go of what a peer that is gone has not read when the socket is
 * worked, as a lane works it. */
static void wait_until_empty(const slow_peer *s, const fl_ledger *l)
{
    int64_t end = fl_now_ms() + NET_WAIT;
    fl_packet *none;

    while (fl_ledger_held(l, 0) > 0 && fl_now_ms() < end) {
        CHECK_OK(fl_socket_wait(&s->server, 1, NULL, 1));
        CHECK_OK(fl_socket_receive(s->server, NULL, &none));
        CHECK(none == NULL);
    }
    CHECK_INT(fl_ledger_held(l, 0), 0);
}

static void open_peer(slow_peer *s)
{
    char bound[FL_ADDRESS_SIZE];
    fl_packet *p;

    s->server = net_listen("tcp://127.0.0.1:0", bound);
    s->fd = wire_connect(atoi(strrchr(bound, ':') + 1));
    wire_greet(s->fd);
    wire_hear_greeting(s->fd);
    wire_say_frame(s->fd, "hello", 5, false);
    p = net_receive(s->server, &s->peer);
    fl_packet_drop(p);
}

/* More than the kernel keeps for two ends of a connection. */
static void send_much(slow_peer *s, fl_ledger *l, int n, size_t size)
{
    for (int i = 0; i < n; i++) {
        fl_packet *p = charged(l, 1, size);

        CHECK_OK(fl_socket_send(s->server, &s->peer, p));
        fl_packet_drop(p);
    }
}

static void read_all(int fd, size_t least)
{
    static char bytes[1 << 16];
    size_t n = 0;

    while (n < least) {
        ssize_t k = read(fd, bytes, sizeof bytes);

        CHECK(k > 0);
        n += (size_t)k;
    }
}

static void check_unread(int n, size_t size)
{
    slow_peer s;
    fl_ledger *l;

    open_peer(&s);
    CHECK_OK(fl_ledger_create(&l, 1));
    send_much(&s, l, n, size);
    usleep(50000); /* however long it is left alone */
    CHECK(fl_ledger_held(l, 0) > (size_t)n * size / 2);
    read_all(s.fd, (size_t)n * size);
    wait_until_empty(&s, l);
    send_much(&s, l, n, size);
    CHECK(fl_ledger_held(l, 0) > (size_t)n * size / 2);
    close(s.fd); /* it is gone */
    wait_until_empty(&s, l);
    net_end(s.server, NULL);
    fl_ledger_drop(l);
    test_check_leaks();
}

TEST(what_a_peer_does_not_read_weighs_on_its_account)
{
    check_unread(64, 1 << 20);
}

/* Copies of small frames would be out of sight. */
TEST(so_do_small_packets)
{
    check_unread(400000, 88);
}

/* --- what comes in -------------------------------------------------------- */

/* Bytes that a peer can send before it has to wait for its listener. */
static size_t send_until_full(int fd, size_t most)
{
    static char messages[100 * 90];
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    size_t n = 0;

    for (size_t i = 0; i < sizeof messages; i += 90)
        messages[i + 1] = 88; /* flags and size of a frame */
    while (n < most && poll(&p, 1, 2000) == 1) {
        size_t at = n % sizeof messages;
        ssize_t k = send(fd, messages + at, sizeof messages - at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        CHECK(k > 0 || (errno == EAGAIN || errno == EINTR));
        n += k > 0 ? (size_t)k : 0;
    }
    return n;
}

/* A listener that is busy, and one that takes all again. */
TEST(a_peer_that_is_not_listened_to_keeps_its_messages)
{
    enum { MOST = 100 << 20 };
    struct pollfd out;
    slow_peer s;
    size_t n;

    open_peer(&s);
    n = send_until_full(s.fd, MOST);
    CHECK(n < MOST);
    out = (struct pollfd){.fd = s.fd, .events = POLLOUT};
    for (size_t i = 0; i < n / 90 - 1; i++)
        fl_packet_drop(net_receive(s.server, NULL));
    CHECK_INT(poll(&out, 1, NET_WAIT), 1);
    close(s.fd);
    net_end(s.server, NULL);
    test_check_leaks();
}

static void *drop_many(void *ledger)
{
    for (int i = 0; i < 20000; i++) {
        fl_ledger_charge(ledger, 0, 3);
        fl_ledger_credit(ledger, 0, 3);
    }
    return NULL;
}

TEST(threads_charge_and_credit_at_once)
{
    pthread_t thread[4];
    fl_ledger *l;

    CHECK_OK(fl_ledger_create(&l, 1));
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, drop_many, l) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_INT(fl_ledger_held(l, 0), 0);
    CHECK_INT(fl_ledger_total(l), 0);
    fl_ledger_drop(l);
    test_check_leaks();
}
