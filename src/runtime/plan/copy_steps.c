/* gpu_steps.c - which steps a GPU runs, and the steps that copy to and from
 * it. */
#include "runtime/plan/gpu_steps.h"

bool fl_is_for_gpu(const fl_plan *plan, const fl_step *s)
{
    int place = s->node ? s->node->place : 0;

    return plan->place->gpu &&
           (s->kernel->on_gpu || (place ? place > 0 : plan->place->on_gpu));
}

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
