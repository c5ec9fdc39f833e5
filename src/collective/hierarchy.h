/* hierarchy.h - sums in two levels: ranks in groups of neighbours add theirs,
 * the groups' first ranks add what comes of that, and tell their groups. */
#ifndef FL_COLLECTIVE_HIERARCHY_H
#define FL_COLLECTIVE_HIERARCHY_H

#include "base/error.h"
#include "runtime/device/comm.h"

/* Groups of so many ranks, of all that `whole` has; a call of all its ranks.
 * FLEET_EINVAL if the number does not divide theirs. It has all_reduce (but of
 * means), which returns when it is done, wait, abort and destroy, and no other
 * call; it ends before `whole`. */
fleet_status fl_comm_hierarchy(fl_comm *whole, int inner, fl_comm **peers);

#endif
