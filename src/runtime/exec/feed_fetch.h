/* feed_fetch.h - feeds of an executor, values copied out of it;
 * fleet_executor_run(). */
#pragma once

#include "runtime/exec/executor.h"

/* The feeds, checked, are the executor's inputs; *batch: their rows. */
fleet_status fl_executor_bind(fleet_executor *e, const fleet_feed *feed, int n,
                              int64_t *batch);

/* A variable's value in the last iteration, copied without gaps. */
fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f);

/* Let the variable be fetched from now on; plans may be made anew. */
fleet_status fl_executor_want(fleet_executor *e, const fleet_var *v);
