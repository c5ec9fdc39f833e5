/* add.h - a server joins a job that runs. */
#pragma once

#include "base/error.h"
#include "fleet/role/role.h"

/* The server at that endpoint, started with FLEET_JOIN, or one that the job's
 * fleetrun starts (endpoint NULL: launcher_start()), becomes known to the job,
 * and takes lanes from the processes that have most, one after the other,
 * until none has two more than it. FLEET_ETIMEDOUT: it does not answer.
 * FLEET_EINVAL: it is another program, or no server that joins. FLEET_ESTATE:
 * there are no lanes to take. Of the timeout each lane has all. */
fleet_status add_server(const fl_role *role, const fl_keys *keys,
                        const char *endpoint, int timeout_ms);
