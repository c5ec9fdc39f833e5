/* strategy_collective.h - what a strategy says about ranks: which fields go
 * together, and what plans are told. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_COLLECTIVE_H
#define FL_FLEET_STRATEGY_STRATEGY_COLLECTIVE_H

#include "fleet/handle.h"

/* FLEET_EINVAL: two fields that contradict. */
fleet_status fl_strategy_check_ranks(const fleet_distributed_strategy *s);

/* FLEET_EUNSUPPORTED: not with that optimizer. */
fleet_status fl_strategy_check_rule(const fleet_distributed_strategy *s,
                                    const fleet_optimizer *o, fl_job_mode mode);

/* The same: not with so many ranks. */
fleet_status fl_strategy_check_role(const fleet_distributed_strategy *s,
                                    const fl_role *role);

void fl_strategy_set_ranks(const fleet_distributed_strategy *s, fl_training *t);

#endif
