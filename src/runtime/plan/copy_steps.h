/* gpu_steps.h - what plans know of a GPU: which steps it shall run, and the
 * steps that copy between the host's memory and the GPU's. Pass place_steps
 * puts these into plans; they are run by the executor's GPU half, never as
 * kernels of the CPU. */
#ifndef FL_RUNTIME_PLAN_GPU_STEPS_H
#define FL_RUNTIME_PLAN_GPU_STEPS_H

#include "runtime/plan/plan.h"

/* Shall the step run on the plan's GPU, as program and guards have it? */
bool fl_is_for_gpu(const fl_plan *plan, const fl_step *s);

/* run() of kernels that only GPUs have: a failure. */
fleet_status fl_run_on_gpu_only(const fl_instance *in, const fl_range *r);

extern const fl_kernel fl_kernel_to_gpu;      /* GPU <- host */
extern const fl_kernel fl_kernel_to_host;     /* host <- GPU */
extern const fl_kernel fl_kernel_tell_update; /* fl_device_update <- update */

#endif
