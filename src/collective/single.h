/* single.h - a communicator of one rank: this process ("self"). */
#ifndef FL_COLLECTIVE_SINGLE_H
#define FL_COLLECTIVE_SINGLE_H

#include "runtime/device/comm.h"

fleet_status fl_comm_single(fl_comm **comm);

#endif
