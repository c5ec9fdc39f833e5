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

/* "tcp://[fd00::1]:7000", or the same without a scheme. */
static fleet_status find_number(const char *text, int kind,
                                struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = kind};
    const char *host = strncmp(text, "tcp://", 6) == 0 ? text + 6 : text;
    const char *colon = strrchr(host, ':');
    fl_address bare;
    int e;

    snprintf(bare, sizeof bare, "%.*s", (int)(colon - host), host);
    if (*bare == '[') {
        memmove(bare, bare + 1, strlen(bare));
        bare[strcspn(bare, "]")] = 0;
    }
    e = getaddrinfo(bare, colon + 1, &hints, found);
    return e ? fl_fail(FLEET_EIO, "%s is no address: %s", text, gai_strerror(e))
             : FLEET_OK;
}

static fleet_status print_host(const struct sockaddr *a, socklen_t size,
                               fl_address host)
{
    char bare[FL_ADDRESS_SIZE - 2];

    if (getnameinfo(a, size, bare, sizeof bare, NULL, 0, NI_NUMERICHOST) != 0)
        return fl_fail(FLEET_EIO, "an address of this machine has no text");
    snprintf(host, FL_ADDRESS_SIZE, a->sa_family == AF_INET6 ? "[%s]" : "%s",
             bare);
    return FLEET_OK;
}

fleet_status fl_address_own(const char *numeric, fl_address own)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    struct addrinfo *to;
    bool ok;
    int fd;

    FL_TRY(find_number(numeric, SOCK_DGRAM, &to));
    fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ok = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
         getsockname(fd, (struct sockaddr *)&at, &size) == 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    if (!ok)
        return fl_fail(FLEET_EIO, "there is no way to %s: %s", numeric,
                       strerror(errno));
    return print_host((struct sockaddr *)&at, size, own);
}

static int port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)a)->sin6_port
                     : ((const struct sockaddr_in *)a)->sin_port);
}

fleet_status fl_address_listen(const char *host, int *port, int *fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    const int yes = 1;
    struct addrinfo *to;
    fl_address text;
    bool ok;

    snprintf(text, sizeof text, "%s:%d", host, *port);
    FL_TRY(find_number(text, SOCK_STREAM, &to));
    *fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* a port that was asked for may be in TIME_WAIT from the process before */
    ok = *fd >= 0 &&
         (!*port ||
          setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0) &&
         bind(*fd, to->ai_addr, to->ai_addrlen) == 0 &&
         setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
         listen(*fd, SOMAXCONN) == 0 &&
         getsockname(*fd, (struct sockaddr *)&at, &size) == 0;
    freeaddrinfo(to);
    if (ok) {
        *port = port_of(&at);
        return FLEET_OK;
    }
    fl_fail(FLEET_EIO, "cannot listen at %s: %s", text, strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return FLEET_EIO;
}
