/* strategy_log.h - strategy.log where the environment says it: FLEET_LOG and
 * FLEET_LOG_FOLDER, of which fleetrun --supervise sets both. */
#pragma once

#include "fleet/job/handle.h"

/* What the strategy has at its default is as the environment says, in a job
 * with servers. FLEET_EINVAL: FLEET_LOG is no level. The folder's text is the
 * environment's. */
fleet_status fl_strategy_log_read(const fl_role *role,
                                  fleet_distributed_strategy *s);
