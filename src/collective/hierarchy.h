/* hierarchy.h - sums in two levels: each group of neighbouring ranks computes
 * its sum, the groups' first ranks add these sums, and broadcast the result to
 * their groups. */
#pragma once

#include "base/error.h"
#include "runtime/device/comm.h"

/* Groups of `inner` ranks, of all that `whole` has; a call of all its ranks.
 * FLEET_EINVAL if `inner` does not divide their number. The communicator has
 * all_reduce (but of means), which returns when it is done, wait, abort and
 * destroy, and no other call; it ends before `whole`. */
fleet_status fl_comm_hierarchy(fl_comm *whole, int inner, fl_comm **comm);
