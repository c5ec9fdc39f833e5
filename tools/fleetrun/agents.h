/* ranks.h - ranks that mpirun starts. It starts fleetrun itself once per rank
 * ("rank.h"): a process that connects to this one, starts the rank in a group
 * of its own, with output that goes to its log as any process's does, and says
 * how it ended. It stays until it is let go, because mpirun ends all ranks as
 * soon as one of those that it has started ends badly: so the others have their
 * grace, and who was first is known.
 */
#ifndef FLEETRUN_RANKS_H
#define FLEETRUN_RANKS_H

#include "job.h"
#include "rank.h"

/* Find mpirun and make what ranks connect to. */
fleet_status run_ranks_open(run_job *j);
void run_ranks_close(run_job *j);

/* What mpirun is called with, in its process, which never frees it. NULL: no
 * memory. */
char **run_ranks_command(const run_job *j);

/* One has connected to the listener: give it what it needs. Those that come
 * when the job is ending are turned away. */
void run_ranks_accept(run_job *j, bool ending);

/* The next message of a rank's; false: there will be no more. */
bool run_ranks_hear(run_process *p, run_message *m);

/* Is it of an end by a signal that was not mpirun's? */
bool run_ranks_was_killed(const run_process *p);

/* Is there one? */
bool run_ranks_has(const run_process *p);

void run_ranks_signal(const run_process *p, int signal);

/* Let it go; one that still runs is killed. */
void run_ranks_release(run_process *p);

#endif
