/* scheduling.h - a process that is the job's scheduler, and does as servers do:
 * it is ready with fleet_init_server(), and serves in fleet_run_server(). */
#pragma once

#include "fleet/job/handle.h"

fleet_status fl_scheduling_open(fleet *f);

/* Until the job is over, or fleet_stop_server() or SIGTERM. */
fleet_status fl_scheduling_run(fleet *f);
void fl_scheduling_close(fleet *f); /* none is fine */
