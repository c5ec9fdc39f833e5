/* uneven_ranks.h - ranks with different numbers of batches: a rank whose pass
 * is over joins the updates of the other ranks. */
#pragma once

#include "runtime/exec/executor.h"

/* What ranks do next, all of them. */
typedef fleet_status fl_rank_call(void *arg);

/* Take part in the updates of ranks that still have batches, until no rank has
 * any; then call `then` (NULL: nothing) under the same lock of the store, so
 * that no other thread talks to the ranks in between. No batch of this rank may
 * be under way. */
fleet_status fl_executor_join(fleet_executor *e, fl_rank_call *then, void *arg);

/* The same with the executor that trains. A failure ends the other ranks,
 * too. */
fleet_status fl_store_join(fl_store *s, fl_rank_call *then, void *arg);
