/* filter.h - keys counted in less memory than a row for each: a counting Bloom
 * filter, whose blocks are the rows of a table (filter_shape.h). */
#pragma once

#include "runtime/life/life.h"

/* Each of these n keys has come once more, and *n is how many have come often
 * enough, or seem to, the first ones of k then, in their order. Whatever the
 * order of k, and however the table's buckets are shared out, they are the
 * same: first all are counted, then all are looked at. */
fleet_status fl_filter_count(const fl_life_update *u, fl_life_key *k,
                             int64_t *n);
