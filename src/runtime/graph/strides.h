/* strides.h - where an element lies in an array with strides. */
#pragma once

#include <stdint.h>

#include "base/host_device.h"

/* Of element i, counted with the last dimension as the fastest. */
FL_EVERYWHERE int64_t fl_strides_at(int n_dim, const int64_t *dim,
                                    const int64_t *stride, int64_t i)
{
    int64_t at = 0;

    for (int d = n_dim - 1; d > 0; d--) {
        at += i % dim[d] * stride[d];
        i /= dim[d];
    }
    return n_dim > 0 ? at + i * stride[0] : 0;
}
