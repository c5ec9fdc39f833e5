/* agents.h - the agents of a job's ranks, as fleetrun's keeper sees them.
 *
 * mpirun starts a fleetrun once per rank, the rank's agent ("rank_agent.h").
 * It connects to the keeper, starts the rank in a process group of its own,
 * with output that goes to its log as that of any process does, and reports
 * how the rank has ended. The agent itself stays until the keeper releases
 * it, because mpirun ends all ranks as soon as one of its children fails: so
 * the other ranks have their grace, and the first failure is known. */
#pragma once

#include "job.h"
#include "rank_agent.h"

/* Listen for the agents: on a Unix socket, or by tcp if the ranks are on
 * several hosts. */
fleet_status run_agents_open(run_job *j);
void run_agents_close(run_job *j);

/* One has connected: give it what it needs. While the job is ending an agent
 * that comes is turned away. */
void run_agents_accept(run_job *j, bool ending);

/* Has this rank's agent sent a message? */
bool run_agents_has_message(const run_process *p);

/* The next message; false: the connection has ended. */
bool run_agents_receive(run_process *p, run_agent_message *m);

/* Does the next message report a rank killed by a signal, other than
 * mpirun's? */
bool run_agents_was_killed(const run_process *p);

/* Have the agent send its rank a signal. */
void run_agents_signal(const run_process *p, int signal);

/* Let the agent end; it kills a rank that still runs. */
void run_agents_release(run_process *p);
