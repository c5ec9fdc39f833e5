/* inexact.h - why a training that goes on from a save differs from one that was
 * not interrupted: what is in no save. */
#pragma once

#include "fleet/job/handle.h"

/* Is a worker's batch none that all workers are at? Then no save says where a
 * pass is. */
bool fl_inexact_apart(const fleet *f);

/* Nothing is added where it goes on to the bit. */
fleet_status fl_inexact_why(const fleet *f, fl_text *why);
