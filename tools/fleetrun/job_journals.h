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
