/* run_lines.h - lines of `metrics_log` about a configuration's training. */
#pragma once

#include "fleet/config/run_internal.h"

/* In the first worker, if the configuration asks for them: behind as many of
 * its run as t->seen says. */
fleet_status fl_run_lines_open(fl_config_run *t);

/* A pass begins, or goes on. */
void fl_run_lines_begin_pass(fl_config_run *t);

/* By batches since the last one. */
bool fl_run_lines_due(const fl_config_run *t);

/* validated: with what was just found. */
fleet_status fl_run_lines_add(fl_config_run *t, bool validated);
