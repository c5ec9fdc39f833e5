/* helper.h - a second process of a benchmark: it does what it is told until it
 * is ended, and says first where it can be reached. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fleet/base.h>

#include "pairs.h"

typedef struct helper {
    pid_t pid;
    char address[128];
} helper;

static inline void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static inline void check(fleet_status status)
{
    must(status == FLEET_OK, fleet_last_error());
}

/* In the helper: where it is. */
static inline void helper_say(int say, const char *address)
{
    ssize_t n = (ssize_t)strlen(address) + 1;

    must(write(say, address, (size_t)n) == n, "a helper cannot write");
    close(say);
}

/* Before this process has threads or sockets: it forks. */
static inline helper helper_start(void (*run)(int say, void *arg), void *arg)
{
    helper h = {0};
    int fd[2];

    must(pipe(fd) == 0 && (h.pid = fork()) >= 0, "cannot fork");
    if (h.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd[0]);
        run(fd[1], arg);
        exit(0);
    }
    close(fd[1]);
    must(read(fd[0], h.address, sizeof h.address) > 0, "a helper has died");
    close(fd[0]);
    pair_watch(h.pid);
    return h;
}

static inline void helper_end(const helper *h)
{
    kill(h->pid, SIGKILL);
    waitpid(h->pid, NULL, 0);
}

/* A port that nobody has now. */
static inline void free_endpoint(char endpoint[64])
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(bind(fd, (struct sockaddr *)&a, n) == 0 &&
             getsockname(fd, (struct sockaddr *)&a, &n) == 0,
         "no port");
    close(fd);
    snprintf(endpoint, 64, "127.0.0.1:%d", ntohs(a.sin_port));
}

/* Is that row asked for? All are if none is named; "P8" names all of its
 * kinds. */
static inline int is_wanted(int argc, char **argv, const char *id)
{
    for (int i = 1; i < argc; i++) {
        size_t n = strlen(argv[i]);

        if (strncmp(argv[i], id, n) == 0 && (id[n] == 0 || id[n] == '-'))
            return 1;
    }
    return argc < 2;
}
