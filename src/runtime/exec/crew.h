/* crew.h - a crew: trainer threads of one process. Each member of it is an
 * executor with plans, lookups and an arena of its own; the program and the
 * store are shared.
 *
 * A crew of n trains in rounds: of batches i, i + 1, ... i + n - 1 each member
 * computes one, all members at the same time, and then all meet. So which
 * batch trains where is fixed, and between two rounds nothing is under way. In
 * a round
 *
 *   in order   all compute gradients at the same weights. Where they meet these
 *              are added in the order of the batches, and are one update: that
 *              of a merge group of n batches, to the bit. A round may be part
 *              of a larger merge group.
 *   hogwild    each computes its gradient and updates at once, on its own
 *              (plan/hogwild.h): which updates a batch's weights have is a
 *              matter of time, and bits differ from run to run.
 *
 * What counts in states of the store (metrics) does so where they meet.
 *
 * A crew of batches in flight, of a program whose next stage is in another
 * process (runtime/stages), has no threads of its own: the caller's thread
 * computes all members forward up to what they send, one after the other, then
 * all of them from what comes back on. So the other process has the first batch
 * while this one computes the second.
 *
 * A worker of servers pulls for all batches of a round before it computes any
 * (prefetch.h). In order it pushes the sum of the round; with hogwild each
 * batch's gradient by itself, one after the other, when all are computed.
 *
 * Members run on the handle's compute threads, which they share out: n members
 * on m threads have m / n of them each, at least one, and never more than m run
 * at once. Numbers do not depend on m.
 */
#pragma once

#include "runtime/exec/executor.h"
#include "runtime/plan/remote.h"

typedef struct fl_crew fl_crew;

/* FLEET_EINVAL unless a crew may have n members, or there is none (0 or 1);
 * `what` begins the text. */
fleet_status fl_crew_check_size(int n, const char *what);

/* The executor's crew of that kind, n > 1: as it has been since the last pass,
 * or made now. FLEET_EINVAL for a number out of range, FLEET_EUNSUPPORTED for
 * what crews cannot train; `what` begins the text. */
fleet_status fl_crew_of(fleet_executor *e, const fl_crew_kind *kind,
                        const char *what, fl_crew **crew);
void fl_crew_destroy(fl_crew *crew); /* the executor's part: NULL is fine */

/* Where member i's next batch is bound, by variable. */
fl_input *fl_crew_input(fl_crew *crew, int i);

/* The plan for batches of that size. */
fleet_status fl_crew_plan(fl_crew *crew, int64_t batch, const fl_plan **plan);

/* Train a round: on the first n inputs, of batch[i] rows. The error is that of
 * the first batch that failed, by its number. */
fleet_status fl_crew_round(fl_crew *crew, const int64_t *batch, int n);

/* After a round, for its batches one after the other: what lines and fetches
 * read of the executor is that of batch i, as member i has left it. */
void fl_crew_show(fl_crew *crew, int i);

/* The pass is over: what is left of a merge group is given up. Afterwards
 * nothing of the crew can be fetched. */
void fl_crew_rest(fl_crew *crew);
