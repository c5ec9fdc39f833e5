/* stage_connect.h - the connections between processes of stages: a process is a
 * server to the stage before, and a client of the one behind it. */
#pragma once

#include "fleet/heter/stage_job.h"

/* Once the servers are connected, in any job with servers: all workers come,
 * and the weights are the servers' of then; this process is connected to the
 * stages beside its own. */
fleet_status fl_stage_connect(fleet *f);

/* A trainer leaves. */
fleet_status fl_stage_connect_leave(fleet *f);

/* A heter worker passes on that a worker has ended passes, or has left, if the
 * next stage does not know. */
fleet_status fl_stage_connect_tell(fl_stage_job *job, int worker);
