/* uneven_ranks.h - ranks with different numbers of batches: a rank whose pass
 * is over joins the updates of the other ranks. */
#pragma once

#include "runtime/exec/executor.h"

/* Take part in the updates of ranks that still have batches, until no rank has
 * any. No batch of this rank may be under way. */
fleet_status fl_executor_join(fleet_executor *e);

/* The same with the executor that trains. A failure ends the other ranks,
 * too. */
fleet_status fl_store_join(fl_store *s);
