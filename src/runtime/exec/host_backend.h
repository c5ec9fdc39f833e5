/* host_backend.h - the backend of executors that run on the host alone. */
#pragma once

#include "runtime/exec/backend.h"

extern const fl_backend fl_host_backend;

/* For the GPU's backend, which has the host do a part: the loss of the
 * iteration, which is noted if it is finite; and a value of the host's. */
fleet_status fl_host_check(fleet_executor *e, fl_compiled *c, int64_t batch);
fleet_status fl_host_read(const fl_compiled *c, int value, int64_t rows,
                          void *to);
