/* guard.h - two processes see to it that nothing of a job outlives it.
 *
 *     fleetrun   what the user started: passes signals on, waits
 *     keeper     its child: starts the processes and watches them
 *
 * If fleetrun dies, even of SIGKILL, the keeper kills everything. If the keeper
 * dies, the processes die with it (PR_SET_PDEATHSIG), and what they had started
 * comes to fleetrun, which kills it: both adopt orphans.
 */
#ifndef FLEETRUN_GUARD_H
#define FLEETRUN_GUARD_H

#include <signal.h>

#include "base/error.h"

/* SIGCHLD and those that ask for the job's end, less what fleetrun was told to
 * ignore, as nohup does. */
sigset_t run_guard_signals(void);

/* Run keep(user, life) in a keeper and give its exit status. `life` is the read
 * end of a pipe that ends with this process. */
fleet_status run_guard(int (*keep)(void *user, int life), void *user,
                       int *exit_status);

/* Kill this process's children, and theirs if it adopts orphans. */
void run_guard_kill_children(void);

#endif
