/* socket_test.c - packets between sockets: every transport, several peers,
 * frames without copies, peers that go, strangers that talk nonsense. */
#define _GNU_SOURCE
#define SUITE socket
#include "test.h"

#include <dirent.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net_kit.h"

/* --- transports ----------------------------------------------------------- */

static void check_transport(const char *address, const char *begins)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen(address, bound), *client;
    fl_packet *none;

    CHECK_CONTAINS(bound, begins);
    client = net_connect(bound);
    CHECK_OK(fl_socket_receive(client, NULL, &none));
    CHECK(none == NULL);
    for (unsigned i = 0; i < 10; i++)
        net_talk(server, client, i);
    CHECK_INT(fl_socket_dropped(server), 0);
    net_end(client, server);
}

TEST(packets_travel_by_tcp_to_a_port_of_the_kernels_choice)
{
    check_transport("tcp://127.0.0.1:0", "tcp://127.0.0.1:");
    check_transport("tcp://127.0.0.1:*", "tcp://127.0.0.1:");
}

TEST(packets_travel_by_ipc)
{
    char address[FL_ADDRESS_SIZE];

    snprintf(address, sizeof address, "ipc://%s", test_path("lane"));
    check_transport(address, address);
}

TEST(packets_travel_by_inproc)
{
    check_transport("inproc://lane", "inproc://lane");
}

TEST(packets_travel_by_ipv6_where_there_is_some)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int rc = bind(fd, (struct sockaddr *)&at, sizeof at);

    close(fd);
    if (fd < 0 || rc != 0)
        test_skip("this machine has no ::1");
    check_transport("tcp://[::1]:0", "tcp://[::1]:");
}

TEST(a_socket_may_be_bound_to_several_addresses)
{
    char tcp[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", tcp), *a, *b;

    CHECK_OK(fl_socket_bind(server, "inproc://second", -1, NULL));
    a = net_connect(tcp);
    b = net_connect("inproc://second");
    net_talk(server, a, 1);
    net_talk(server, b, 2);
    fl_socket_close(a, 0);
    net_end(b, server);
}

TEST(a_client_may_connect_before_its_server_is_there)
{
    char address[FL_ADDRESS_SIZE];
    fl_socket *client, *server;

    snprintf(address, sizeof address, "ipc://%s", test_path("late"));
    net_open_pool();
    client = net_connect(address);
    net_send(client, NULL, 100, 5);
    server = net_listen(address, NULL);
    net_check_received(server, NULL, 100, 5);
    net_end(client, server);
}

TEST(answers_go_to_the_client_that_asked)
{
    enum { N = 8 };
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound), *client[N];
    fl_peer peer;

    for (int i = 0; i < N; i++) {
        client[i] = net_connect(bound);
        net_send(client[i], NULL, 4 * (size_t)(i + 1), 0);
    }
    for (int i = 0; i < N; i++) {
        fl_packet *p = net_receive(server, &peer);

        net_send(server, &peer, p->bytes, 1);
        fl_packet_drop(p);
    }
    for (int i = 0; i < N; i++) {
        net_check_received(client[i], NULL, 4 * (size_t)(i + 1), 1);
        fl_socket_close(client[i], 0);
    }
    net_end(NULL, server);
}

/* --- frames --------------------------------------------------------------- */

static void check_frames(const char *address)
{
    const size_t size[] = {64, 0, 16, 16 << 10, 1 << 20, 4 << 20, 20 << 20};
    enum { N = sizeof size / sizeof *size };
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen(address, bound);
    fl_socket *client = net_connect(bound);
    fl_packet *p, *q;

    CHECK_OK(fl_packet_create(net_pool, &p));
    for (unsigned i = 0; i < N; i++)
        net_fill(p, size[i], i);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(fl_socket_send(client, NULL, p));
        q = net_receive(server, NULL);
        CHECK_INT(q->n_frame, N);
        CHECK_INT(q->bytes, p->bytes);
        for (unsigned i = 0; i < N; i++)
            net_check_filled(&q->frame[i], size[i], i);
        fl_packet_drop(q);
    }
    fl_packet_drop(p);
    net_end(client, server);
}

TEST(large_frames_travel_whole_by_tcp)
{
    check_frames("tcp://127.0.0.1:0");
}

TEST(large_frames_travel_whole_by_inproc)
{
    check_frames("inproc://frames");
}

TEST(large_frames_travel_without_a_copy)
{
    fl_socket *server = net_listen("inproc://x", NULL);
    fl_socket *client = net_connect("inproc://x");
    fl_packet *p, *q;

    CHECK_OK(fl_packet_create(net_pool, &p));
    net_fill(p, 16 << 10, 1);
    net_fill(p, 4 << 10, 2);
    CHECK_OK(fl_socket_send(client, NULL, p));
    CHECK_INT(p->refs, 2);
    q = net_receive(server, NULL);
    CHECK(q->frame[0].data == p->frame[0].data);
    CHECK(q->frame[1].data != p->frame[1].data);
    fl_packet_drop(q);
    CHECK_INT(p->refs, 1);
    fl_packet_drop(p);
    net_end(client, server);
}

TEST(a_received_packet_may_be_sent_on)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    fl_packet *p;
    fl_peer peer;

    net_send(client, NULL, 100000, 1);
    p = net_receive(server, &peer);
    CHECK_OK(fl_socket_send(server, &peer, p));
    fl_packet_drop(p);
    net_check_received(client, NULL, 100000, 1);
    net_end(client, server);
}

TEST(packets_outlive_the_socket_that_received_them)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    fl_packet *p;

    net_send(client, NULL, 100000, 1);
    p = net_receive(server, NULL);
    net_end(client, server);
    net_check_filled(p->frame, 100000, 1);
    fl_packet_drop(p);
}

TEST(talk_that_goes_on_allocates_nothing_of_ours)
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);
    int64_t before;

    for (unsigned i = 0; i < 10; i++)
        net_talk(server, client, i);
    before = fl_memory_count();
    for (unsigned i = 0; i < 100; i++)
        net_talk(server, client, i);
    CHECK_INT(fl_memory_count(), before);
    net_end(client, server);
}

TEST(a_packet_that_would_not_arrive_is_not_sent)
{
    fl_socket *server = net_listen("inproc://x", NULL);
    fl_socket *client = net_connect("inproc://x");
    fl_packet *p;
    fl_peer nobody = {.size = 5};

    CHECK_OK(fl_packet_create(net_pool, &p));
    CHECK_FAILS(fl_socket_send(client, NULL, p), FLEET_EINVAL, "of 0 frames");
    CHECK(fl_packet_add(p, 4) != NULL);
    CHECK_FAILS(fl_socket_send(client, &nobody, p), FLEET_EINVAL, "one peer");
    CHECK_FAILS(fl_socket_send(server, NULL, p), FLEET_EINVAL, "many peers");
    CHECK_FAILS(fl_socket_send(server, &nobody, p), FLEET_ENOENT, "is gone");
    p->frame[0].size = (64 << 20) + 1; /* looked at before anything is read */
    CHECK_FAILS(fl_socket_send(client, NULL, p), FLEET_EINVAL,
                "frame 0 has 67108865 bytes, more than 67108864");
    fl_packet_drop(p);
    net_end(client, server);
}

/* --- fork() --------------------------------------------------------------- */

/* Run in a child; its failures are the test's. */
static void fork_and(void (*body)(fl_socket *, fl_socket *), fl_socket *server,
                     fl_socket *client)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        body(server, client);
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

static void use(fl_socket *server, fl_socket *client)
{
    char bound[FL_ADDRESS_SIZE];
    fl_packet none = {.n_frame = 0}, *p;

    CHECK_FAILS(fl_socket_receive(server, NULL, &p), FLEET_ESTATE,
                "before fork()");
    CHECK_STATUS(fl_socket_send(client, NULL, &none), FLEET_ESTATE);
    CHECK_STATUS(fl_socket_wait(&server, 1, NULL, 0), FLEET_ESTATE);
    CHECK_STATUS(fl_socket_bind(server, "inproc://y", -1, bound), FLEET_ESTATE);
    fl_socket_close(server, 1000);
    fl_socket_close(client, 1000);
}

/* Not under ThreadSanitizer. */
__attribute__((unused)) static void open_own(fl_socket *server,
                                             fl_socket *client)
{
    char bound[FL_ADDRESS_SIZE];

    fl_socket_close(server, 1000);
    fl_socket_close(client, 1000);
    net_close_pool();
    server = net_listen("tcp://127.0.0.1:0", bound);
    client = net_connect(bound);
    net_talk(server, client, 1);
    net_end(client, server);
}

static void check_child(void (*body)(fl_socket *, fl_socket *))
{
    char bound[FL_ADDRESS_SIZE];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", bound);
    fl_socket *client = net_connect(bound);

    net_talk(server, client, 1);
    fork_and(body, server, client);
    net_talk(server, client, 2);
    net_end(client, server);
}

TEST(a_child_process_has_none_of_its_parents_sockets)
{
    check_child(use);
}

TEST(a_child_process_may_open_sockets_of_its_own)
{
#ifdef __SANITIZE_THREAD__
    test_skip("ThreadSanitizer lets no child of a program with threads have "
              "its own");
#else
    check_child(open_own);
#endif
}

/* --- waiting -------------------------------------------------------------- */

/* As many as a job has lanes at most. */
TEST(a_thread_may_wait_for_1024_sockets)
{
    enum { N = 1024, FILES = N + 200 };
    static fl_socket *client[N];
    struct rlimit files;
    fl_packet *p;

    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    if (files.rlim_max < FILES)
        test_skip("%d descriptors are too few", (int)files.rlim_max);
    if (files.rlim_cur < FILES)
        files.rlim_cur = FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    fl_socket *server = net_listen("inproc://many", NULL);
    for (int i = 0; i < N; i++)
        client[i] = net_connect("inproc://many");
    CHECK_OK(fl_socket_wait(client, N, NULL, 0));
    net_talk(server, client[N - 1], 7);
    CHECK_OK(fl_socket_receive(client[N - 1], NULL, &p));
    for (int i = 0; i < N - 1; i++)
        fl_socket_close(client[i], 0);
    net_end(client[N - 1], server);
}

TEST(the_bell_wakes_who_waits_once)
{
    fl_socket *server = net_listen("inproc://x", NULL);
    int64_t begin = fl_now_ms();
    fl_wakeup bell;

    CHECK_OK(fl_wakeup_create(&bell));
    fl_wakeup_ring(&bell);
    fl_wakeup_ring(&bell);
    CHECK_OK(fl_socket_wait(&server, 1, &bell, NET_WAIT));
    CHECK(fl_now_ms() - begin < NET_WAIT);
    begin = fl_now_ms();
    CHECK_OK(fl_socket_wait(&server, 1, &bell, 50));
    CHECK(fl_now_ms() - begin >= 49);
    fl_wakeup_ring(&bell);
    fl_wakeup_clear(&bell);
    fl_wakeup_clear(&bell);
    begin = fl_now_ms();
    CHECK_OK(fl_socket_wait(NULL, 0, &bell, 50));
    CHECK(fl_now_ms() - begin >= 49);
    fl_wakeup_destroy(&bell);
    fl_wakeup_destroy(&bell);
    net_end(NULL, server);
}

static fl_wakeup the_bell;

static void ring_it(int signal)
{
    (void)signal;
    fl_wakeup_ring(&the_bell);
}

static void ignore(int signal)
{
    (void)signal;
}

TEST(a_signal_does_not_shorten_a_wait_but_its_handler_may_ring)
{
    fl_socket *server = net_listen("inproc://x", NULL);
    struct sigaction action = {.sa_handler = ignore};
    const struct timeval soon = {0, 20000}, never = {0, 0};
    const struct itimerval timer = {soon, soon}, off = {never, never};
    int64_t begin = fl_now_ms();

    CHECK_OK(fl_wakeup_create(&the_bell));
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK_OK(fl_socket_wait(&server, 1, &the_bell, 200));
    CHECK(fl_now_ms() - begin >= 199);
    action.sa_handler = ring_it;
    sigaction(SIGALRM, &action, NULL);
    CHECK_OK(fl_socket_wait(&server, 1, &the_bell, -1));
    setitimer(ITIMER_REAL, &off, NULL);
    fl_wakeup_destroy(&the_bell);
    net_end(NULL, server);
}

/* Has ZeroMQ's threads only: ours, of the host, would take the signal. */
TEST(the_hosts_signals_stay_with_the_hosts_threads)
{
    char path[300], line[200];
    fl_socket *server = net_listen("tcp://127.0.0.1:0", NULL);
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *one;
    int n_blocked = 0;

    CHECK(tasks != NULL);
    while ((one = readdir(tasks)) != NULL) {
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/status", one->d_name);
        f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (strncmp(line, "SigBlk:", 7) == 0 &&
                strtoull(line + 7, NULL, 16) & 1ull << (SIGTERM - 1))
                n_blocked++;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    CHECK(n_blocked >= 2); /* the reaper and one for input and output */
    net_end(NULL, server);
}

typedef struct owner {
    fl_socket *server;
    fl_wakeup bell;
    pthread_mutex_t lock;
    int n_queued, n_served; /* under the lock */
} owner;

/* Serves what comes and what is queued, until it served all. */
static void *serve(void *arg)
{
    owner *o = arg;
    bool over = false;

    while (!over) {
        fl_packet *p;
        fl_peer peer;

        CHECK_OK(fl_socket_wait(&o->server, 1, &o->bell, NET_WAIT));
        CHECK_OK(fl_socket_receive(o->server, &peer, &p));
        if (p)
            CHECK_OK(fl_socket_send(o->server, &peer, p));
        fl_packet_drop(p);
        pthread_mutex_lock(&o->lock);
        o->n_served += o->n_queued;
        o->n_queued = 0;
        over = o->n_served == 200;
        pthread_mutex_unlock(&o->lock);
    }
    return NULL;
}

TEST(a_thread_serves_peers_and_the_bell)
{
    char bound[FL_ADDRESS_SIZE];
    owner o = {.server = net_listen("tcp://127.0.0.1:0", bound)};
    fl_socket *client = net_connect(bound);
    pthread_t thread;

    CHECK_OK(fl_wakeup_create(&o.bell));
    pthread_mutex_init(&o.lock, NULL);
    CHECK_INT(pthread_create(&thread, NULL, serve, &o), 0);
    for (unsigned i = 0; i < 200; i++) {
        size_t size = i % 10 ? 100 : 300000;

        net_send(client, NULL, size, i);
        net_check_received(client, NULL, size, i);
        pthread_mutex_lock(&o.lock);
        o.n_queued++;
        pthread_mutex_unlock(&o.lock);
        fl_wakeup_ring(&o.bell);
    }
    pthread_join(thread, NULL);
    CHECK_INT(o.n_served, 200);
    fl_wakeup_destroy(&o.bell);
    net_end(client, o.server);
}

static void *open_and_close(void *arg)
{
    for (int i = 0; i < 50; i++) {
        char name[40], bound[FL_ADDRESS_SIZE];
        fl_socket *server, *client;

        snprintf(name, sizeof name, "inproc://%p-%d", arg, i);
        CHECK_OK(fl_socket_listen(&server));
        CHECK_OK(fl_socket_bind(server, i % 2 ? name : "tcp://127.0.0.1:0", -1,
                                bound));
        client = net_connect(bound);
        net_talk(server, client, (unsigned)i);
        fl_socket_close(client, 100);
        fl_socket_close(server, 0);
    }
    return NULL;
}

TEST(threads_may_open_and_close_sockets_at_once)
{
    pthread_t thread[4];
    int number[4];

    net_open_pool();
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, open_and_close, &number[i]),
                  0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    net_end(NULL, NULL);
}
