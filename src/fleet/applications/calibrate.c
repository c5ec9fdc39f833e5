/* calibrate.c - predictions as they are of all samples, after a training on a
 * share of the negative ones: He et al. 2014, section 6.3. */
#include <fleet/applications.h>

#include "ops/ops.h"

/* q = w p / (1 - (1 - w) p) */
static fleet_var *calibrated(fleet_program *p, fleet_var *x, float rate)
{
    return fleet_div(p, fleet_scale(p, x, rate, 0),
                     fleet_scale(p, x, rate - 1, 1));
}

fleet_var *fleet_calibrate(fleet_program *p, fleet_var *x, float rate)
{
    fleet_var *q;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!(rate > 0 && rate <= 1))
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "calibrate: expected a rate above 0, at most 1, got %g",
                       (double)rate));
    if (x->shape.n_dim == 2 && x->shape.dim[1] == 1)
        return calibrated(p, x, rate);
    if (x->shape.n_dim != 2 || x->shape.dim[1] != 2)
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "calibrate: expected [-1, 1], a probability, or [-1, "
                       "2], those of two classes; \"%s\" is none",
                       x->name));
    q = calibrated(p, fleet_slice(p, x, 1, 1, 2), rate);
    return fleet_concat(p, (fleet_var *[]){fleet_scale(p, q, -1, 1), q}, 2, 1);
}
