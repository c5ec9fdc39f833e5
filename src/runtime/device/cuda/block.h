/* block.h - sums over the threads of a warp and a block, in one order, and rows
 * by warps; for kernels. */
#pragma once

#include "runtime/device/cuda/cuda.h"

enum { FL_WARP = 32 };
#define FL_ALL_LANES 0xffffffffu

/* All lanes get the sum. */
template <class T> __device__ static inline T fl_warp_sum(T x)
{
    for (int by = FL_WARP / 2; by > 0; by /= 2)
        x += __shfl_xor_sync(FL_ALL_LANES, x, by);
    return x;
}

template <class T> __device__ static inline T fl_warp_max(T x)
{
    for (int by = FL_WARP / 2; by > 0; by /= 2)
        x = max(x, __shfl_xor_sync(FL_ALL_LANES, x, by));
    return x;
}

/* The sum over a block of whole warps, up to 32 of them; thread 0 gets it.
 * May be called again at once. */
template <class T> __device__ static inline T fl_block_sum(T x)
{
    __shared__ T part[FL_WARP];
    unsigned lane = threadIdx.x % FL_WARP, warp = threadIdx.x / FL_WARP;

    x = fl_warp_sum(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = lane < blockDim.x / FL_WARP ? part[lane] : T(0);
        x = fl_warp_sum(x);
    }
    __syncthreads();
    return x;
}

/* A warp has a row, all lanes the same: how many blocks, and the rows of this
 * warp. */
enum { FL_ROWS_PER_BLOCK = FL_THREADS / FL_WARP };

static inline unsigned fl_row_blocks(int64_t rows)
{
    return fl_blocks(rows * FL_WARP);
}

#define FL_EACH_ROW(row, rows)                                                 \
    for (int64_t row =                                                         \
             (int64_t)blockIdx.x * FL_ROWS_PER_BLOCK + threadIdx.x / FL_WARP;  \
         row < (rows); row += (int64_t)gridDim.x * FL_ROWS_PER_BLOCK)

/* Remember the least row that is wrong. */
__device__ static inline void fl_fault(uint64_t *fault, int64_t row)
{
    atomicMin(reinterpret_cast<unsigned long long *>(fault),
              (unsigned long long)row);
}
