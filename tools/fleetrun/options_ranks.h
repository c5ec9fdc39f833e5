/* options_ranks.h - the flags of collective jobs and of GPUs: what they imply,
 * and which of them exclude each other. */
#ifndef FLEETRUN_OPTIONS_RANKS_H
#define FLEETRUN_OPTIONS_RANKS_H

#include "options.h"

/* Check the flags, and find what follows from them: whether the job is
 * collective, n_worker, n_ip, gpu. */
fleet_status run_options_check_ranks(run_options *o);

/* The GPUs of one of this node's workers, as FLAGS_selected_gpus has them, in a
 * buffer of the next call's; NULL: none were given. */
const char *run_options_gpus(const run_options *o, int local_rank);

#endif
