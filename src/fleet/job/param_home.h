/* param_home.h - what programs say about who keeps a parameter or a table
 * (fleet_param_attr.ps), against what there is in this job. */
#ifndef FL_FLEET_JOB_PARAM_HOME_H
#define FL_FLEET_JOB_PARAM_HOME_H

#include "fleet/job/handle.h"

/* FLEET_EUNSUPPORTED, naming it: who is asked for is not there. */
fleet_status fl_param_home_check(const fleet *f, const fleet_program *p);

/* One process keeps all: in the log. */
void fl_param_home_warn(fleet *f, const fleet_program *p);

/* A line for each of which something is said. */
void fl_param_home_dump(const fleet_program *p, fl_text *out);

#endif
