/* nccl_options.h - ranks on GPUs (nccl_internal.h): for the entry of the CUDA
 * plug-in. */
#pragma once

#include "runtime/device/comm.h"

/* A communicator of the ranks that options->address brings together. */
fleet_status fl_nccl_open(const fl_comm_options *options, fl_comm **comm);
