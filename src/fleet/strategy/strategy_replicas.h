/* strategy_replicas.h - strategy.replicas: where the environment says it
 * (FLEET_REPLICAS, of which fleetrun sets what --replicas says), and with what
 * it does not go. */
#pragma once

#include "fleet/job/handle.h"

/* What the strategy has at its default is as the environment says, in a job
 * with servers. FLEET_EINVAL: FLEET_REPLICAS is no number of copies, is 1 where
 * the strategy has 2, or there is one server alone. */
fleet_status fl_strategy_replicas_read(const fl_role *role,
                                       fleet_distributed_strategy *s);

/* FLEET_EUNSUPPORTED names the field that it does not go with. */
fleet_status fl_strategy_check_replicas(const fleet_distributed_strategy *s);
