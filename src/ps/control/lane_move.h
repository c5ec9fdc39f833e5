/* lane_move.h - a lane is told to go to another process: ps/server/lane_copy.h
 * has what comes of that. docs/adr/0103. */
#pragma once

#include "ps/server/lane_internal.h"

/* From now on the lane goes to the process of that server, which asks for a
 * copy. FLEET_EUNSUPPORTED, FLEET_ESTATE, FLEET_EEXIST: it cannot. */
fleet_status fl_lane_move(fl_ps_lane *l, int server);

/* The same, of a server that has joined the job. */
fleet_status fl_lane_move_to_joined(fl_ps_lane *l, int server);

/* --- one whose journal goes with it (options.log_goes) -------------------- */

/* A lane that was just made has gone to another process, with that view: it is
 * there to say so. */
fleet_status fl_lane_begin_gone(fl_ps_lane *l, uint32_t view);

/* One that follows: the journal is its own from now on, and is about to be
 * replayed; with that it leads. */
void fl_lane_begin_lead(fl_ps_lane *l, uint32_t view, int64_t now_ms);

/* The server has ended: no process has to be told any more where it is. */
void fl_lane_leave_gone(fl_ps_lane *l);
