/* socket_names_test.c - the names by which a listening socket knows its peers:
 * ours cannot be guessed, a client keeps its own over a broken connection, and
 * what a stranger calls itself ends no process. */
#define _GNU_SOURCE
#define SUITE socket_names
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net_kit.h"
#include "wire_kit.h"

enum { FIRST_RANDOM = 1804289383 }; /* of rand(), after srand(1) */

/* A peer that calls itself that; size 0: nothing. */
static int peer_named(const char *bound, const void *name, size_t size)
{
    int fd = wire_connect(atoi(strrchr(bound, ':') + 1));

    wire_greet_as(fd, name, size);
    wire_hear_greeting(fd);
    return fd;
}

static void say(int fd, char word)
{
    const uint8_t frame[3] = {0, 1, (uint8_t)word};

    CHECK(send(fd, frame, sizeof frame, MSG_NOSIGNAL) == 3);
}

static fl_peer hear(fl_socket *server, char word)
{
    fl_peer from;
    fl_packet *p = net_receive(server, &from);

    CHECK_INT(p->bytes, 1);
    CHECK_INT(*(char *)p->frame[0].data, word);
    fl_packet_drop(p);
    return from;
}

/* The numbers that ROUTER would give out next, if nobody had seeded rand(). */
TEST(a_stranger_who_claims_the_numbers_of_peers_ends_no_server)
{
    enum { N = 16 };
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server, *client;
    int claim[N], nameless[N];

    srand(1);
    server = net_listen("tcp://127.0.0.1:0", bound);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t number = FIRST_RANDOM + i;
        const uint8_t name[5] = {0, (uint8_t)(number >> 24),
                                 (uint8_t)(number >> 16),
                                 (uint8_t)(number >> 8), (uint8_t)number};

        claim[i] = peer_named(bound, name, sizeof name);
        say(claim[i], 'c');
        CHECK_INT(hear(server, 'c').size, sizeof name);
    }
    for (int i = 0; i < N; i++) {
        nameless[i] = peer_named(bound, NULL, 0);
        say(nameless[i], 'n');
        hear(server, 'n');
    }
    client = net_connect(bound);
    net_talk(server, client, 1);
    for (int i = 0; i < N; i++) {
        close(claim[i]);
        close(nameless[i]);
    }
    net_end(client, server);
}

/* Where a socket begins to number is no other socket's business. */
TEST(no_two_sockets_give_their_nameless_peers_the_same_numbers)
{
    fl_peer first[2];

    for (int i = 0; i < 2; i++) {
        char bound[FL_ADDRESS_SIZE];
        fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
        int nameless = peer_named(bound, NULL, 0);

        say(nameless, 'n');
        first[i] = hear(server, 'n');
        CHECK_INT(first[i].size, 5);
        close(nameless);
        net_end(NULL, server);
    }
    CHECK(memcmp(first[0].id, first[1].id, 5) != 0);
}

TEST(sockets_draw_nothing_from_the_hosts_generator)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server, *client;

    srand(1);
    server = net_listen("tcp://127.0.0.1:0", bound);
    client = net_connect(bound);
    net_talk(server, client, 1);
    CHECK_INT(rand(), FIRST_RANDOM); // NOLINT
    net_end(client, server);
}

static fl_peer name_of(fl_socket *server, fl_socket *client)
{
    fl_peer from;

    net_send(client, NULL, 80, 1);
    net_check_received(server, &from, 80, 1);
    return from;
}

TEST(every_socket_of_ours_names_itself_and_no_two_alike)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *one = net_connect(bound), *other = net_connect(bound);
    fl_peer a = name_of(server, one), b = name_of(server, other);

    CHECK_INT(a.size, 16);
    CHECK_INT(b.size, 16);
    CHECK(a.id[0] != 0 && b.id[0] != 0); /* no number of ROUTER's */
    CHECK(memcmp(a.id, b.id, 8) != 0 && memcmp(a.id + 8, b.id + 8, 8) != 0);
    fl_socket_close(other, 0);
    net_end(one, server);
}

/* As after a break that the server has not seen: a connection that stays open
 * on its side. */
TEST(a_client_that_connects_anew_is_heard_though_its_old_connection_is_open)
{
    static const char name[] = "a client's name";
    char bound[FL_ADDRESS_SIZE], answer[100];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    int old = peer_named(bound, name, sizeof name), new;
    fl_peer from;

    say(old, '1');
    hear(server, '1');
    new = peer_named(bound, name, sizeof name);
    say(new, '2');
    from = hear(server, '2');
    CHECK_INT(from.size, sizeof name);
    net_send(server, &from, 80, 1);
    CHECK(recv(new, answer, 2 + 80, MSG_WAITALL) == 2 + 80);
    close(old);
    close(new);
    net_end(NULL, server);
}
