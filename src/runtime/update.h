/* update.h - the steps between gradients and new weights: sums of
 * contributions, gradient merge, norms and the clip, the rules. */
#ifndef FL_RUNTIME_UPDATE_H
#define FL_RUNTIME_UPDATE_H

#include "runtime/kernel.h"

/* total += part: batched values, and those without a batch. */
extern const fl_kernel fl_kernel_add_rows, fl_kernel_add_parts;

#endif
