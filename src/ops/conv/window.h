/* window.h - attributes that windows over one or two dimensions have. */
#pragma once

#include "runtime/graph/op.h"

enum { FL_MOST_WINDOW = 1 << 20 };

/* An attribute with a number for each dimension, from `low` on; of one
 * dimension pair[0], of the height, is what changes nothing. */
fleet_status fl_window_pair(const fl_node *n, int dims, const char *name,
                            int64_t low, int64_t none, int64_t pair[2]);
