/* strategy_check.h - what a strategy may not be. */
#pragma once

#include "fleet/job/job_mode.h"

/* FLEET_EINVAL and FLEET_EUNSUPPORTED, by name. */
fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode);

/* The same before the mode is known: what no mode has is refused. */
fleet_status fl_strategy_check_any(const fleet_distributed_strategy *s);
