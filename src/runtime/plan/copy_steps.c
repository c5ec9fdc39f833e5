/* copy_steps.c - the steps between the host's memory and the GPU's. */
#include "runtime/plan/copy_steps.h"

fleet_status fl_run_on_gpu_only(const fl_instance *in, const fl_range *r)
{
    (void)r;
    return fl_fail(FLEET_ESTATE, "step %s was run as one of the CPU's",
                   in->step->kernel->name);
}

const fl_kernel fl_kernel_to_gpu = {
    .name = "copy.to.gpu", .split = FL_SPLIT_PARTS, .run = fl_run_on_gpu_only};
const fl_kernel fl_kernel_to_host = {
    .name = "copy.to.host", .split = FL_SPLIT_PARTS, .run = fl_run_on_gpu_only};
const fl_kernel fl_kernel_tell_update = {
    .name = "update.tell", .split = FL_SPLIT_PARTS, .run = fl_run_on_gpu_only};
