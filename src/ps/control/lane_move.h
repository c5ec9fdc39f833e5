/* lane_move.h - a lane is told to go to another process: ps/server/lane_copy.h
 * has what comes of that. docs/adr/0103. */
#pragma once

#include "ps/server/lane_internal.h"

/* From now on the lane goes to the process of that server, which asks for a
 * copy. FLEET_EUNSUPPORTED, FLEET_ESTATE, FLEET_EEXIST: it cannot. */
fleet_status fl_lane_move(fl_ps_lane *l, int server);

/* The same, of a server that has joined the job. */
fleet_status fl_lane_move_to_joined(fl_ps_lane *l, int server);
