/* custom_kernels.h - the kernels of a registered operator, and its forward and
 * gradient, for custom.c to fill in. */
#pragma once

#include "ops/custom/custom.h"

void fl_custom_make_kernels(fl_custom *c);
