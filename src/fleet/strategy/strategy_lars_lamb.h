/* strategy_lars_lamb.h - strategy.lars and strategy.lamb: as in Fleet they
 * change Momentum and Adam, and no other optimizer. */
#pragma once

#include <fleet/strategy.h>

fleet_status fl_lars_lamb_check(const fleet_distributed_strategy *s,
                                const fleet_optimizer *o);
