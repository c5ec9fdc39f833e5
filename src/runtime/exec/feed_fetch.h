/* feed_fetch.h - values copied out of an executor; fleet_executor_run(). */
#pragma once

#include "runtime/exec/executor.h"

/* A variable's value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);

/* Let the variable be fetched from now on; plans may be made anew. */
fleet_status fl_executor_want(fleet_executor *e, const fleet_var *v);
