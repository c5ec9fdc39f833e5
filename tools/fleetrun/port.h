/* port.h - sockets bound before any process learns its port, so that no port is
 * found free and then lost. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum { RUN_ROUTE_HOST = 64 };

/* A TCP socket bound to host:*port, where 0 becomes the port that was free. One
 * that does not listen reserves the port: only a process that binds the same
 * address with SO_REUSEADDR gets it, as rank 0 does to be met by the others. */
fleet_status run_port_open(const char *host, int *port, bool listens, int *fd);

/* The way to "host:port", in numbers: where it goes, and by which address of
 * this machine. Nothing is sent. FLEET_EINVAL: no endpoint; FLEET_EIO: no
 * address is known, or no way to it. */
typedef struct run_route {
    char to[RUN_ROUTE_HOST], from[RUN_ROUTE_HOST]; /* IPv6 in brackets */
    int port;
} run_route;

fleet_status run_port_route(const char *endpoint, run_route *route);

/* A host as getaddrinfo() wants it: IPv6 without its brackets. */
void run_port_bare_host(const char *host, char bare[256]);
