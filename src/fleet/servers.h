/* servers.h - the facade's side of a job with servers. */
#ifndef FL_FLEET_SERVERS_H
#define FL_FLEET_SERVERS_H

#include "fleet/job/handle.h"
#include "fleet/save/save.h"
#include "ps/worker_io.h"
#include "ps/server.h"

/* A worker of such a job gets its link, not connected yet. */
fleet_status fl_servers_open(fleet *f);
void fl_servers_close(fleet *f);

/* All programs' parameters and tables are in the store from now on. */
fleet_status fl_add_programs(fleet *f);

/* save_sharded.c: what a lane saves and loads, and what worker 0 makes of it.
 */
fl_server_act fl_lane_act;
enum { FL_LANE_OF_RANK = -1 }; /* a rank writes, in a server's place */
fleet_status fl_servers_write_parts(void *f, const fl_save *s,
                                    const char *folder, fl_json *list);
fleet_status fl_servers_load(fleet *f, const char *path);

/* checkpoint.c: write it here, or have the servers do it. */
fleet_status fl_save_any(fleet *f, fl_save *s, const char *path);

/* Worker 0 saves for all; the others need not, and say so in the log. */
bool fl_saves_here(fleet *f, const char *call);

#endif
