/* slot_fits.h - can a dataset slot feed the variable of its name? */
#pragma once

#include "fleet/job/handle.h"
#include "runtime/graph/program.h"

/* FLEET_EDTYPE, FLEET_ESHAPE, FLEET_EINVAL: no, and why. */
fleet_status fl_slot_fits(const fleet_slot *s, const fleet_var *v);
