/* window.c - attributes of windows are read, and checked. */
#include "ops/conv/window.h"

#include <inttypes.h>

#include "base/error.h"

fleet_status fl_window_pair(const fl_node *n, int dims, const char *name,
                            int64_t low, int64_t none, int64_t pair[2])
{
    const fl_attr *a = fl_node_attr(n, name);

    if (!a || a->n != dims)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s has %d numbers; expected one for each of %d "
                       "dimensions",
                       n->op->name, name, a ? a->n : 0, dims);
    pair[0] = none;
    for (int i = 0; i < dims; i++) {
        if (a->v[i] < low || a->v[i] > FL_MOST_WINDOW)
            return fl_fail(
                FLEET_EINVAL, "%s: %s %" PRId64 "; expected %" PRId64 " to %d",
                n->op->name, name, a->v[i], low, (int)FL_MOST_WINDOW);
        pair[2 - dims + i] = a->v[i];
    }
    return FLEET_OK;
}
