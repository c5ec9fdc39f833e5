/* port.c - resolve an address and bind a socket to it. */
#define _GNU_SOURCE
#include "port.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "options.h"

void run_port_bare_host(const char *host, char bare[256])
{
    bool in_brackets = *host == '[';
    size_t n = strlen(host) - (in_brackets && host[strlen(host) - 1] == ']');

    snprintf(bare, 256, "%.*s", (int)n - in_brackets, host + in_brackets);
}

static fleet_status resolve_host(const char *host, int port,
                                 struct addrinfo **found)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    char service[8], bare[256];
    int e;

    snprintf(service, sizeof service, "%d", port);
    run_port_bare_host(host, bare);
    e = getaddrinfo(bare, service, &wanted, found);
    if (e)
        return fl_fail(FLEET_EIO, "%s is no address: %s", host,
                       gai_strerror(e));
    return FLEET_OK;
}

static int port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)a)->sin6_port
                     : ((const struct sockaddr_in *)a)->sin_port);
}

static bool bind_socket(int fd, const struct addrinfo *to, bool listens,
                        int *port)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    const int yes = 1;

    /* a port that was asked for may still be in TIME_WAIT from the last job; a
     * free one must not be shared before it is bound */
    if (*port && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes))
        return false;
    if (bind(fd, to->ai_addr, to->ai_addrlen) != 0 ||
        (listens && listen(fd, SOMAXCONN) != 0) ||
        getsockname(fd, (struct sockaddr *)&bound, &size) != 0)
        return false;
    if (!listens && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes))
        return false;
    *port = port_of(&bound);
    return true;
}

fleet_status run_port_open(const char *host, int *port, bool listens, int *fd)
{
    struct addrinfo *to;
    fleet_status status = FLEET_OK;

    FL_TRY(resolve_host(host, *port, &to));
    *fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || !bind_socket(*fd, to, listens, port))
        status = fl_fail(FLEET_EIO, "cannot listen on %s:%d: %s", host, *port,
                         strerror(errno));
    freeaddrinfo(to);
    return status;
}

/* --- the way to another node ---------------------------------------------- */

static fleet_status read_endpoint(const char *endpoint, char host[256],
                                  int *port)
{
    const char *colon = strrchr(endpoint, ':');

    if (!colon || colon == endpoint || colon - endpoint >= 256)
        return fl_fail(FLEET_EINVAL,
                       "--master: expected ip:port, got \"%.200s\"", endpoint);
    snprintf(host, 256, "%.*s", (int)(colon - endpoint), endpoint);
    return run_options_integer("--master: its port", colon + 1, 1, 65535, port);
}

static bool name_number(const struct sockaddr *a, socklen_t size,
                        char name[RUN_ROUTE_HOST])
{
    char bare[RUN_ROUTE_HOST - 2];

    if (getnameinfo(a, size, bare, sizeof bare, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    snprintf(name, RUN_ROUTE_HOST, a->sa_family == AF_INET6 ? "[%s]" : "%s",
             bare);
    return true;
}

fleet_status run_port_route(const char *endpoint, run_route *route)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    struct addrinfo *to;
    char host[256];
    bool ok;
    int fd;

    FL_TRY(read_endpoint(endpoint, host, &route->port));
    FL_TRY(resolve_host(host, route->port, &to));
    fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ok = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
         getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
         name_number((struct sockaddr *)&own, size, route->from) &&
         name_number(to->ai_addr, to->ai_addrlen, route->to);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    if (!ok)
        return fl_fail(FLEET_EIO, "there is no way to --master %.200s: %s",
                       endpoint, strerror(errno));
    return FLEET_OK;
}
