/* lookup_backward.h - what else takes the sums of a lookup. */
#pragma once

#include "runtime/lookup/lookup_data.h"

/* The keys of a part that are to be changed, as an update or a push takes
 * them: merged sums get their pointers in grad. On failure nothing is lost. */
fleet_status fl_lookup_point_to_sums(const fl_lookup *k, fl_lookup_part *p);
