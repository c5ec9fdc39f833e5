/* mpirun.h - Open MPI's mpirun, which starts an agent for each rank. */
#pragma once

#include "job.h"

/* Find mpirun in PATH, and make the folder of MPI's files. */
fleet_status run_mpirun_open(run_job *j);
void run_mpirun_close(run_job *j);

/* In the process that becomes mpirun: set its environment, and give its command
 * line, which is never freed. NULL: no memory. */
char **run_mpirun_command(const run_job *j);
