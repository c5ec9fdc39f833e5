/* lane_copy.h - a lane that has lost its other copy makes it again: for a
 * process that asks for it, and while it goes on. docs/adr/0093.
 *
 *   waits    for a quiet moment, in which the lane is frozen
 *   writes   what the lane is is on its way; records are kept
 *   behind   the copy has that, and gets the records behind
 *   joins    answers wait for it; when it has all, an epoch begins in which the
 *            lane leads it */
#pragma once

#include "ps/server/lane_replica.h"

/* Of the records behind what the lane was, the number before the first. */
#define FL_COPY_BEHIND ((uint64_t)1 << 40)

void fl_copy_goes_on(fl_ps_lane *l); /* there may be something to send */
void fl_copy_tick(fl_ps_lane *l);

/* A process that has no copy, or not all of it, asks a lane that is alone. */
void fl_copy_newcomer_asks(fl_ps_lane *l, const fl_question *q);

/* l->msg, a worker's heartbeat, says whether it knows where the copy is; if not
 * the answer tells it. Another process of the worker does not know. */
void fl_copy_heartbeat(fl_ps_lane *l);
void fl_copy_tell(const fl_ps_lane *l, fl_msg_writer *w);
void fl_copy_forget_worker(fl_ps_lane *l, uint32_t stream);

/* l->msg, a worker's heartbeat, may say that it knows the epoch that begins. */
void fl_copy_hear_epoch(fl_ps_lane *l);

bool fl_copy_is_behind(const fl_replica *r); /* records are kept for it */
bool fl_copy_joins(const fl_replica *r);     /* answers wait for it */

bool fl_copy_may_end(fl_ps_lane *l); /* as fl_replica_may_end() */
void fl_copy_destroy(fl_replica *r);
