/* worker_io.h - a worker's link to its servers: sockets, a thread that keeps it
 * alive, and the exchange that the store's plans talk to. Whoever waits for an
 * answer works the sockets itself; the thread only says that we live, and looks
 * whether the others do, while nobody waits.
 *
 * Threads: calls that talk to servers one after the other (a lock sees to it).
 */
#ifndef FL_PS_WORKER_IO_H
#define FL_PS_WORKER_IO_H

#include "ps/handshake.h"
#include "ps/worker.h"

typedef struct fl_worker_io fl_worker_io;

typedef struct fl_worker_io_options {
    fl_context *context; /* log and fork check */
    fl_address *address; /* of servers, as handshake.h has it */
    int n_server;
    const char *job;
    int index, n_worker;
    int64_t connect_ms, request_ms, peer_ms, step_ms; /* deadlines */
    bool tcp_only;
} fl_worker_io_options;

/* Nothing is connected yet: its exchange fails with FLEET_ESTATE until then. */
fleet_status fl_worker_io_create(fl_worker_io **link,
                                 const fl_worker_io_options *o);

/* Connect; the store has all that the programs need. Its weights arrive with
 * the first barrier: others may load meanwhile. */
fleet_status fl_worker_io_open(fl_worker_io *l, fl_store *store, bool sync,
                               const char *mode);
bool fl_worker_io_is_open(const fl_worker_io *l);

/* Leave: FLEET_OK once every lane knows. Then the link is closed. */
fleet_status fl_worker_io_leave(fl_worker_io *l);

/* A link that was not left tells the others why it goes: the thread's last
 * failure. NULL is fine. */
void fl_worker_io_destroy(fl_worker_io *l);

fl_remote *fl_worker_io_remote(fl_worker_io *l);

/* worker.h's, under the link's lock. */
fleet_status fl_worker_io_reduce(fl_worker_io *l, fl_reduction how, double *x,
                                 int n);
fleet_status fl_worker_io_barrier(fl_worker_io *l);
fleet_status fl_worker_io_act(fl_worker_io *l, fl_msg_op op, const char *text,
                              char **answer);
fleet_status fl_worker_io_hash(fl_worker_io *l, const char *table,
                               uint64_t *sum, uint64_t *rows);
int fl_worker_io_lanes(const fl_worker_io *l); /* of all servers */

#endif
