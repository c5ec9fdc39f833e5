/* server_replica.h - with strategy.replicas 2 the process of server s has the
 * second copies of the lanes of server s - 1, too, and of the last one's that
 * of server 0. docs/adr/0083. */
#pragma once

#include "fleet/job/handle.h"
#include "fleet/server_stop.h"
#include "ps/host/server.h"

/* Does each lane of this job have two copies? Of workers, too. */
bool fl_has_replicas(const fleet *f);

/* f->replica, of the server before the one of these options.
 * FLEET_EUNSUPPORTED names a table that cannot have copies. */
fleet_status fl_server_replica_create(fleet *f, const fl_server_options *own);

/* fl_server_run() of both: until both have ended. FLEET_OK if both have ended
 * well, else what has ended the first one, or the other. In a job that was at
 * work before this process f->server is another one then: copies of its lanes,
 * which the process of the next server has led since. */
fleet_status fl_server_replica_serve(fleet *f, fl_server_pair *both);
