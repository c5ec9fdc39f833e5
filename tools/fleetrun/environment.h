/* tell.h - what a process of a job is told: its environment. docs/fleetrun.md
 * has the variables. */
#ifndef FLEETRUN_TELL_H
#define FLEETRUN_TELL_H

#include "job.h"

/* Set this process's environment to that of p, or of what starts ranks. */
void run_tell(const run_job *j, const run_process *p);

/* The rest of it for one rank, from the endpoints and the job's name that are
 * in the environment already. */
void run_tell_rank(int rank, int local_rank);

/* Is that variable for what runs on other nodes, too? */
bool run_is_told(const char *variable);

#endif
