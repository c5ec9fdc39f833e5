/* processes.h - which processes a job has, from the numbers and lists of its
 * options. */
#pragma once

#include "job.h"

/* Make and count the processes of all nodes. FLEET_EINVAL: the options name
 * processes that cannot be. */
fleet_status run_processes_list(run_job *j);
