/* check_shown.h - what a batch says was shown and clicked, before it counts. */
#pragma once

#include "runtime/exec/executor.h"

/* What the batch on e->input says was shown and clicked, of tables with an
 * accessor: FLEET_EINVAL, with table, slot and row, unless all of it is finite
 * and at least 0. Before the iteration changes anything. */
fleet_status fl_executor_check_shown(const fleet_executor *e, int64_t batch);

/* Once, of an executor that trains: which columns these are, each once.
 * e->shown is for fl_free(). */
fleet_status fl_executor_find_shown(fleet_executor *e);
