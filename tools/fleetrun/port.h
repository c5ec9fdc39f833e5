/* port.h - sockets bound before anybody is told of their ports, so that no port
 * is found free and then lost. */
#ifndef FLEETRUN_PORT_H
#define FLEETRUN_PORT_H

#include <stdbool.h>

#include "base/error.h"

/* A TCP socket bound to host:*port, where 0 becomes the port that was free. If
 * it does not listen it keeps the port from others, but for who has the same
 * address and SO_REUSEADDR: a rank 0 that others are to meet. */
fleet_status run_port_open(const char *host, int *port, bool listens, int *fd);

#endif
