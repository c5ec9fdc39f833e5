/* keeper.h - two processes see to it that nothing of a job outlives it.
 *
 *     fleetrun   what the user started: passes signals on, waits
 *     keeper     its child: starts the job's processes and watches them
 *
 * If fleetrun dies, even of SIGKILL, the keeper kills everything. If the keeper
 * dies, the job's processes die with it (PR_SET_PDEATHSIG), and what they had
 * started comes to fleetrun, which kills it: both adopt orphans.
 */
#pragma once

#include <signal.h>

#include "base/error.h"

/* SIGCHLD and the signals that end a job, but for those that fleetrun was
 * started to ignore, as by nohup. */
sigset_t run_keeper_signals(void);

/* Call keep(user, alive) in a keeper, and give its exit status. `alive` is a
 * pipe's end to read, which ends when fleetrun does. */
fleet_status run_keeper(int (*keep)(void *user, int alive), void *user,
                        int *exit_status);

/* Kill this process's children, and theirs if it adopts orphans. */
void run_keeper_kill_children(void);
