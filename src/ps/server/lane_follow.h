/* lane_follow.h - a lane that follows another one, until it leads:
 * lane_replica.h. */
#pragma once

#include "ps/server/lane_replica.h"

/* l->msg, a worker's, has come to it. */
void fl_follower_hears(fl_ps_lane *l, const fl_peer *from);
void fl_follower_tick(fl_ps_lane *l);

/* A record cannot be applied, as the last error says: the leader is told, and
 * both fail. */
void fl_follower_fail(fl_ps_lane *l);

/* It leads now: the one that has led is told, until it has said that it
 * knows. */
void fl_follower_fence(fl_ps_lane *l);
