/* options_ranks.h - the flags of collective jobs and of GPUs. */
#ifndef FLEETRUN_OPTIONS_RANKS_H
#define FLEETRUN_OPTIONS_RANKS_H

#include "options.h"

/* Check them and find what follows: whether the job is collective, n_worker,
 * n_ip, gpu. */
fleet_status run_options_check_ranks(run_options *o);

#endif
