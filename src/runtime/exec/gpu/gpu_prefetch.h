/* gpu_prefetch.h - rows of remote tables on their way to a GPU: methods of its
 * backend (backend.h). */
#pragma once

#include "runtime/exec/executor.h"

/* The rows of this iteration, if they are not on the GPU yet. */
fleet_status fl_gpu_copy_rows(fleet_executor *e, fl_compiled *c);

/* The rows of the next iteration, if they come while the GPU computes what was
 * queued for this one. */
fleet_status fl_gpu_prefetch_rows(fleet_executor *e, fl_compiled *c);
