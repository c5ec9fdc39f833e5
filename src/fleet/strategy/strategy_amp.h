/* strategy_amp.h - strategy.amp: mixed precision, of bfloat16 or float16. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_AMP_H
#define FL_FLEET_STRATEGY_STRATEGY_AMP_H

#include <fleet/strategy.h>

#include "fleet/handle.h"

/* What contradicts itself, or is not there in that mode. What is not there on
 * this processor, or for want of a GPU, is known once a plan is made. */
fleet_status fl_amp_check(const fleet_distributed_strategy *s,
                          fl_job_mode mode);

/* What products are of; 0: of float32. */
fleet_dtype fl_amp_dtype(const fleet_distributed_strategy *s);

/* How the loss is scaled; zeros: not at all. */
fl_scaling_rules fl_amp_scaling(const fleet_distributed_strategy *s);

#endif
