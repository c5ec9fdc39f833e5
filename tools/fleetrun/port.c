/* port.c - what --master says. */
#include "port.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

static fleet_status read_endpoint(const char *endpoint, char host[FL_HOST_SIZE],
                                  int *port)
{
    const char *colon = strrchr(endpoint, ':');

    if (!colon || colon == endpoint || colon - endpoint >= FL_HOST_SIZE)
        return fl_fail(FLEET_EINVAL,
                       "--master: expected ip:port, got \"%.200s\"", endpoint);
    snprintf(host, FL_HOST_SIZE, "%.*s", (int)(colon - endpoint), endpoint);
    return run_options_integer("--master: its port", colon + 1, 1, 65535, port);
}

fleet_status run_port_route(const char *endpoint, run_route *route)
{
    char host[FL_HOST_SIZE];

    FL_TRY(read_endpoint(endpoint, host, &route->port));
    return fl_address_route(host, route->port, route->to, route->from);
}
