/* job_keys.h - keys of a job (docs/security.md): fleetrun makes them for a job
 * of this node, in its folder that goes away with the job; "fleetrun keys"
 * makes a folder of them for several nodes. */
#pragma once

#include "job.h"

/* The word after fleetrun that makes a folder of keys. */
#define RUN_KEYS_WORD "keys"

/* "fleetrun keys ...", from that word on. Its exit status is 0, or an error's
 * that is returned. */
fleet_status run_keys_command(int argc, char **argv);

/* The job's folder of keys is known, and made if it is this job's own: once its
 * folder of sockets is. */
fleet_status run_keys_open(run_job *j);
