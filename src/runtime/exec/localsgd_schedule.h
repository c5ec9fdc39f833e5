/* localsgd_schedule.h - when ranks that update on their own average their
 * weights. All of it under the store's lock. */
#pragma once

#include "runtime/exec/executor.h"

/* Does the rank make its next update on its own? */
bool fl_localsgd_is_next(const fleet_executor *e);

/* After an update, the rank's own or one of all ranks. */
fleet_status fl_localsgd_updated(fleet_executor *e, fl_compiled *c, bool alone);

/* The next average, which a rank also joins when its pass is over; *over: it is
 * for all ranks, and there was none. */
fleet_status fl_localsgd_average(fleet_executor *e, fl_compiled *c, bool *over);
