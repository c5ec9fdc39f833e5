/* feed_fetch.h - values copied out of an executor; fleet_executor_run(). */
#ifndef FL_RUNTIME_EXEC_FEED_FETCH_H
#define FL_RUNTIME_EXEC_FEED_FETCH_H

#include "runtime/exec/executor.h"

/* A variable's value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);

#endif
