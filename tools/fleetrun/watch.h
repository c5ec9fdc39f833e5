/* watch.h - a running job, from its first process's start to the last one's
 * end. */
#pragma once

#include "job.h"

/* Start all of this node's processes, move their output, and end them: each has
 * ended when this returns the job's exit status. `alive` is a pipe that ends
 * when fleetrun has died; then all are killed. The signals of
 * run_keeper_signals() are blocked. */
int run_watch(run_job *j, int alive);
