/* servers.h - the facade's side of a job with servers: a worker's connection to
 * them, a server's own life. */
#pragma once

#include "fleet/job/handle.h"
#include "ps/worker/worker_io.h"
#include "ps/host/server.h"
#include "fleet/save/load_how.h"

/* A worker of such a job gets its f->worker_io, not connected yet. */
fleet_status fl_servers_open(fleet *f);
void fl_servers_close(fleet *f);

/* fleet_init_server() that loads the save as it says. */
fleet_status fl_init_server(fleet *f, const char *path, const fl_load_how *how);

/* What this process will find wrong with the folder of its log, which is not
 * made yet. */
fleet_status fl_servers_check_log(const fleet *f);

/* Of a server by the handle's programs, without a load and a log; in a worker's
 * handle it has no address. */
fl_server_options fl_servers_options(fleet *f);

/* All programs' parameters and tables are in the store from now on. */
fleet_status fl_add_programs(fleet *f);
