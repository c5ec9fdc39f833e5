/* rank_agent.c - connect to the keeper, start the rank, report its end. One
 * thread waits for the keeper, the rank's end and mpirun's signals. */
#define _GNU_SOURCE
#include "rank_agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "environment.h"
#include "keeper.h"
#include "net/own_address.h"
#include "spawn.h"

enum { CONNECT_MS = 10000 };

typedef struct rank_agent {
    int rank, local_rank;
    int control, signals;
    pid_t pid;            /* 0: not started, or it has ended */
    bool ended_by_mpirun; /* mpirun has sent it a signal */
    bool over;
} rank_agent;

/* --- to the keeper -------------------------------------------------------- */

static int connect_socket(int family, const struct sockaddr *to, socklen_t size)
{
    struct timeval limit = {.tv_sec = CONNECT_MS / 1000};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) /* of connect(), too */
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd >= 0 && connect(fd, to, size) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return connect_socket(AF_UNIX, (struct sockaddr *)&address, sizeof address);
}

/* "IP:PORT" */
static int connect_tcp(const char *where)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
    const char *colon = strrchr(where, ':');
    char host[64], bare[FL_HOST_SIZE];
    int fd = -1;

    if (!colon)
        return -1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    fl_address_bare_host(host, bare);
    if (getaddrinfo(bare, colon + 1, &wanted, &found) != 0)
        return -1;
    fd = connect_socket(found->ai_family, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return fd;
}

/* Connect and send the hello; -1: it did not work. */
static int connect_agent(const rank_agent *a, run_agent_stream stream)
{
    const char *where = getenv(RUN_AGENT_ADDRESS),
               *token = getenv(RUN_AGENT_TOKEN);
    run_agent_hello h = {
        .stream = (int)stream, .rank = a->rank, .pid = getpid()};
    int fd = -1;

    if (!where || !token)
        return -1;
    snprintf(h.token, sizeof h.token, "%s", token);
    if (strncmp(where, "unix:", 5) == 0)
        fd = connect_unix(where + 5);
    else if (strncmp(where, "tcp:", 4) == 0)
        fd = connect_tcp(where + 4);
    if (fd >= 0 && send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool receive_pipes(int fd, int ends[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *c;

    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != 1)
        return false;
    c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(ends, CMSG_DATA(c), 2 * sizeof(int));
    return true;
}

/* The ends of the rank's stdout and stderr: the keeper sends pipes to an
 * agent on its own machine; on another one they are connections. */
static bool connect_to_keeper(rank_agent *a, int ends[2])
{
    const char *where = getenv(RUN_AGENT_ADDRESS);

    if (where && strncmp(where, "tcp:", 4) == 0) {
        ends[0] = connect_agent(a, RUN_AGENT_STDOUT);
        ends[1] = connect_agent(a, RUN_AGENT_STDERR);
        a->control = connect_agent(a, RUN_AGENT_CONTROL);
        return ends[0] >= 0 && ends[1] >= 0 && a->control >= 0;
    }
    a->control = connect_agent(a, RUN_AGENT_CONTROL);
    return a->control >= 0 && receive_pipes(a->control, ends);
}

static void send_event(const rank_agent *a, run_agent_event event, int value)
{
    run_agent_message m = {(int)event, value};

    if (send(a->control, &m, sizeof m, MSG_NOSIGNAL) != sizeof m)
        return; /* the keeper has gone: read_control() will see it */
}

/* --- the rank ------------------------------------------------------------- */

/* The value of the first variable that is set; -1: none is. */
static int find_number(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names))
            return atoi(getenv(*names));
    return -1;
}

static char **prepare_rank(void *user, char **command)
{
    const rank_agent *a = user;

    unsetenv(RUN_AGENT_ADDRESS);
    unsetenv(RUN_AGENT_TOKEN);
    run_environment_set_rank(a->rank, a->local_rank);
    return command;
}

static void start_rank(rank_agent *a, char **command, const int ends[2])
{
    run_spawn how = {.command = command,
                     .to = {ends[0], ends[1]},
                     .inherit = true,
                     .keep = -1,
                     .prepare = prepare_rank,
                     .user = a};
    int error;

    if (run_spawn_start(&how, &a->pid, &error) == FLEET_OK) {
        send_event(a, RUN_RANK_STARTED, a->pid);
        return;
    }
    if (a->pid > 0)
        waitpid(a->pid, NULL, 0);
    a->pid = 0;
    send_event(a, RUN_RANK_NOT_STARTED, error ? error : EAGAIN);
}

static void send_signal(const rank_agent *a, int signal)
{
    if (a->pid <= 0)
        return;
    kill(-a->pid, signal);
    kill(-a->pid, SIGCONT);
}

/* With the rank ends what it started, also what has left its process group. */
static void reap_children(rank_agent *a)
{
    siginfo_t info = {0};
    int status;

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0) {
        if (info.si_pid != a->pid) {
            waitpid(info.si_pid, NULL, 0); /* an orphan that was adopted */
        } else {
            kill(-a->pid, SIGKILL);
            waitpid(a->pid, &status, 0);
            a->pid = 0;
            run_keeper_kill_children();
            send_event(a,
                       a->ended_by_mpirun ? RUN_RANK_ENDED_BY_MPIRUN
                                          : RUN_RANK_ENDED,
                       status);
        }
        info = (siginfo_t){0};
    }
}

/* --- the loop ------------------------------------------------------------- */

static void read_signals(rank_agent *a)
{
    struct signalfd_siginfo info;

    while (read(a->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            reap_children(a);
            continue;
        }
        a->ended_by_mpirun = true;
        send_signal(a, (int)info.ssi_signo);
    }
}

/* A signal for the rank; the connection's end: this agent is released. */
static void read_control(rank_agent *a)
{
    unsigned char signal;

    if (recv(a->control, &signal, 1, 0) == 1)
        send_signal(a, signal);
    else
        a->over = true;
}

static void watch_rank(rank_agent *a)
{
    struct pollfd polled[2] = {{.fd = a->control, .events = POLLIN},
                               {.fd = a->signals, .events = POLLIN}};

    while (!a->over) {
        if (poll(polled, 2, -1) < 0)
            continue;
        if (polled[1].revents)
            read_signals(a);
        if (polled[0].revents)
            read_control(a);
    }
    send_signal(a, SIGKILL);
    run_keeper_kill_children();
}

int run_rank_agent(char **command)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK", NULL};
    static const char *const local_ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                              "MPI_LOCALRANKID", NULL};
    rank_agent a = {.rank = find_number(ranks),
                    .local_rank = find_number(local_ranks)};
    sigset_t signals = run_keeper_signals();
    int ends[2];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "fleetrun-rank");
    sigprocmask(SIG_SETMASK, &signals, NULL);
    a.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a.signals < 0 || a.rank < 0 || !command[0] ||
        !connect_to_keeper(&a, ends)) {
        dprintf(2, "fleetrun: " RUN_AGENT_FLAG " is for fleetrun itself, which "
                   "cannot be reached here\n");
        return 1;
    }
    if (a.local_rank < 0)
        a.local_rank = a.rank;
    start_rank(&a, command, ends);
    close(ends[0]);
    close(ends[1]);
    watch_rank(&a);
    return 0;
}
