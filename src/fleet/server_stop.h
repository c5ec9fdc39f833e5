/* server_stop.h - servers that run in this process, so that
 * fleet_stop_server() and SIGTERM find them. */
#pragma once

#include <signal.h>

#include "ps/host/server.h"

typedef struct fl_server_pair {
    fl_server *server[2]; /* that and, if the process has them, the copies of
                             another one's lanes; NULL: none */
    bool catches;         /* SIGTERM */
    struct sigaction before;
} fl_server_pair;

/* Before they run. sigterm: that ends them, too, unless the host has a handler
 * of its own. FLEET_EUNSUPPORTED: there are too many. */
fleet_status fl_server_pair_begin(fl_server_pair *s, bool sigterm);

/* Another server takes the place of one of them, which has ended. NULL: none
 * does yet. */
fleet_status fl_server_pair_put(fl_server_pair *s, int which,
                                fl_server *server);

/* One of them, by any thread, while a pair has it: fl_server_pair_put() and
 * fl_server_pair_end() wait for this call. */
void fl_server_stop_one(fl_server *s, const char *why);

/* How often all servers of the process were stopped, and why the last time. Of
 * servers that run each such call is known when it is counted. */
unsigned fl_server_stops(const char **why);

/* When they have ended: afterwards no call stops them any more. */
void fl_server_pair_end(fl_server_pair *s);
