/* strategy_report.h - a strategy as text: for the log, for the dump, and for
 * the comparison with other processes. */
#pragma once

#include "fleet/job/handle.h"

/* A field that is asked for and has no effect is a warning in the log. */
void fl_strategy_warn(fleet *f);

/* What all processes of a job must have in common, appended: the mode, then
 * each honoured field that is not as it is by default. */
void fl_strategy_terms(const fleet *f, fl_text *out);
