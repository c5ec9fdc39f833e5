/* launcher.h - the fleetrun that has started this machine's processes of the
 * job starts another one, and says how it fares. */
#pragma once

#include "ps/server/lane.h"

/* A server that joins the job by that number runs at `address`: it has been
 * started, or had been before. FLEET_ENOENT: no fleetrun can be asked.
 * FLEET_ESTATE: it refuses, in its words. */
fleet_status launcher_start(int server, fl_address address);

/* It runs, at `address`. FLEET_ECHILD: it has ended well; FLEET_ESTATE: it has
 * failed, or is not that fleetrun's. */
fleet_status launcher_look(int server, fl_address address);

/* The job knows it by now. */
fleet_status launcher_joined(int server);
