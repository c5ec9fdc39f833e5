/* ps_links_test.c - a connection that breaks, or goes silent, in the moment in
 * which its worker leaves: the job ends well. A process between worker and
 * server passes on what they say, and breaks the link. */
#define _GNU_SOURCE
#define SUITE ps_links
#include "ps_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/message.h"

/* --- the link ------------------------------------------------------------- */

typedef enum breach { RESETS, GOES_SILENT } breach;

enum { MOST_SEEN = 8 << 20 };

/* What the worker has said on this connection. */
typedef struct seen {
    char *bytes;
    size_t n;
} seen;

static bool has_left(const seen *s)
{
    static const char magic[] = "FLTM";
    const char *at = s->bytes, *end = s->bytes + s->n;

    while ((at = memmem(at, (size_t)(end - at), magic, 4)) && end - at >= 8) {
        if (at[5] == FL_MSG_STEP && at[6] & FL_MSG_LEAVE)
            return true;
        at += 4;
    }
    return false;
}

static int connect_server(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(inet_pton(AF_INET, "127.0.0.2", &a.sin_addr) == 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The side that is closed gets a reset. */
static void reset(int fd)
{
    const struct linger now = {1, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* Pass on what comes; false: a side has closed. */
static bool pass_on(int from, int to, seen *s)
{
    char bytes[1 << 16];
    ssize_t n = read(from, bytes, sizeof bytes);

    if (n <= 0)
        return false;
    if (s) {
        CHECK(s->n + (size_t)n <= MOST_SEEN);
        memcpy(s->bytes + s->n, bytes, (size_t)n);
        s->n += (size_t)n;
    }
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

/* One connection, to its end. True, if that is to be seen: the worker has said
 * that it leaves. The answer has come then, and is not passed on. */
static bool carry(int worker, int server, seen *s, bool look)
{
    struct pollfd p[2] = {{.fd = worker, .events = POLLIN},
                          {.fd = server, .events = POLLIN}};

    s->n = 0;
    while (poll(p, 2, -1) > 0) {
        if (p[0].revents && !pass_on(worker, server, look ? s : NULL))
            return false;
        if (look && has_left(s))
            return poll(p + 1, 1, -1) == 1;
        if (p[1].revents && !pass_on(server, worker, NULL))
            return false;
    }
    return false;
}

/* A connection at a time, as a job of one worker and one lane has them: that of
 * HELLO, and then the lane's. After the breach all is passed on, or nothing. */
static void be_the_link(int listening, int port, breach how, const ps_pipe *p)
{
    seen s = {.bytes = malloc(MOST_SEEN)};
    bool broken = false;

    CHECK(s.bytes != NULL);
    for (;;) {
        int worker = accept(listening, NULL, NULL);
        int server = connect_server(port);
        bool left;

        CHECK(worker >= 0);
        left = server >= 0 && carry(worker, server, &s, !broken);
        if (left) {
            broken = true;
            ps_tell(p);
            if (how == GOES_SILENT)
                pause();
        }
        reset(worker);
        if (server >= 0)
            reset(server);
    }
}

/* --- the job -------------------------------------------------------------- */

typedef struct link {
    char server[40]; /* its own address; workers have the link's */
} link_;

static void open_apart(ps_node *n, const fleet_options *o)
{
    const ps_job *j = n->job;
    const link_ *l = j->user;
    fleet_options own = *o;
    fleet_role role = *o->role;

    if (n->server)
        role.server_endpoints = l->server;
    own.role = &role;
    scene_open_as(&n->s, &own, &j->how);
    scene_data(&n->s, j->file[0], PS_BATCH, 1, 0);
}

static void leave_over(breach how, bool a_sync)
{
    link_ l;
    ps_job j = {.how = {.a_sync = a_sync},
                .file = {scene_file("a.txt", 100, 1)},
                .open = open_apart,
                .peer_ms = PS_SECOND,
                .no_listen_fd = true,
                .user = &l};
    const char *warning = "all but that this worker has left";
    bool warned;
    pid_t link;

    setenv("FLEET_TRANSPORT", "tcp", 1);
    ps_prepare(&j);
    snprintf(l.server, sizeof l.server, "127.0.0.2:%d", j.port[0]);
    link = test_fork();
    if (link == 0) {
        be_the_link(j.listen_fd[0], j.port[0], how, &j.held);
        _exit(0);
    }
    for (int i = 0; i < j.n_node; i++)
        ps_start(&j.node[i]);
    ps_hear(&j.held); /* it was broken */
    ps_check_all_end(&j);
    warned = strstr(ps_said(ps_worker(&j, 0)), warning) != NULL;
    CHECK(warned == (how == GOES_SILENT));
    kill(link, SIGKILL);
    waitpid(link, NULL, 0);
}

TEST(a_connection_that_breaks_while_its_worker_leaves_costs_nothing)
{
    leave_over(RESETS, false);
    leave_over(RESETS, true);
}

TEST(a_server_that_is_silent_while_its_worker_leaves_costs_nothing)
{
    leave_over(GOES_SILENT, false);
}
