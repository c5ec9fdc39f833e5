/* ps_reached_test.c - a worker needs no more of a server than an address that
 * leads to it: a forwarded port, IPv6, a name that stands for IPv6 alone. */
#define _GNU_SOURCE
#define SUITE ps_reached
#include "ps_kit.h"
#include "test.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- a forwarded port ----------------------------------------------------- */

/* 127.0.0.host */
static int local_socket(struct sockaddr_in *at, int host, int port)
{
    const in_addr_t net = INADDR_LOOPBACK & ~0xFFu;

    *at = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(net | (unsigned)host)};
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Connections of clients at even places, of the server next to them. */
enum { MOST_FD = 64 };

static void pass_on(struct pollfd *from, struct pollfd *to)
{
    char bytes[65536];
    ssize_t n = recv(from->fd, bytes, sizeof bytes, 0);

    if (n > 0 && send(to->fd, bytes, (size_t)n, MSG_NOSIGNAL) == n)
        return;
    close(from->fd);
    close(to->fd);
    from->fd = to->fd = -1;
}

static void forward_to(int listener, int port)
{
    struct pollfd fd[1 + MOST_FD] = {{.fd = listener, .events = POLLIN}};
    struct sockaddr_in at;
    int n = 1;

    for (;;) {
        poll(fd, (nfds_t)n, -1);
        for (int i = 1; i < n; i++)
            if (fd[i].fd >= 0 && fd[i].revents)
                pass_on(&fd[i], &fd[((i - 1) ^ 1) + 1]);
        if (!fd[0].revents || n > MOST_FD)
            continue;
        fd[n++] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
        fd[n++] = (struct pollfd){local_socket(&at, 2, port), POLLIN, 0};
        if (connect(fd[n - 1].fd, (struct sockaddr *)&at, sizeof at) != 0)
            _exit(1);
    }
}

/* Its port. */
static int listen_at(int host, int *fd)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;

    *fd = local_socket(&at, host, 0);
    CHECK(bind(*fd, (struct sockaddr *)&at, size) == 0 &&
          listen(*fd, 16) == 0 &&
          getsockname(*fd, (struct sockaddr *)&at, &size) == 0);
    return ntohs(at.sin_port);
}

/* The worker knows 127.0.0.1 alone, the server listens at 127.0.0.2. */
TEST(a_worker_trains_through_a_forwarded_port)
{
    ps_job j = {.file = {scene_file("a.txt", 200, 1)}};
    int fd;

    setenv("FLEET_TRANSPORT", "tcp", 1);
    ps_prepare(&j);
    close(j.listen_fd[0]);
    j.port[0] = listen_at(2, &j.listen_fd[0]);
    snprintf(j.endpoints, sizeof j.endpoints, "127.0.0.2:%d", j.port[0]);
    ps_start(ps_server(&j, 0));
    snprintf(j.endpoints, sizeof j.endpoints, "127.0.0.1:%d",
             listen_at(1, &fd));
    if (test_fork() == 0)
        forward_to(fd, j.port[0]);
    close(fd);
    ps_start(ps_worker(&j, 0));
    ps_check_all_end(&j);
}

/* --- IPv6 ----------------------------------------------------------------- */

TEST(a_job_trains_on_ipv6)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6,
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in6 at = any;
    socklen_t size = sizeof at;
    ps_job j = {.lanes = 2, .file = {scene_file("a.txt", 200, 1)}};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0)
        test_skip("this machine has no IPv6");
    CHECK(listen(fd, 16) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    setenv("FLEET_TRANSPORT", "tcp", 1);
    ps_prepare(&j);
    close(j.listen_fd[0]);
    j.listen_fd[0] = fd;
    snprintf(j.endpoints, sizeof j.endpoints, "[::1]:%d", ntohs(at.sin6_port));
    ps_start(ps_server(&j, 0));
    ps_start(ps_worker(&j, 0));
    ps_check_all_end(&j);
}
