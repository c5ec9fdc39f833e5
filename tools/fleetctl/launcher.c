/* launcher.c - a datagram to fleetrun, and its answer. */
#include "launcher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "../fleetrun/requests.h"
#include "fleet/role/env.h"

enum { ANSWER_MS = 20000 };

static fleet_status find_launcher(struct sockaddr_un *at)
{
    const char *folder = fl_variable("FLEET_IPC_FOLDER");
    int n;

    if (!folder)
        return fl_fail(FLEET_ENOENT,
                       "add: FLEET_IPC_FOLDER is not set, so no fleetrun can "
                       "start a server: expected --pid of a process that "
                       "fleetrun has started on this machine, or the address "
                       "of a server that was started with FLEET_JOIN");
    at->sun_family = AF_UNIX;
    n = snprintf(at->sun_path, sizeof at->sun_path, "%s/%s", folder,
                 RUN_REQUESTS);
    return n < (int)sizeof at->sun_path
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL, "FLEET_IPC_FOLDER: %s is too long",
                         folder);
}

/* A name of the kernel's choice, to which the answer goes. */
static fleet_status connect_to(int fd, const struct sockaddr_un *at)
{
    const struct sockaddr_un own = {.sun_family = AF_UNIX};

    if (fd >= 0 &&
        bind(fd, (const struct sockaddr *)&own, sizeof own.sun_family) == 0 &&
        connect(fd, (const struct sockaddr *)at, sizeof *at) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ENOENT,
                   "no fleetrun can be asked at %s: %s: expected that of a job "
                   "that runs on this machine, of this user",
                   at->sun_path, strerror(errno));
}

static fleet_status exchange(int fd, const char *words,
                             char answer[RUN_REQUEST_SIZE])
{
    const struct timeval most = {.tv_sec = ANSWER_MS / 1000};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n = -1;

    /* one that is stopped may have no room for it */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 &&
        send(fd, words, strlen(words), MSG_NOSIGNAL) >= 0 &&
        poll(&p, 1, ANSWER_MS) == 1)
        n = recv(fd, answer, RUN_REQUEST_SIZE - 1, MSG_DONTWAIT);
    if (n < 0)
        return fl_fail(FLEET_ETIMEDOUT, "fleetrun does not answer");
    answer[n] = 0;
    return FLEET_OK;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static fleet_status ask(const char *word, int server,
                        char answer[RUN_REQUEST_SIZE])
{
    struct sockaddr_un at = {0};
    char words[40];
    fleet_status status;
    int fd;

    FL_TRY(find_launcher(&at));
    snprintf(words, sizeof words, "%s %d", word, server);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    status = connect_to(fd, &at);
    if (status == FLEET_OK)
        status = exchange(fd, words, answer);
    if (fd >= 0)
        close(fd);
    FL_TRY(status);
    if (begins(answer, RUN_REQUEST_DONE))
        return FLEET_OK;
    if (begins(answer, RUN_REQUEST_OVER))
        return fl_fail(FLEET_ECHILD, "fleetrun: %s",
                       answer + strlen(RUN_REQUEST_OVER));
    return fl_fail(FLEET_ESTATE, "fleetrun: %s", answer);
}

static fleet_status ask_where(const char *word, int server, fl_address address)
{
    char answer[RUN_REQUEST_SIZE];
    const char *at = answer + strlen(RUN_REQUEST_DONE);

    FL_TRY(ask(word, server, answer));
    return fl_read_endpoint("fleetrun", at, strlen(at), address);
}

fleet_status launcher_start(int server, fl_address address)
{
    return ask_where(RUN_REQUEST_START, server, address);
}

fleet_status launcher_look(int server, fl_address address)
{
    return ask_where(RUN_REQUEST_LOOK, server, address);
}

fleet_status launcher_joined(int server)
{
    char answer[RUN_REQUEST_SIZE];

    return ask(RUN_REQUEST_JOINED, server, answer);
}
