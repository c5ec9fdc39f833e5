/* processes.h - which processes a job has, from the numbers and lists of its
 * options. */
#pragma once

#include "job.h"

/* Make and count the processes of all nodes. FLEET_EINVAL: the options name
 * processes that cannot be. */
fleet_status run_processes_list(run_job *j);

/* Where several nodes find each other (options.meets): this node's ports, which
 * are bound, for those of all. */
fleet_status run_processes_agree(run_job *j);

/* The process of the server of that number that joins the job; NULL: there is
 * no place for it (--servers_max). */
run_process *run_processes_joined(const run_job *j, int server);

/* It is this node's from now on, at its address. */
fleet_status run_processes_take(const run_job *j, run_process *p);

/* FLEET_EINVAL: a job on several nodes has neither keys nor --insecure. */
fleet_status run_processes_need_keys(const run_options *o, bool has_servers);
