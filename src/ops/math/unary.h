/* unary.h - the configuration of the kernels NAME and NAME.grad of unaries.def,
 * for both their halves. */
#pragma once

#include "runtime/simd/simd.h"

typedef struct fl_unary_config {
    int kind; /* FL_UNARY_NAME */
    float a, b;
} fl_unary_config;
