/* validation.h - evaluations while a configuration's training goes on. */
#pragma once

#include "fleet/config/run_internal.h"

/* A batch, or a round of some, was trained: is one due? In no merge group,
 * whose sums are of no update yet; in a job the first worker's alone. */
bool fl_validation_due(const fl_config_run *t);

/* Evaluate what there is now, and say in the log what it is. */
fleet_status fl_validation_run(fl_config_run *t);
