/* slot_fits.c - a dataset slot and the variable of its name. */
#include "fleet/train/slot_fits.h"

#include <inttypes.h>

fleet_status fl_slot_fits(const fleet_slot *s, const fleet_var *v)
{
    int64_t dim = v->ragged ? -1 : fl_shape_cols(&v->shape);

    if (s->dtype != v->dtype)
        return fl_fail(FLEET_EDTYPE,
                       "slot \"%s\" is %s, but its variable is %s", s->name,
                       fleet_dtype_name(s->dtype), fleet_dtype_name(v->dtype));
    if (!v->ragged && !fl_shape_batched(&v->shape))
        return fl_fail(FLEET_ESHAPE, "slot \"%s\": its variable has no batch",
                       s->name);
    if (s->dim != dim)
        return fl_fail(FLEET_ESHAPE,
                       "slot \"%s\" has %" PRId64 " values per sample, but its "
                       "variable takes %" PRId64 " (-1: any number)",
                       s->name, s->dim, dim);
    if (!s->weighted != !v->weights)
        return fl_fail(FLEET_ESHAPE,
                       "slot \"%s\" is %sweighted, but its variable is%s",
                       s->name, s->weighted ? "" : "not ",
                       s->weighted ? " not (fleet_data_weighted())" : "");
    if (v->weighs)
        return fl_fail(FLEET_EINVAL,
                       "slot \"%s\" feeds the weights of \"%s\", which its own "
                       "slot feeds",
                       s->name, v->weighs->name);
    return FLEET_OK;
}
