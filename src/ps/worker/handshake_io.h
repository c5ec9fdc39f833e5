/* handshake_io.h - a handshake (handshake.h) over sockets of its own. */
#pragma once

#include "net/socket.h"
#include "ps/worker/handshake.h"

/* Wait until all servers have answered, or one will not: as
 * fl_handshake_result(). What the options say of the process is filled in. */
fleet_status fl_hello(const fl_hello_options *o, fl_job_lanes *lanes);

/* A socket to each of the lanes, in their order, then to each replica: *n of
 * them, also if it fails; fl_free() the array. */
fleet_status fl_hello_connect(const fl_job_lanes *lanes, int n_server,
                              const fl_keys *keys, fl_socket ***sockets,
                              int *n);

/* The lane of that number among those sockets, n_lane first copies and then
 * the second ones, is in another process from now on, where the text says: its
 * socket is another one. name: of a server whose process the text says, for
 * messages. */
fleet_status fl_hello_reconnect(fl_socket **sockets, int n_lane, int number,
                                const char *text, fl_address *address,
                                int n_server, const fl_keys *keys,
                                bool tcp_only, char name[FL_LANE_NAME]);

/* The client gets the lanes, named after their servers' addresses. */
fleet_status fl_hello_add_lanes(const fl_job_lanes *lanes, fl_address *address,
                                int n_server, fl_client *client);
