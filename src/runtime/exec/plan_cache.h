/* plan_cache.h - the plans of an executor, one for each size of batch. */
#pragma once

#include "runtime/exec/compile.h"

/* What the next iteration of a batch of that size will run. */
fleet_status fl_executor_plan(fleet_executor *e, int64_t batch,
                              fl_compiled **compiled);

/* The plan of the prefetched batch, while `c` runs; NULL: there is no such
 * batch, or no plan for it, which its own iteration will report. */
fl_compiled *fl_executor_prefetch_plan(fleet_executor *e, fl_compiled *c);

void fl_executor_forget_plans(fleet_executor *e);

/* If the store has another remote or other ranks now, plans are made anew;
 * inside a merge group that fails. */
fleet_status fl_executor_follow_store(fleet_executor *e);

/* Plans are for a store with its remote and its ranks: FLEET_ESTATE if the
 * store has another remote or other ranks now. */
fleet_status fl_executor_check_store(const fleet_executor *e);
