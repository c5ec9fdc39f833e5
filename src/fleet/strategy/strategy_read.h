/* strategy_read.h - a strategy from JSON: by the names of the fields, a group
 * of them in an object. */
#pragma once

#include <fleet/strategy.h>

#include "base/json/json.h"

fleet_status fl_strategy_read(const fl_at *at, fleet_distributed_strategy *s);
