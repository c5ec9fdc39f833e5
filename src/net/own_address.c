/* own_address.c - what the kernel says of this machine's addresses. */
#define _GNU_SOURCE
#include "net/own_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fl_address_bare_host(const char *host, char bare[FL_HOST_SIZE])
{
    bool in_brackets = *host == '[';
    size_t n = strlen(host) - (in_brackets && host[strlen(host) - 1] == ']');

    snprintf(bare, FL_HOST_SIZE, "%.*s", (int)n - in_brackets,
             host + in_brackets);
}

static fleet_status resolve_host(const char *host, int port,
                                 struct addrinfo **found)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    char service[8], bare[FL_HOST_SIZE];
    int e;

    snprintf(service, sizeof service, "%d", port);
    fl_address_bare_host(host, bare);
    e = getaddrinfo(bare, service, &wanted, found);
    if (e)
        return fl_fail(FLEET_EIO, "%s is no address: %s", host,
                       gai_strerror(e));
    return FLEET_OK;
}

static bool name_number(const struct sockaddr *a, socklen_t size,
                        fl_address name)
{
    char bare[FL_ADDRESS_SIZE - 2];

    if (getnameinfo(a, size, bare, sizeof bare, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    snprintf(name, FL_ADDRESS_SIZE, a->sa_family == AF_INET6 ? "[%s]" : "%s",
             bare);
    return true;
}

fleet_status fl_address_route(const char *host, int port, fl_address to,
                              fl_address own)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    struct addrinfo *found;
    bool ok;
    int fd;

    FL_TRY(resolve_host(host, port, &found));
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ok = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
         getsockname(fd, (struct sockaddr *)&at, &size) == 0 &&
         name_number((struct sockaddr *)&at, size, own) &&
         name_number(found->ai_addr, found->ai_addrlen, to);
    if (!ok)
        fl_fail(FLEET_EIO, "there is no way to %s:%d: %s", host, port,
                strerror(errno));
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return ok ? FLEET_OK : FLEET_EIO;
}

static int port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)a)->sin6_port
                     : ((const struct sockaddr_in *)a)->sin_port);
}

static bool allow_again(int fd)
{
    const int yes = 1;

    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0;
}

/* A port that was asked for may still be in TIME_WAIT from the process before;
 * a free one must not be shared before it is bound, and is asked for by the
 * next process. */
static bool bind_socket(int fd, const struct addrinfo *to, bool listens,
                        int *port)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;

    if (*port && !allow_again(fd))
        return false;
    if (bind(fd, to->ai_addr, to->ai_addrlen) != 0 ||
        (listens && listen(fd, SOMAXCONN) != 0) || !allow_again(fd) ||
        getsockname(fd, (struct sockaddr *)&bound, &size) != 0)
        return false;
    *port = port_of(&bound);
    return true;
}

fleet_status fl_address_open(const char *host, int *port, bool listens, int *fd)
{
    struct addrinfo *to;
    bool ok;

    *fd = -1;
    FL_TRY(resolve_host(host, *port, &to));
    *fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok = *fd >= 0 && bind_socket(*fd, to, listens, port);
    if (!ok)
        fl_fail(FLEET_EIO, "cannot listen on %s:%d: %s", host, *port,
                strerror(errno));
    freeaddrinfo(to);
    if (ok)
        return FLEET_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return FLEET_EIO;
}
