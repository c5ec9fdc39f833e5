/* run_histograms.h - histograms and norms of weights and gradients, as events
 * of a configuration's training. */
#pragma once

#include "fleet/config/run_internal.h"

/* In the first worker, if the configuration asks for them: is this one of the
 * batches behind which they are? */
bool fl_run_histograms_due(const fl_config_run *t);

/* Of the dense parameters: of their weights as this process has them, and,
 * where it has them in memory of its own, of the gradients that the newest
 * update took. */
fleet_status fl_run_histograms_add(fl_config_run *t);
