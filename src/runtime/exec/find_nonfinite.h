/* find_nonfinite.h - which step made the loss infinite or NaN. */
#pragma once

#include "runtime/exec/executor.h"

/* Run the forward steps one by one; the failure names the first whose result is
 * not finite, or which reads a value that is not. FLEET_OK: none is found. */
fleet_status fl_compiled_find_nonfinite(fl_compiled *c, int64_t batch,
                                        int64_t n_run);

/* The loss is not finite: the failure says by which step, if that is known. */
fleet_status fl_compiled_report_nonfinite(fl_compiled *c, int64_t batch,
                                          int64_t n_run);
