/* own_address.h - addresses of this machine: by which one another is reached,
 * and a socket at one. */
#pragma once

#include "net/resolve.h"

enum { FL_HOST_SIZE = 256 }; /* of a name */

/* A host as getaddrinfo() wants it: IPv6 without its brackets. */
void fl_address_bare_host(const char *host, char bare[FL_HOST_SIZE]);

/* The way to a host's port, in numbers, "10.0.0.1" or "[fd00::1]": where it
 * goes, and by which address of this machine. Nothing is sent. FLEET_EIO: no
 * address is known, or no way to it. */
fleet_status fl_address_route(const char *host, int port, fl_address to,
                              fl_address own);

/* A TCP socket bound to host:*port, where 0 becomes the port that was free. One
 * that does not listen reserves the port: only a process that binds the same
 * address with SO_REUSEADDR gets it. FLEET_EIO names it, and *fd is -1. */
fleet_status fl_address_open(const char *host, int *port, bool listens,
                             int *fd);
