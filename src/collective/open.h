/* open.h - makes groups of ranks (runtime/device/comm.h). */
#ifndef FL_COLLECTIVE_OPEN_H
#define FL_COLLECTIVE_OPEN_H

#include "base/error.h"
#include "runtime/device/comm.h"

/* One rank: this process. */
fleet_status fl_comm_single(fl_comm **peers);

/* By name. "self": as above. "mpi": the processes that mpirun, srun or fleetrun
 * started together; all of them make this call. It is in a plug-in
 * (libfleet_mpi.so), which is opened first; what is missing is named. "nccl":
 * the processes that options->meet brings together, each on a GPU of its own,
 * by libfleet_cuda.so and NCCL. */
fleet_status fl_comm_open(const char *name, const fl_comm_options *options,
                          fl_comm **peers);

#endif
