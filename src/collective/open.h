/* open.h - opens a communicator (runtime/device/comm.h) by its name. */
#pragma once

#include "runtime/device/comm.h"

/* "self": this process alone (single.h). "mpi": the processes that mpirun, srun
 * or fleetrun started together; all of them make this call. It is in a plug-in
 * (libfleet_mpi.so), which is opened first; what is missing is named. "nccl":
 * the processes that options->address brings together, each on a GPU of its
 * own, by libfleet_cuda.so and NCCL. */
fleet_status fl_comm_open(const char *name, const fl_comm_options *options,
                          fl_comm **comm);
