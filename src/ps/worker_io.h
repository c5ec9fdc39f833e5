/* worker_io.h - a worker's link to its servers: sockets, a thread that keeps it
 * alive, and the exchange that the store's plans talk to. Whoever waits for an
 * answer works the sockets itself; the thread only says that we live, and looks
 * whether the others do, while nobody waits.
 *
 * Threads: calls that talk to servers one after the other (a lock sees to it).
 */
#ifndef FL_PS_LINK_H
#define FL_PS_LINK_H

#include "ps/handshake.h"
#include "ps/worker.h"

typedef struct fl_link fl_link;

typedef struct fl_link_options {
    fl_context *context; /* log and fork check */
    fl_address *address; /* of servers, as handshake.h has it */
    int n_server;
    const char *job;
    int index, n_worker;
    int64_t connect_ms, request_ms, peer_ms, step_ms; /* deadlines */
    bool tcp_only;
} fl_link_options;

/* Nothing is connected yet: its exchange fails with FLEET_ESTATE until then. */
fleet_status fl_link_create(fl_link **link, const fl_link_options *o);

/* Connect; the store has all that the programs need. Its weights arrive with
 * the first barrier: others may load meanwhile. */
fleet_status fl_link_open(fl_link *l, fl_store *store, bool sync,
                          const char *mode);
bool fl_link_is_open(const fl_link *l);

/* Leave: FLEET_OK once every lane knows. Then the link is closed. */
fleet_status fl_link_leave(fl_link *l);

/* A link that was not left tells the others why it goes: the thread's last
 * failure. NULL is fine. */
void fl_link_destroy(fl_link *l);

fl_exchange *fl_link_exchange(fl_link *l);

/* worker.h's, under the link's lock. */
fleet_status fl_link_reduce(fl_link *l, fl_reduction how, double *x, int n);
fleet_status fl_link_barrier(fl_link *l);
fleet_status fl_link_act(fl_link *l, fl_msg_op op, const char *text,
                         char **answer);
fleet_status fl_link_hash(fl_link *l, const char *table, uint64_t *sum,
                          uint64_t *rows);
int fl_link_lanes(const fl_link *l); /* of all servers */

#endif
