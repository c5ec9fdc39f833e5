/* scheduler_peer.h - a process that asks the scheduler which server or worker
 * it is and where the servers are. From then on it says, by a thread, that it
 * lives, with the list of all, so that a scheduler that is started again knows
 * them. */
#pragma once

#include "fleet/role/scheduler.h"

typedef struct fl_scheduler_peer fl_scheduler_peer;

/* What it was told. */
typedef struct fl_scheduler_place {
    int rank;
    int local_index; /* of a worker, among its machine's */
    fl_text servers; /* "ip:port,ip:port", for fl_text_done() */
    int listen_fd;   /* of a server, at its own endpoint; -1: a worker's */
} fl_scheduler_place;

/* Until all have come. The caller has `place` in every case, and the peer if
 * the call succeeds.
 *
 *   FLEET_ETIMEDOUT  no scheduler has answered within the connect deadline, or
 *                    it has, and not all have come within as long again
 *   FLEET_EINVAL     it refuses this process, in its words; a server that comes
 *                    again is on another machine
 *   FLEET_EIO        its port is in use, for the connect deadline
 *   FLEET_EPEER      it is silent, or the job has failed before it began */
fleet_status fl_scheduler_ask(fl_scheduler_peer **p,
                              const fl_scheduler_options *o,
                              fl_scheduler_place *place);

/* The scheduler is told. NULL is fine, and so is a child after fork(). */
void fl_scheduler_leave(fl_scheduler_peer *p);
