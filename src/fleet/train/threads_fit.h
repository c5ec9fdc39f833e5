/* threads_fit.h - how many batches of a pass train at once: by trainer threads,
 * if a worker of servers can have them, or in flight between stages. */
#pragma once

#include "fleet/job/dataset.h"
#include "fleet/job/handle.h"
#include "runtime/exec/crew.h"

/* A pass over the dataset begins: the executor's crew for it; NULL: one batch
 * trains at a time. FLEET_EUNSUPPORTED: not with what the strategy asks for,
 * and why. */
fleet_status fl_threads_open(fleet_dataset *d, fleet_executor *e,
                             const fleet_train_options *o, fl_crew **crew);
