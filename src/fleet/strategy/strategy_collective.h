/* strategy_collective.h - the checks of what a strategy says about ranks:
 * numbers, and fields that contradict the optimizer or the number of ranks. */
#pragma once

#include "fleet/job/job_mode.h"

/* FLEET_EINVAL: two numbers that contradict. */
fleet_status fl_strategy_check_ranks(const fleet_distributed_strategy *s);

/* FLEET_EUNSUPPORTED: not with that optimizer. */
fleet_status fl_strategy_check_rule(const fleet_distributed_strategy *s,
                                    const fleet_optimizer *o, fl_job_mode mode);

/* The same: not with that number of ranks. */
fleet_status fl_strategy_check_role(const fleet_distributed_strategy *s,
                                    const fl_role *role);
