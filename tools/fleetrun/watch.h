/* watch.h - from the first process's start to the last one's end. */
#ifndef FLEETRUN_WATCH_H
#define FLEETRUN_WATCH_H

#include "job.h"

/* Start all of this node's processes, move their output, and end them: each has
 * ended when this returns the job's exit status. `life` is a pipe that ends
 * when whoever asked for the job has died; then all are killed. SIGCHLD and the
 * signals of run_guard_signals() are blocked. */
int run_watch(run_job *j, int life);

#endif
