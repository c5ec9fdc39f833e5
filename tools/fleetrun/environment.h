/* environment.h - the environment of a job's processes; docs/fleetrun.md has
 * the variables. */
#pragma once

#include "job.h"

/* Give this process the environment of p, or of mpirun. */
void run_environment_set(const run_job *j, const run_process *p);

/* What one rank has besides, from the endpoints and the job's name that are in
 * this process's environment already. */
void run_environment_set_rank(int rank, int local_rank);

/* Is "NAME=value" a variable that ranks on other hosts get, too? */
bool run_environment_is_passed(const char *variable);
