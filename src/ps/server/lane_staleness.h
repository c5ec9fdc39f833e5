/* lane_staleness.h - in async, how far a worker may be ahead of the slowest one
 * (a_sync_configs.max_staleness): a pull that is too far ahead is parked.
 *
 *   clock      of a worker: how many contributions of it the lane has applied,
 *              counted from where the worker joined. Of a pull: the steps that
 *              its worker will have made before the one that is computed from
 *              the pull's values; the pull says it
 *   staleness  of a pull: its clock less that of the slowest other worker
 *
 * A worker that joins, or that begins its next pass, starts with the clock of
 * the slowest worker. One that has not come, has ended its pass or has left
 * does not count. docs/adr/0046 has the reasons.
 *
 * Each lane decides by the steps that it has applied itself. That is enough: a
 * lane may know less of a worker than another lane does, by one step, and never
 * more than the worker has done.
 *
 * A lane that is made again from its journal counts by the updates and the ends
 * of passes in it, and from a snapshot on by what that says. Workers count at
 * once then, before they are heard again: pulls wait for them. One that had
 * ended its pass counts until it says so once more. */
#pragma once

#include "ps/server/lane_internal.h"

static inline bool fl_staleness_is_bounded(const fl_ps_lane *l)
{
    return l->o.bounds_staleness && !l->o.sync;
}

/* A stream's state has changed: does it count, or not any more? */
void fl_staleness_file_stream(fl_ps_lane *l, uint32_t stream);

/* Its contribution is applied. */
void fl_staleness_step(fl_ps_lane *l, uint32_t stream);

/* The stream is that of another run's worker, which has not come yet. */
void fl_staleness_forget(fl_ps_lane *l, uint32_t stream);

/* Of a journal's records: a contribution of the stream; the end of a pass, for
 * these streams; a snapshot, whose streams the lane has now. */
void fl_staleness_replay_step(fl_ps_lane *l, uint32_t stream);
void fl_staleness_replay_pass(fl_ps_lane *l, const fl_stream_record *stream,
                              uint32_t n);
void fl_staleness_restore(fl_ps_lane *l);

/* Is that message a pull that has to wait? */
bool fl_staleness_holds(const fl_ps_lane *l, const fl_msg_head *head);

/* The slowest stream, which such a pull waits for; FL_NOBODY: it waits for
 * none. */
uint32_t fl_staleness_waits_for(const fl_ps_lane *l, const fl_msg_head *head);

/* What a wait for that stream is in truth a wait for: the stream itself, or the
 * slowest one, if its next pull will wait for that. FL_NOBODY stays so. */
uint32_t fl_staleness_blame(const fl_ps_lane *l, uint32_t stream);

/* The pull is answered: its staleness is counted. */
void fl_staleness_count(fl_ps_lane *l, const fl_msg_head *head);
