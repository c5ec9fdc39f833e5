/* job_journals.h - the folder of a supervised job's journals. One that the user
 * names is for a later fleetrun of the same job, too, when this one has been
 * killed with all that it started: so it also has the job's ports. */
#pragma once

#include "job.h"

/* Make the folder. If a server has been killed that had its journals there, and
 * this job may have any ports, it has those that are written there. */
fleet_status run_journals_open(run_job *j);

/* Write the ports down that the sockets have. */
fleet_status run_journals_keep_ports(const run_job *j);

/* Write down where a server is that joins the job, before it is started. */
fleet_status run_journals_keep_joined(const run_job *j, const run_process *p);

/* It has ended well, and is not to be started with the next fleetrun. */
void run_journals_forget_joined(const run_job *j, const run_process *p);

/* Those that this node had started, and that have been killed with all of the
 * job, are this node's again: if
 * any server of the job has journals there; else what is there is an earlier
 * job's. */
fleet_status run_journals_find_joined(run_job *j);
