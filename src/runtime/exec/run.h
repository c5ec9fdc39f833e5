/* run.h - the phases of a compiled plan: feeds are bound, kernels begin,
 * regions run one after the other. */
#pragma once

#include "runtime/exec/executor.h"
#include "base/pool.h"

/* What the store keeps is moved to where the plan is to find it, and what only
 * other ranks shall keep is given up; under the store's lock. */
fleet_status fl_compiled_map_store(const fl_compiled *c);

/* Before FL_PULL (pull) and before FL_FORWARD (the other feeds and kernels). */
void fl_compiled_bind(fl_compiled *c, const fl_input *input, int64_t batch,
                      bool pull);
fleet_status fl_compiled_begin(fl_compiled *c, int64_t batch, bool pull);

/* Run the regions of a phase: FL_PULL; FL_PULL_WAIT; FL_PREFETCH; FL_FORWARD,
 * up to the first gradients that leave; FL_BACKWARD for the rest and what
 * leaves, or FL_REDUCE_BEGIN for that alone; FL_UPDATE; FL_AVERAGE. */
fleet_status fl_compiled_run(fl_compiled *c, fl_context *context, int64_t batch,
                             fl_phase phase);

/* FL_REDUCE_BEGIN of a rank that has joined, of a plan that syncs: it also
 * meets the other ranks in forward and backward, adds nothing to what they sum,
 * and gives them its weights. */
fleet_status fl_compiled_join(fl_compiled *c);

/* One region, shared by the threads of a pool; NULL: this thread alone. */
fleet_status fl_host_run_region(fl_compiled *c, fl_pool *pool, size_t r,
                                int64_t batch);
