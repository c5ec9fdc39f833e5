/* ranks.h - the facade's side of a collective or hybrid job: workers that sum
 * gradients of dense parameters among themselves. Tables are sharded over the
 * ranks; beside servers only the tables that a program leaves to ranks. */
#pragma once

#include "fleet/job/handle.h"

/* Does this worker sum dense gradients with other workers? As the strategy
 * says, once there is one. */
static inline bool fl_has_ranks(const fleet *f)
{
    return fleet_is_worker(f) && fl_mode_has_ranks(fl_handle_mode(f));
}

/* Nothing trains before the ranks have joined. */
void fl_ranks_open(fleet *f);

/* A rank that has not left tells the other ranks that it goes. */
void fl_ranks_close(fleet *f);

/* All ranks have the same program, strategy and, from now on, the first one's
 * parameters. */
fleet_status fl_ranks_join(fleet *f, const char *terms);
fleet_status fl_ranks_leave(fleet *f);

/* Returns when all ranks have come; a rank that waits takes part in the updates
 * of ranks that still train. */
fleet_status fl_ranks_barrier(fleet *f);

/* Has each rank rows or states that the first one does not have? */
static inline bool fl_ranks_share(const fleet *f)
{
    return f->sharded || (f->comm && fl_store_is_sharded(f->store));
}

fleet_status fl_ranks_reduce(fleet *f, fl_reduce how, double *x, int n);
