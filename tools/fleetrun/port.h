/* port.h - sockets bound before any process learns its port, so that no port is
 * found free and then lost. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* A TCP socket bound to host:*port, where 0 becomes the port that was free. One
 * that does not listen reserves the port: only a process that binds the same
 * address with SO_REUSEADDR gets it, as rank 0 does to be met by the others. */
fleet_status run_port_open(const char *host, int *port, bool listens, int *fd);

/* A host as getaddrinfo() wants it: IPv6 without its brackets. */
void run_port_bare_host(const char *host, char bare[256]);
