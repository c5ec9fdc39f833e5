/* node_link.h - the socket by which a fleetrun of several nodes talks to the
 * others: it listens at --master, or is connected to it, with keys of the job
 * or without. */
#pragma once

#include "net/socket.h"
#include "node_message.h"
#include "port.h"

typedef struct run_node_link {
    fl_packet_pool *pool;
    fl_keys *keys;
    fl_guard *guard;
    fl_socket *socket; /* NULL: it is closed */
} run_node_link;

/* keys: the folder, or NULL. fd: a socket that listens there, which is the
 * link's, or closed. With the key of server 0; the key of the first worker from
 * `first` on, and before `end`, whose secret is there. Close follows in every
 * case. */
fleet_status run_node_link_listen(run_node_link *l, const run_route *route,
                                  const char *keys, int fd);
fleet_status run_node_link_connect(run_node_link *l, const run_route *route,
                                   const char *keys, int first, int end);
void run_node_link_close(run_node_link *l, int linger_ms);

/* A message for a peer, or for the one that listens (NULL). A peer that is gone
 * is no failure: it may come again, or is silent. */
fleet_status run_node_link_send(run_node_link *l, const fl_peer *to,
                                const run_node_message *m);

/* The next message, with its text, which the caller frees; *text NULL: none
 * has come. What is no message is dropped. */
fleet_status run_node_link_receive(run_node_link *l, fl_peer *from,
                                   run_node_message *m, char **text);

/* Whether that peer may be a node: a subscriber's key, or fleetctl's, is not
 * good for this. */
bool run_node_link_lets_in(const run_node_link *l, const fl_peer *from);

/* Until something has come, or ms are over. */
fleet_status run_node_link_wait(run_node_link *l, int ms);
