/* param_home.h - what programs say about where a parameter or a table is kept
 * (fleet_param_attr.ps), against what this job has. */
#pragma once

#include "fleet/job/handle.h"

/* FLEET_EUNSUPPORTED, naming the parameter or table: the job does not have the
 * servers or ranks that are to keep it. */
fleet_status fl_param_home_check(const fleet *f, const fleet_program *p);

/* One process keeps all: in the log. */
void fl_param_home_warn(fleet *f, const fleet_program *p);

/* A line for each of which something is said. */
void fl_param_home_dump(const fleet_program *p, fl_text *out);
