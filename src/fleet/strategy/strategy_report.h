/* strategy_report.h - what the log, the dump and other processes are shown of a
 * strategy. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_REPORT_H
#define FL_FLEET_STRATEGY_STRATEGY_REPORT_H

#include "fleet/job/handle.h"

/* A field that is asked for and has no effect is a warning in the log. */
void fl_strategy_warn(fleet *f);

/* What all processes of a job must have in common, appended: the mode, then
 * each honoured field that is not as it is by default. */
void fl_strategy_terms(const fleet *f, fl_text *out);

#endif
