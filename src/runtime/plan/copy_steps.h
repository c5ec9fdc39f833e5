/* copy_steps.h - the steps that copy between the host's memory and the GPU's,
 * and the one that tells the GPU of an update. Pass place_steps puts them into
 * plans; they are run by the GPU's backend (exec/gpu), never as kernels of the
 * CPU. */
#pragma once

#include "runtime/plan/plan.h"

/* run() of kernels that only GPUs have: a failure. */
fleet_status fl_run_on_gpu_only(const fl_instance *in, const fl_range *r);

extern const fl_kernel fl_kernel_to_gpu;      /* GPU <- host */
extern const fl_kernel fl_kernel_to_host;     /* host <- GPU */
extern const fl_kernel fl_kernel_tell_update; /* fl_device_update <- update */
