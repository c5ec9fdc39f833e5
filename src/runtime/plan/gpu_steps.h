/* place_steps.h - the steps that pass place_steps puts into plans: what one
 * memory has goes to the other one. The executor does them itself. */
#ifndef FL_RUNTIME_PASSES_PLACE_STEPS_H
#define FL_RUNTIME_PASSES_PLACE_STEPS_H

#include "runtime/plan/plan.h"

/* Shall the step run on the plan's GPU, as program and guards have it? */
bool fl_is_for_gpu(const fl_plan *plan, const fl_step *s);

/* run() of kernels that there are on GPUs alone. */
fleet_status fl_run_nowhere(const fl_instance *in, const fl_range *r);

extern const fl_kernel fl_kernel_to_gpu;      /* there <- here */
extern const fl_kernel fl_kernel_to_host;     /* here <- there */
extern const fl_kernel fl_kernel_tell_update; /* fl_device_update <- update */

#endif
