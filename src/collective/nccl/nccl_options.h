/* nccl_open.h - ranks on GPUs (nccl_internal.h): for the entry of the CUDA
 * plug-in. */
#ifndef FL_COLLECTIVE_NCCL_NCCL_OPEN_H
#define FL_COLLECTIVE_NCCL_NCCL_OPEN_H

#include "runtime/device/comm.h"

/* A communicator of the ranks that options->address brings together. */
fleet_status fl_nccl_open(const fl_comm_options *options, fl_comm **comm);

#endif
