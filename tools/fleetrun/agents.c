/* agents.c - the listener for the agents of ranks, and a connection to each. */
#define _GNU_SOURCE
#include "agents.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/own_address.h"

enum { HELLO_DEADLINE_MS = 1000 };

static fleet_status listen_on_host(run_job *j)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof a.sun_path, "%s/ranks", j->sockets);
    snprintf(j->agent_address, sizeof j->agent_address, "unix:%s", a.sun_path);
    j->agent_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (j->agent_listener < 0 ||
        bind(j->agent_listener, (struct sockaddr *)&a, sizeof a) != 0 ||
        listen(j->agent_listener, SOMAXCONN) != 0)
        return fl_fail(FLEET_EIO, "cannot listen on %s: %s", a.sun_path,
                       strerror(errno));
    return FLEET_OK;
}

static fleet_status listen_to_hosts(run_job *j)
{
    const char *host = j->process[j->n_server].host;
    int port = 0;

    FL_TRY(fl_address_open(host, &port, true, &j->agent_listener));
    snprintf(j->agent_address, sizeof j->agent_address, "tcp:%.40s:%d", host,
             port);
    return FLEET_OK;
}

fleet_status run_agents_open(run_job *j)
{
    FL_TRY(run_folders_choose(j->agent_token));
    FL_TRY(run_job_has_hosts(j) ? listen_to_hosts(j) : listen_on_host(j));
    fcntl(j->agent_listener, F_SETFL, O_NONBLOCK);
    return FLEET_OK;
}

void run_agents_close(run_job *j)
{
    if (j->agent_listener >= 0)
        close(j->agent_listener);
}

/* False: it has not come whole within its deadline, or is of another job. */
static bool read_hello(const run_job *j, int fd, run_agent_hello *h)
{
    struct timeval limit = {.tv_sec = HELLO_DEADLINE_MS / 1000};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, h, sizeof *h, MSG_WAITALL) == sizeof *h &&
           memcmp(h->token, j->agent_token, sizeof h->token) == 0 &&
           h->rank >= 0 && h->rank < j->n_worker;
}

static bool send_pipes(int fd, const int ends[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(c), ends, 2 * sizeof(int));
    return sendmsg(fd, &m, MSG_NOSIGNAL) == 1;
}

/* On this machine the rank gets pipes, as every other process does. */
static bool give_pipes(run_job *j, run_process *p, int fd)
{
    int ends[2] = {-1, -1};
    bool ok = true;

    for (int i = 0; ok && i < 2; i++)
        ok = run_output_open(&p->output[i], p->log, run_job_shown(j, p, i + 1),
                             &ends[i]) == FLEET_OK;
    ok = ok && send_pipes(fd, ends);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return ok;
}

static bool accept_connection(run_job *j, int fd, bool ending)
{
    run_process *p;
    run_agent_hello h;

    if (!read_hello(j, fd, &h))
        return false;
    p = &j->process[j->n_server + h.rank];
    if (h.stream != RUN_AGENT_CONTROL) {
        const int i = h.stream == RUN_AGENT_STDERR;

        return !p->was_started && p->output[i].from < 0 &&
               run_output_adopt(&p->output[i], p->log,
                                run_job_shown(j, p, i + 1), fd) == FLEET_OK;
    }
    if (ending || p->was_started ||
        (!run_job_has_hosts(j) && !give_pipes(j, p, fd)))
        return false;
    p->agent = fd;
    p->pid = h.pid;
    p->was_started = true;
    return true;
}

void run_agents_accept(run_job *j, bool ending)
{
    int fd = accept4(j->agent_listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0 && !accept_connection(j, fd, ending))
        close(fd);
}

bool run_agents_has_message(const run_process *p)
{
    struct pollfd one = {.fd = p->agent, .events = POLLIN};

    return p->agent >= 0 && poll(&one, 1, 0) == 1;
}

bool run_agents_was_killed(const run_process *p)
{
    run_agent_message m;

    return recv(p->agent, &m, sizeof m, MSG_PEEK | MSG_DONTWAIT) == sizeof m &&
           m.event == RUN_RANK_ENDED && WIFSIGNALED(m.value);
}

bool run_agents_receive(run_process *p, run_agent_message *m)
{
    return recv(p->agent, m, sizeof *m, MSG_WAITALL) == sizeof *m;
}

void run_agents_signal(const run_process *p, int signal)
{
    unsigned char byte = (unsigned char)signal;

    send(p->agent, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void run_agents_release(run_process *p)
{
    if (p->agent >= 0)
        close(p->agent);
    p->agent = -1;
}
