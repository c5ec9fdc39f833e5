/* port.h - the way to --master. */
#pragma once

#include "net/own_address.h"

/* The way to "host:port", in numbers: where it goes, and by which address of
 * this machine. Nothing is sent. FLEET_EINVAL: no endpoint; FLEET_EIO: no
 * address is known, or no way to it. */
typedef struct run_route {
    fl_address to, from; /* IPv6 in brackets */
    int port;
} run_route;

fleet_status run_port_route(const char *endpoint, run_route *route);
