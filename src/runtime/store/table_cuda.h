/* table_cuda.h - the rows of a table in device memory (lookup_kernels.h), for
 * kernels. */
#pragma once

#include "runtime/device/cuda/cuda.h"
#include "runtime/store/lookup_kernels.h"

__device__ static inline fl_row_head *fl_head_at(const fl_device_rows &t,
                                                 int64_t number)
{
    return reinterpret_cast<fl_row_head *>(t.row + number * t.stride);
}

__device__ static inline uint64_t *fl_key_at(const fl_device_rows &t,
                                             int64_t number)
{
    return reinterpret_cast<uint64_t *>(t.row + (number + 1) * t.stride) - 1;
}

__device__ static inline float *fl_weights_at(const fl_device_rows &t,
                                              int64_t number)
{
    return reinterpret_cast<float *>(fl_head_at(t, number) + 1);
}
