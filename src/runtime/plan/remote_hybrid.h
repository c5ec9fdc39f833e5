/* remote_hybrid.h - one exchange made of two: what servers keep, and tables that ranks
 * share out among themselves. Which of the two a table is for says the table:
 * one whose rows are away is the servers'. Dense parameters of an exchange are
 * always theirs.
 *
 * Updates are counted, passes ended and numbers added up by the servers; ranks
 * meet in rounds (comm.h) anyway. A push goes to both, even with nothing in
 * it: all ranks make the same calls.
 */
#ifndef FL_RUNTIME_JOINT_H
#define FL_RUNTIME_JOINT_H

#include "runtime/plan/remote.h"

typedef struct fl_joint fl_joint;

/* Both live longer. */
fleet_status fl_joint_create(fl_joint **joint, fl_exchange *servers,
                             fl_exchange *ranks);
void fl_joint_destroy(fl_joint *j); /* NULL is fine */
fl_exchange *fl_joint_exchange(fl_joint *j);

#endif
