/* run_histograms.h - histograms and norms of weights and gradients, as events
 * of a configuration's training. */
#pragma once

#include "fleet/config/run_internal.h"

/* In the first worker, if the configuration asks for them: the newest batch may
 * be one behind which they are. */
void fl_run_histograms_note(fl_config_run *t);

/* If one was since the last call: of the dense parameters: of their weights as
 * this process has them, and, where it has them in memory of its own, of the
 * newest batch's gradients. */
fleet_status fl_run_histograms_add(fl_config_run *t);
