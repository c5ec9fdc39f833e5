/* validation.h - evaluations while a configuration's training goes on. */
#pragma once

#include "fleet/config/run_internal.h"

/* A batch, or a round of some, was trained: is one due? In no merge group,
 * whose sums are of no update yet; in a job the first worker's alone. */
bool fl_validation_due(const fl_config_run *t);

/* Evaluate what there is now, say in the log what it is, and save it where it
 * is the best so far. */
fleet_status fl_validation_run(fl_config_run *t);

/* Once there is a model: FLEET_ECONFIG where it does not have the metric. */
fleet_status fl_validation_check(const fl_config_run *t);

/* Of a training that goes on: what a checkpoint's state has of another metric
 * counts no more. Without any, that of the best save does. */
fleet_status fl_validation_go_on(fl_config_run *t, bool known);

/* Have `patience` validations in a row been no better? */
bool fl_validation_is_over(const fl_config_run *t);

/* The same in all workers, if it is in the first one: each calls it behind a
 * pass, and behind one that was stopped. */
fleet_status fl_validation_agree(fl_config_run *t, bool *over);
