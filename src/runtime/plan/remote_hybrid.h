/* remote_hybrid.h - one exchange made of two: what servers keep, and tables that ranks
 * share out among themselves. Which of the two a table is for says the table:
 * one whose rows are away is the servers'. Dense parameters of an exchange are
 * always theirs.
 *
 * Updates are counted, passes ended and numbers added up by the servers; ranks
 * meet in rounds (comm.h) anyway. A push goes to both, even with nothing in
 * it: all ranks make the same calls.
 */
#ifndef FL_RUNTIME_PLAN_REMOTE_HYBRID_H
#define FL_RUNTIME_PLAN_REMOTE_HYBRID_H

#include "runtime/plan/remote.h"

typedef struct fl_remote_hybrid fl_remote_hybrid;

/* Both live longer. */
fleet_status fl_remote_hybrid_create(fl_remote_hybrid **joint,
                                     fl_remote *servers, fl_remote *ranks);
void fl_remote_hybrid_destroy(fl_remote_hybrid *j); /* NULL is fine */
fl_remote *fl_remote_hybrid_remote(fl_remote_hybrid *j);

#endif
