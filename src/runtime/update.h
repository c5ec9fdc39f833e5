/* update.h - the steps between gradients and new weights: sums of
 * contributions, gradient merge, norms and the clip, the rules,
 * layer by layer or not. */
#ifndef FL_RUNTIME_UPDATE_H
#define FL_RUNTIME_UPDATE_H

#include "runtime/lower.h"

/* Where the scalars of the update are: made by the first pass that asks. */
int fl_update_value(fl_lowering *l);

/* Value of array i beside the weights of a group. */
int fl_state_value(fl_lowering *l, const fl_group *g, int i);

/* Does the parameter get a gradient in this plan? */
bool fl_gets_gradient(const fl_lowering *l, const fl_param *p);

/* total += part: batched values, and those without a batch. */
extern const fl_kernel fl_kernel_add_rows, fl_kernel_add_parts;

#endif
