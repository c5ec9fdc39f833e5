/* socket_peers_test.c - addresses that are wrong or taken, peers that go,
 * strangers that talk nonsense. */
#define _GNU_SOURCE
#define SUITE socket_peers
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "memory_kit.h"
#include "net_kit.h"
#include "wire_kit.h"

/* --- addresses ------------------------------------------------------------ */

static void check_bind_fails(const char *address, int fd, fleet_status code,
                             const char *words)
{
    fl_socket *s;

    CHECK_OK(fl_socket_listen(&s));
    CHECK_FAILS(fl_socket_bind(s, address, fd, NULL), code, words);
    CHECK_CONTAINS(fleet_last_error(), address);
    fl_socket_close(s, 0);
}

TEST(a_port_in_use_is_said_to_be)
{
    char bound[FL_ADDRESS_SIZE], words[200];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);

    snprintf(words, sizeof words, "%s: the port is in use by another process",
             bound);
    check_bind_fails(bound, -1, FLEET_EIO, words);
    CHECK_OK(fl_socket_bind(server, "inproc://x", -1, NULL));
    check_bind_fails("inproc://x", -1, FLEET_EIO, "the name is in use");
    net_end(server, NULL);
}

TEST(an_ipc_path_takes_the_place_of_a_dead_socket_and_of_no_file)
{
    char address[FL_ADDRESS_SIZE];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    fl_socket *server, *client;

    snprintf(address, sizeof address, "ipc://%s", test_file("file", "text"));
    check_bind_fails(address, -1, FLEET_EIO, "File exists");
    CHECK(access(address + 6, F_OK) == 0);
    snprintf(address, sizeof address, "ipc://%s", test_path("dead"));
    strcpy(at.sun_path, address + 6);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    close(fd);
    server = net_listen(address, NULL);
    client = net_connect(address);
    net_talk(server, client, 1);
    net_end(client, server);
}

TEST(addresses_that_cannot_be_are_refused_by_name)
{
    char name[300];
    fl_socket *s;

    check_bind_fails("tcp://192.0.2.1:0", -1, FLEET_EIO, "no interface");
    check_bind_fails("tcp://127.0.0.1", -1, FLEET_EINVAL, "not an address");
    check_bind_fails("tcp://127.0.0.1:99999", -1, FLEET_EINVAL,
                     "not an address");
    check_bind_fails("tcp://127.0.0.1:12a", -1, FLEET_EINVAL, "not an address");
    check_bind_fails("nonsense", -1, FLEET_EINVAL, "not an address");
    check_bind_fails("udp://127.0.0.1:5", -1, FLEET_EINVAL, "not ");
    check_bind_fails("ipc:///nowhere/at/all", -1, FLEET_EIO, "No such file");
    memset(name, 'x', sizeof name);
    memcpy(name, "inproc://", 9);
    name[299] = 0;
    CHECK_FAILS(fl_socket_connect(&s, name), FLEET_EINVAL, "299 bytes");
    CHECK(s == NULL);
    CHECK_FAILS(fl_socket_connect(&s, "tcp://:"), FLEET_EINVAL,
                "not an address");
}

static int tcp_socket(bool listens, char address[FL_ADDRESS_SIZE])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(!listens || listen(fd, 10) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(address, FL_ADDRESS_SIZE, "tcp://127.0.0.1:%d",
             ntohs(at.sin_port));
    return fd;
}

TEST(an_inherited_socket_is_used_in_place_of_binding)
{
    char address[FL_ADDRESS_SIZE], bound[FL_ADDRESS_SIZE];
    int fd = tcp_socket(true, address);
    fl_socket *server, *client = net_connect(address), *other;

    net_open_pool();
    CHECK_OK(fl_socket_listen(&server));
    CHECK_OK(fl_socket_bind(server, address, fd, bound));
    CHECK_TEXT(bound, address);
    net_talk(server, client, 1);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_OK(fl_socket_bind(server, "tcp://127.0.0.1:0", -1, bound));
    CHECK(strcmp(bound, address) != 0); /* the next one is bound as usual */
    other = net_connect(bound);
    net_talk(server, other, 2);
    fl_socket_close(other, 0);
    net_end(client, server);
    CHECK_INT(fcntl(fd, F_GETFD), -1); /* it was ours, and is closed */
}

TEST(a_descriptor_that_does_not_listen_is_refused)
{
    char address[FL_ADDRESS_SIZE];
    int fd = tcp_socket(false, address), null = open("/dev/null", O_RDONLY);

    check_bind_fails(address, fd, FLEET_EINVAL, "no listening tcp socket");
    check_bind_fails(address, null, FLEET_EINVAL, "no listening tcp socket");
    check_bind_fails(address, 9999, FLEET_EINVAL, "no listening tcp socket");
    CHECK(fcntl(fd, F_GETFD) >= 0 && fcntl(null, F_GETFD) >= 0);
    close(fd);
    close(null);
    fd = tcp_socket(true, address);
    check_bind_fails("inproc://x", fd, FLEET_EINVAL, "no listening tcp socket");
    close(fd);
}

TEST(with_few_descriptors_left_a_socket_works_or_is_refused)
{
    struct rlimit all, few;
    int n_ok = 0, n_refused = 0;

    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    few = all;
    for (few.rlim_cur = 80; few.rlim_cur > 5; few.rlim_cur--) {
        fl_socket *s;

        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        if (fl_socket_listen(&s) == FLEET_OK) {
            CHECK_OK(fl_socket_bind(s, "tcp://127.0.0.1:0", -1, NULL));
            fl_socket_close(s, 0);
            n_ok++;
        } else {
            CHECK_CONTAINS(fleet_last_error(), "cannot open a socket");
            CHECK(s == NULL);
            n_refused++;
        }
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
    CHECK(n_ok > 0 && n_refused > 0);
}

/* ZeroMQ would abort. A thread's stack is some megabytes of address space. */
TEST(without_room_for_threads_a_socket_is_refused)
{
    struct rlimit all;
    fl_socket *s;

    memory_need_limits();
    CHECK(getrlimit(RLIMIT_AS, &all) == 0);
    memory_limit_to(9 << 20);
    CHECK_FAILS(fl_socket_listen(&s), FLEET_ENOMEM,
                "out of memory: a thread may take ");
    CHECK(setrlimit(RLIMIT_AS, &all) == 0);
    CHECK_OK(fl_socket_listen(&s));
    fl_socket_close(s, 0);
}

TEST(memory_that_runs_out_is_reported)
{
    fleet_status status;
    fl_socket *s;
    int n = 0;

    do {
        fl_memory_fail_at(++n, false);
        status = fl_socket_listen(&s);
    } while (status == FLEET_ENOMEM && n < 10);
    fl_memory_fail_at(0, false);
    CHECK_OK(status);
    CHECK_INT(n, 3);
    fl_socket_close(s, 0);
}

/* --- peers that go, strangers that come ----------------------------------- */

/* Send until it fails. */
static fleet_status send_until_gone(fl_socket *s, const fl_peer *to)
{
    const int64_t end = fl_now_ms() + NET_WAIT;
    fleet_status status = FLEET_OK;

    while (status == FLEET_OK && fl_now_ms() < end) {
        fl_packet *p;

        CHECK_OK(fl_packet_create(net_pool, &p));
        net_fill(p, 40000, 1);
        status = fl_socket_send(s, to, p);
        fl_packet_drop(p);
        CHECK_OK(fl_socket_wait(&s, 1, NULL, 1));
    }
    return status;
}

static void check_gone(const char *address)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen(address, bound);
    fl_socket *client = net_connect(bound), *other = net_connect(bound);
    fl_peer peer;

    net_send(client, NULL, 4, 1);
    net_check_received(server, &peer, 4, 1);
    fl_socket_close(client, 0);
    CHECK_STATUS(send_until_gone(server, &peer), FLEET_ENOENT);
    CHECK_CONTAINS(fleet_last_error(), "the peer is gone");
    net_talk(server, other, 7);
    net_end(other, server);
}

TEST(a_peer_that_is_gone_is_said_to_be)
{
    check_gone("tcp://127.0.0.1:0");
    check_gone("inproc://x");
}

TEST(closing_waits_no_longer_than_it_may_linger)
{
    char address[FL_ADDRESS_SIZE];
    int fd = tcp_socket(true, address); /* accepts, and never answers */
    int64_t begin;
    fl_socket *client;

    net_open_pool();
    for (int linger = 0; linger <= 300; linger += 300) {
        client = net_connect(address);
        for (unsigned i = 0; i < 10; i++)
            net_send(client, NULL, 1 << 20, i);
        begin = fl_now_ms();
        fl_socket_close(client, linger);
        CHECK(fl_now_ms() - begin >= linger);
        CHECK(fl_now_ms() - begin < linger + 20000);
    }
    client = net_connect("inproc://nobody-at-all");
    net_send(client, NULL, 100000, 1);
    net_end(client, NULL);
    close(fd);
}

TEST(what_was_sent_before_closing_arrives_within_the_linger)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);

    net_send(client, NULL, 5 << 20, 3);
    fl_socket_close(client, 10000);
    net_check_received(server, NULL, 5 << 20, 3);
    net_end(NULL, server);
}

static int stranger(const char *bound)
{
    const char *port = strrchr(bound, ':') + 1;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

/* Whatever got through is no message. */
static void check_nothing_sensible(fl_socket *server)
{
    static fl_msg msg;
    fl_packet *p;

    for (;;) {
        CHECK_OK(fl_socket_receive(server, NULL, &p));
        if (!p)
            return;
        CHECK(fl_msg_decode(p, &msg) != FLEET_OK);
        fl_packet_drop(p);
    }
}

/* A client asks, strangers or not; theirs is dropped meanwhile. */
static void ask(fl_socket *server, fl_socket *client, unsigned seed)
{
    fl_peer peer;
    fl_packet *p;

    net_send(client, NULL, 4444, seed);
    for (p = net_receive(server, &peer); p->bytes != 4444;) {
        fl_packet_drop(p);
        p = net_receive(server, &peer);
    }
    net_check_filled(p->frame, 4444, seed);
    fl_packet_drop(p);
    net_send(server, &peer, 80, seed);
    net_check_received(client, NULL, 80, seed);
}

TEST(strangers_do_no_harm_to_clients)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    static const uint8_t greeting[] = {255, 0,   0, 0, 0,   0,   0,   0,
                                       1,   127, 3, 0, 'N', 'U', 'L', 'L'};
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    unsigned seed = 5;
    int fd[60];

    for (unsigned i = 0; i < 60; i++) {
        uint8_t noise[3000];

        fd[i] = stranger(bound);
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)(rand_r(&seed) >> 7);
        if (i % 4 == 0)
            CHECK(send(fd[i], http, sizeof http - 1, MSG_NOSIGNAL) > 0);
        if (i % 4 == 1)
            CHECK(send(fd[i], noise, sizeof noise, MSG_NOSIGNAL) > 0);
        if (i % 4 == 2) { /* as one of ours begins, then noise */
            CHECK(send(fd[i], greeting, i % 17, MSG_NOSIGNAL) > 0 || !(i % 17));
            send(fd[i], noise, i % 3 * 1000, MSG_NOSIGNAL);
        }
        if (i % 8 >= 4) /* the others stay half-open */
            close(fd[i]);
        ask(server, client, i);
    }
    for (int i = 0; i < 60; i++)
        if (i % 8 < 4)
            close(fd[i]);
    ask(server, client, 1000);
    check_nothing_sensible(server);
    net_end(client, server);
}

/* As ZMTP has it: a frame is flags, length, bytes. */
static size_t put_frame(uint8_t *to, bool more, size_t size)
{
    to[0] = (uint8_t)(more | 2); /* a long one */
    memset(to + 1, 0, 8 + size);
    for (int i = 0; i < 8; i++)
        to[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
    return 9 + size;
}

static int speaker(const char *bound, size_t id_size)
{
    uint8_t id[200];
    int fd = stranger(bound);

    memset(id, 'i', sizeof id);
    wire_greet_as(fd, id, id_size);
    wire_hear_greeting(fd);
    return fd;
}

static void send_frames(int fd, int n)
{
    uint8_t *bytes = malloc((size_t)n * 12);
    size_t size = 0;

    for (int i = 0; i < n; i++)
        size += put_frame(bytes + size, i + 1 < n, 3);
    CHECK(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    free(bytes);
}

TEST(messages_of_too_many_frames_are_dropped_and_counted)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    int fd = speaker(bound, 3), other = speaker(bound, 200);
    fl_packet *p;

    send_frames(other, 2); /* its name is longer than any of ours */
    send_frames(fd, FL_MOST_FRAME + 1);
    send_frames(fd, 10000);
    send_frames(fd, FL_MOST_FRAME);
    p = net_receive(server, NULL);
    CHECK_INT(p->n_frame, FL_MOST_FRAME);
    CHECK_INT(p->bytes, 3 * FL_MOST_FRAME);
    fl_packet_drop(p);
    while (fl_socket_dropped(server) < 3) {
        CHECK_OK(fl_socket_wait(&server, 1, NULL, NET_WAIT));
        check_nothing_sensible(server);
    }
    CHECK_INT(fl_socket_dropped(server), 3);
    net_talk(server, client, 1);
    close(fd);
    close(other);
    net_end(client, server);
}

/* As peers of ZMTP 1.0 and 2.0 begin, up to their names: libzmq has ended
 * processes that closed their sockets then. */
static int old_peer(const char *bound, bool versioned)
{
    static const uint8_t v1[] = {4, 0, 'o', 'l', 'd'},
                         v2[] = {255, 0, 0, 0, 0, 0,   0,   0,  1,
                                 127, 1, 5, 0, 3, 'o', 'l', 'd'};
    int fd = stranger(bound);

    if (versioned)
        wire_say(fd, v2, sizeof v2);
    else
        wire_say(fd, v1, sizeof v1);
    return fd;
}

TEST(peers_of_older_zeromq_are_hung_up_on)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);

    wire_hear_end(old_peer(bound, false));
    wire_hear_end(old_peer(bound, true));
    net_talk(server, client, 1);
    net_end(client, server);
}

typedef struct old_peers {
    int fd[16];
    pthread_barrier_t begin;
} old_peers;

static void *say_names(void *arg)
{
    static const uint8_t name[] = {0, 3, 'o', 'l', 'd'};
    old_peers *p = arg;

    pthread_barrier_wait(&p->begin);
    for (int i = 0; i < 16; i++)
        wire_say(p->fd[i], name, sizeof name);
    return NULL;
}

TEST(a_socket_closes_while_older_peers_say_their_names)
{
    enum { TIMES = 60 };
    static const uint8_t greeting[] = {255, 0, 0, 0, 0, 0, 0, 0, 1, 127, 1, 5};
    char bound[FL_ADDRESS_SIZE];
    pthread_t thread;
    old_peers p;

    pthread_barrier_init(&p.begin, NULL, 2);
    for (int i = 0; i < TIMES; i++) {
        fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);

        for (int k = 0; k < 16; k++) {
            p.fd[k] = stranger(bound);
            wire_say(p.fd[k], greeting, sizeof greeting);
        }
        CHECK(pthread_create(&thread, NULL, say_names, &p) == 0);
        pthread_barrier_wait(&p.begin);
        usleep((unsigned)i * 5);
        net_end(NULL, server);
        pthread_join(thread, NULL);
        for (int k = 0; k < 16; k++)
            close(p.fd[k]);
    }
    pthread_barrier_destroy(&p.begin);
}

TEST(a_frame_that_is_too_large_ends_the_connection_that_sent_it)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    int fd = speaker(bound, 3);
    uint8_t head[9] = {2, 0, 0, 0, 1, 0, 0, 0, 0}, sink[100];

    CHECK(send(fd, head, sizeof head, MSG_NOSIGNAL) == 9);
    while (recv(fd, sink, sizeof sink, 0) > 0)
        ; /* greetings, then the end */
    net_talk(server, client, 1);
    close(fd);
    net_end(client, server);
}
