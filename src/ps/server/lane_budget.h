/* lane_budget.h - how many bytes a lane keeps for each worker, at most, so that
 * no worker's behaviour decides how much memory a server needs. Of W workers
 * that all keep as much as they may a lane has, beside its rows and blocks,
 *
 *     W * (FL_MOST_OPEN + 2 * FL_MOST_PARKED + FL_MOST_UNREAD + FL_MOST_SMALL)
 *     + FL_MOST_SMALL
 *
 * and a job that is well has much less:
 *
 *     open     the step of each worker: one of its gradients for this lane.
 *              The worker is told what is left (credit_bytes).
 *     parked   requests that wait: the keys of two pulls, that of this step and
 *              that of the next one, 8 bytes for each row; one sum over
 *              workers; during a save or a load all that comes, a step of up to
 *              FL_MOST_OPEN among it, which counts as open. What is too much is
 *              not kept: the worker is told to wait, and sends it again.
 *     answers  that were sent, or wait for a replica, and that the worker has
 *              not read: three pieces of a pull, two on their way and one that
 *              is made meanwhile. A pull for which there is no room waits until
 *              the worker has read. FL_MOST_SMALL more is for all else
 *              (heartbeats, OK): some 3,000 answers, and a step has 512 pieces
 *              at most; and as much for all peers together that are no workers.
 *              What is too much of that is not sent: it is lost, and the worker
 *              asks again. One sum over workers, or the norms of a clip, may go
 *              beyond it.
 *
 * docs/adr/0039 says why a peer that does not read is met with silence. */
#pragma once

#include "ps/server/lane_internal.h"

/* --- requests that are kept ----------------------------------------------- */

/* Whether there is room for l->msg, in p; if not that is counted. */
bool fl_lane_may_park(fl_ps_lane *l, const fl_packet *p);

/* The parked message counts from now on, or not any more. */
void fl_lane_count_parked(fl_ps_lane *l, fl_parked *p);
void fl_lane_uncount_parked(fl_ps_lane *l, fl_parked *p);

/* --- answers that are not read -------------------------------------------- */

/* Whether a pull's answer of that size may be made for that worker; one may
 * always be on its way. */
bool fl_lane_may_answer(const fl_ps_lane *l, uint32_t stream, size_t bytes);

/* Whether a packet may be sent in answer to a message of that stream: not if
 * the peer has left too much unread, which is counted. From now on it weighs as
 * unread, also while it waits for a replica. */
bool fl_lane_charge(fl_ps_lane *l, const fl_peer *to, uint32_t stream,
                    fl_packet *p);

/* Send a packet, of one reference, which it takes over, if
 * fl_lane_charge() lets it. */
void fl_lane_send(fl_ps_lane *l, const fl_peer *to, uint32_t stream,
                  fl_packet *p);

/* A subscriber has an account of its own, by its place; it may be sent an
 * answer when it has read most of the last one. Send it one. */
bool fl_lane_may_feed(const fl_ps_lane *l, int place);
void fl_lane_send_feed(fl_ps_lane *l, const fl_peer *to, int place,
                       fl_packet *p);
