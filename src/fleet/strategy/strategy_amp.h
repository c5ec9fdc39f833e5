/* strategy_amp.h - strategy.amp: mixed precision, of bfloat16 or float16. */
#pragma once

#include <fleet/strategy.h>

#include "fleet/job/job_mode.h"

/* What contradicts itself, or that mode does not have. What this processor does
 * not have, or needs a GPU, is known once a plan is made. */
fleet_status fl_amp_check(const fleet_distributed_strategy *s,
                          fl_job_mode mode);

/* The type that products are of; 0: float32. */
fleet_dtype fl_amp_dtype(const fleet_distributed_strategy *s);
