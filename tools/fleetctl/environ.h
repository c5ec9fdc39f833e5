/* environ.h - where a job is, by the environment of one of its processes. */
#pragma once

#include "base/error.h"

/* What of that process's environment says so becomes this one's. FLEET_ENOENT:
 * there is no such process. FLEET_EIO: it is not this user's. */
fleet_status environ_of(int pid);
