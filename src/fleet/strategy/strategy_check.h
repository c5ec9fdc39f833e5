/* strategy.h - what a strategy may not be, and what plans read of it. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_H
#define FL_FLEET_STRATEGY_STRATEGY_H

#include "fleet/job/job_mode.h"
#include "runtime/graph/training.h"

/* FLEET_EINVAL and FLEET_EUNSUPPORTED, by name. Without a role, local: what no
 * mode has is refused. */
fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode);

/* The members of a training that has none of them yet, from the fields whose
 * target they are. */
void fl_strategy_set_training(const fleet_distributed_strategy *s,
                              fl_training *t);

#endif
