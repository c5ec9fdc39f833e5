/* strategy_read.h - a strategy from JSON: by the names of the fields, a group
 * of them in an object. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_READ_H
#define FL_FLEET_STRATEGY_STRATEGY_READ_H

#include <fleet/strategy.h>

#include "base/json.h"

fleet_status fl_strategy_read(const fl_at *at, fleet_distributed_strategy *s);

#endif
