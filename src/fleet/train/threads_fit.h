/* threads_fit.h - can a worker of servers have trainer threads? */
#pragma once

#include "fleet/job/handle.h"

/* FLEET_EUNSUPPORTED: not with what the strategy asks for, and why. What crews
 * cannot train at all fl_crew_of() says. */
fleet_status fl_threads_fit(const fleet *f, const fleet_train_options *o);
