/* hierarchical_all_reduce.c - pass hierarchical_all_reduce, of
 * strategy.use_hierarchical_allreduce: what all ranks would sum in one call
 * they sum by groups. */
#include "runtime/plan/pass.h"
#include "runtime/reduce/all_reduce_steps.h"

static fleet_status by_groups_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    return fl_all_reduce_by(in, fl_all_reduce_agree(in)->hierarchy);
}

static const fl_kernel kernel_by_groups = {
    .name = "all_reduce.groups",
    .split = FL_SPLIT_PARTS,
    .run = by_groups_run,
    .reduces = 1u << 1, /* as fl_kernel_all_reduce */
};

fleet_status fl_pass_hierarchical_all_reduce(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || l->program->training.all_reduce.group <= 1)
        return FLEET_OK;
    for (size_t i = 0; i < plan->n_step; i++)
        if (plan->step[i]->kernel == &fl_kernel_all_reduce) {
            plan->step[i]->kernel = &kernel_by_groups;
            *applied = true;
        }
    return FLEET_OK;
}
