/* feed_fetch.h - values copied out of an executor; fleet_executor_run(). */
#pragma once

#include "runtime/exec/executor.h"

/* A variable's value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);
