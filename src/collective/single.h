/* single.h - a communicator of one rank: this process ("self"). */
#pragma once

#include "runtime/device/comm.h"

fleet_status fl_comm_single(fl_comm **comm);
