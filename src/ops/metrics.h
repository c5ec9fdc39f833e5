/* metrics.h - what both halves of the metrics compute alike. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

/* Element i of float32, or of int64. */
FL_EVERYWHERE double fl_number_at(const void *x, bool is_float, int64_t i)
{
    return is_float ? (double)((const float *)x)[i]
                    : (double)((const int64_t *)x)[i];
}

/* A softmax may round above 1. */
FL_EVERYWHERE bool fl_is_probability(double x)
{
    return x >= 0 && x <= 1.0001;
}

FL_EVERYWHERE bool fl_is_0_or_1(double label)
{
    return label == 0.0 || label == 1.0;
}

/* The class that a row of c predictions is for; of one, whether it is above a
 * half. */
FL_EVERYWHERE int64_t fl_best_class(const float *x, int64_t c)
{
    int64_t best = 0;

    if (c == 1)
        return x[0] > 0.5f;
    for (int64_t j = 1; j < c; j++)
        if (x[j] > x[best])
            best = j;
    return best;
}
