/* class_weight.h - the configuration of the kernel "class_weight", for both its
 * halves: out <- label, a number for each sample. */
#pragma once

#include <stdint.h>

enum { FL_MOST_CLASS_WEIGHTS = 512 };

typedef struct fl_class_weight {
    int64_t n;
    float weight[FL_MOST_CLASS_WEIGHTS];
} fl_class_weight;
