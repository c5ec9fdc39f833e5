/* strategy_check.h - what a strategy may not be. */
#pragma once

#include "fleet/job/job_mode.h"

/* FLEET_EINVAL and FLEET_EUNSUPPORTED, by name. Without a role, local: what no
 * mode has is refused. */
fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode);
