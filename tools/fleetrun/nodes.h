/* nodes.h - how the fleetruns of several nodes find each other by --master: the
 * one that has that address, or binds its port first, serves; the others ask
 * it. node_table.h has what is said to whom, net/roster_message.h how.
 *
 * With keys the server has the key of server 0 of the job, and who asks that of
 * a worker. Nothing of it is left when the job's processes start: they have the
 * lists that a user could have given. */
#pragma once

#include "base/error.h"
#include "options.h"

typedef struct run_nodes run_nodes;

/* Come to the others, and wait for them: which node this is. `alive` as
 * run_watch() has it. FLEET_ESTATE: a signal, or the end of fleetrun, has ended
 * the wait: run_nodes_signal() says which. run_nodes_close() follows in every
 * case. */
fleet_status run_nodes_join(run_nodes **nodes, const run_options *o, int alive);

int run_nodes_rank(const run_nodes *n);
const char *run_nodes_host(const run_nodes *n); /* of this node */

/* This node's ports, its servers' and then its workers', for those of all: wait
 * until all nodes are ready. */
fleet_status run_nodes_agree(run_nodes *n, const int *ports);

/* Host and ports of a node, as it has said; then. */
const char *run_nodes_host_of(const run_nodes *n, int rank);
const int *run_nodes_ports_of(const run_nodes *n, int rank);

int run_nodes_signal(const run_nodes *n); /* 0: none */

/* `status` is how the opening of the job has ended: another one than FLEET_OK
 * is told to the other nodes, in the words of this thread's last error. NULL is
 * fine. */
void run_nodes_close(run_nodes *n, fleet_status status);
