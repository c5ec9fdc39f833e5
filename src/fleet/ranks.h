/* ranks.h - the facade's side of a collective or hybrid job: workers that sum
 * gradients of dense parameters among themselves. Tables are shared out over
 * them; beside servers only what a program leaves to ranks. */
#ifndef FL_FLEET_RANKS_H
#define FL_FLEET_RANKS_H

#include "fleet/job/handle.h"
#include "net/message.h"
#include "ps/partition.h"

/* Does this worker sum dense gradients with others? As the strategy says, once
 * there is one. */
static inline bool fl_has_ranks(const fleet *f)
{
    return fleet_is_worker(f) &&
           fl_mode_has_ranks(fl_job_mode_of(&f->role, &f->strategy));
}

/* Nothing trains before the ranks have joined. */
void fl_ranks_open(fleet *f);

/* Who has not left tells the others that it goes. */
void fl_ranks_close(fleet *f);

/* All ranks have the same program, strategy and, from now on, the first one's
 * parameters. */
fleet_status fl_ranks_join(fleet *f, const char *terms);
fleet_status fl_ranks_leave(fleet *f);

/* Returns when all ranks are here; those that still train are taken part in. */
fleet_status fl_ranks_barrier(fleet *f);
/* All ranks do it when they come to their next round: a save or a load, as
 * fl_lane_act() has them. answer[]: of each rank, for fl_free(). */
fleet_status fl_ranks_act(fleet *f, fl_msg_op op, const char *text,
                          char **answer);
fl_agree_serve fl_ranks_serve;
fl_rows_hasher fl_ranks_hash;

/* Has each rank what the first one does not have: rows, or states? */
static inline bool fl_ranks_share(const fleet *f)
{
    return f->sharded || (f->comm && fl_store_is_sharded(f->store));
}

/* Buckets of tables whose rows are this rank's. */
fl_buckets fl_ranks_own(const fleet *f);

fleet_status fl_ranks_reduce(fleet *f, fl_reduce how, double *x, int n);

#endif
