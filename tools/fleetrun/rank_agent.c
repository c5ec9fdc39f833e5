/* rank.c - see rank.h. One thread: what fleetrun says, the rank's end, signals
 * of mpirun's. */
#define _GNU_SOURCE
#include "rank.h"

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

#include "guard.h"
#include "spawn.h"
#include "tell.h"

enum { CONNECT_MS = 10000 };

typedef struct watched {
    int rank, local_rank;
    int control, signals;
    pid_t pid;  /* 0: not started, or it has ended */
    bool asked; /* by mpirun, to end */
    bool over;
} watched;

/* --- to fleetrun -----------------------------------------------------------
 */

static int connect_to(int family, const struct sockaddr *to, socklen_t size)
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
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    return connect_to(AF_UNIX, (struct sockaddr *)&a, sizeof a);
}

/* "IP:PORT" */
static int connect_tcp(const char *where)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
    const char *colon = strrchr(where, ':');
    char host[64];
    int fd = -1;

    if (!colon)
        return -1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    if (getaddrinfo(host, colon + 1, &wanted, &found) != 0)
        return -1;
    fd = connect_to(found->ai_family, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return fd;
}

/* Connect and say hello; -1: it did not work. */
static int reach(const watched *w, run_stream stream)
{
    const char *where = getenv(RUN_RANK_REACH), *token = getenv(RUN_RANK_TOKEN);
    run_hello h = {.stream = (int)stream, .rank = w->rank, .pid = getpid()};
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

static bool receive_ends(int fd, int ends[2])
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

/* On fleetrun's machine it sends the rank's stdout and stderr; on another one
 * they are connections. */
static bool join(watched *w, int ends[2])
{
    const char *where = getenv(RUN_RANK_REACH);

    if (where && strncmp(where, "tcp:", 4) == 0) {
        ends[0] = reach(w, RUN_OUT);
        ends[1] = reach(w, RUN_ERR);
        w->control = reach(w, RUN_CONTROL);
        return ends[0] >= 0 && ends[1] >= 0 && w->control >= 0;
    }
    w->control = reach(w, RUN_CONTROL);
    return w->control >= 0 && receive_ends(w->control, ends);
}

static void tell(const watched *w, run_news news, int value)
{
    run_message m = {(int)news, value};

    if (send(w->control, &m, sizeof m, MSG_NOSIGNAL) != sizeof m)
        return; /* it has gone: the connection's end says so */
}

/* --- the rank --------------------------------------------------------------
 */

static int number(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names))
            return atoi(getenv(*names));
    return -1;
}

static char **prepare(void *user, char **command)
{
    const watched *w = user;

    unsetenv(RUN_RANK_REACH);
    unsetenv(RUN_RANK_TOKEN);
    run_tell_rank(w->rank, w->local_rank);
    return command;
}

static void start(watched *w, char **command, const int ends[2])
{
    run_spawn how = {.command = command,
                     .to = {ends[0], ends[1]},
                     .inherit = true,
                     .keep = -1,
                     .prepare = prepare,
                     .user = w};
    int error;

    if (run_spawn_it(&how, &w->pid, &error) == FLEET_OK) {
        tell(w, RUN_STARTED, w->pid);
        return;
    }
    if (w->pid > 0)
        waitpid(w->pid, NULL, 0);
    w->pid = 0;
    tell(w, RUN_NOT_STARTED, error ? error : EAGAIN);
}

static void send_signal(const watched *w, int signal)
{
    if (w->pid <= 0)
        return;
    kill(-w->pid, signal);
    kill(-w->pid, SIGCONT);
}

/* With the rank ends what it started, also what has left its group. */
static void take_end(watched *w)
{
    siginfo_t info = {0};
    int status;

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0) {
        if (info.si_pid != w->pid) {
            waitpid(info.si_pid, NULL, 0); /* an orphan that was adopted */
        } else {
            kill(-w->pid, SIGKILL);
            waitpid(w->pid, &status, 0);
            w->pid = 0;
            run_guard_kill_children();
            tell(w, w->asked ? RUN_WAS_ASKED : RUN_ENDED, status);
        }
        info = (siginfo_t){0};
    }
}

/* --- the loop --------------------------------------------------------------
 */

static void take_signals(watched *w)
{
    struct signalfd_siginfo info;

    while (read(w->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            take_end(w);
            continue;
        }
        w->asked = true;
        send_signal(w, (int)info.ssi_signo);
    }
}

/* Its end lets this process go; a rank that runs has to go, too. */
static void take_orders(watched *w)
{
    unsigned char signal;

    if (recv(w->control, &signal, 1, 0) == 1)
        send_signal(w, signal);
    else
        w->over = true;
}

static void watch(watched *w)
{
    struct pollfd polled[2] = {{.fd = w->control, .events = POLLIN},
                               {.fd = w->signals, .events = POLLIN}};

    while (!w->over) {
        if (poll(polled, 2, -1) < 0)
            continue;
        if (polled[1].revents)
            take_signals(w);
        if (polled[0].revents)
            take_orders(w);
    }
    send_signal(w, SIGKILL);
    run_guard_kill_children();
}

int run_rank(char **command)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK", NULL};
    static const char *const local_ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                              "MPI_LOCALRANKID", NULL};
    watched w = {.rank = number(ranks), .local_rank = number(local_ranks)};
    sigset_t signals = run_guard_signals();
    int ends[2];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "fleetrun-rank");
    sigprocmask(SIG_SETMASK, &signals, NULL);
    w.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w.signals < 0 || w.rank < 0 || !command[0] || !join(&w, ends)) {
        dprintf(2, "fleetrun: " RUN_RANK_FLAG " is for fleetrun itself, which "
                   "cannot be reached here\n");
        return 1;
    }
    if (w.local_rank < 0)
        w.local_rank = w.rank;
    start(&w, command, ends);
    close(ends[0]);
    close(ends[1]);
    watch(&w);
    return 0;
}
