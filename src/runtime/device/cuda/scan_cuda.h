/* scan_cuda.h - numbers added up along an array, over many blocks: up to
 * FL_SCAN_ALONE numbers by one kernel, whose blocks each add up what lies
 * before their tile, more by two, the first of which adds up the tiles. No
 * block waits for another one.
 *
 * The numbers come from a function object, value(i), and need not be in memory.
 * value.put(i, before, x) takes what lies before the i-th, which is x: value(0)
 * + ... + value(i - 1). value.finish(sum) is called once, by the last block,
 * while the other blocks may still call both.
 */
#pragma once

#include "runtime/device/cuda/block.h"

enum {
    FL_SCAN_ROUNDS = 8,
    FL_SCAN_TILE = FL_SCAN_ROUNDS * FL_THREADS,
    FL_SCAN_ALONE = 2 * FL_SCAN_TILE
};

static inline int64_t fl_scan_tiles(int64_t n)
{
    return (n + FL_SCAN_TILE - 1) / FL_SCAN_TILE;
}

/* Bytes of scratch, aligned as numbers are. */
static inline size_t fl_scan_scratch(int64_t n)
{
    return (size_t)fl_scan_tiles(n) * sizeof(uint32_t);
}

/* Numbers in memory, and where their sums go. */
struct fl_scan_value {
    const uint32_t *x;
    uint32_t *to;
    __device__ uint32_t operator()(int64_t i) const
    {
        return x[i];
    }
    __device__ void put(int64_t i, uint32_t before, uint32_t) const
    {
        to[i] = before;
    }
    __device__ void finish(int64_t) const
    {
    }
};

/* The sum of value(i) for i in [first, last); thread 0 gets it. */
template <class F>
__device__ static inline uint32_t fl_sum_between(const F &value, int64_t first,
                                                 int64_t last)
{
    uint32_t sum = 0;

    for (int64_t i = first + threadIdx.x; i < last; i += FL_THREADS)
        sum += value(i);
    return fl_block_sum(sum);
}

template <class F>
__global__ static void fl_sum_tiles(uint32_t *tile, F value, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * FL_SCAN_TILE;
    int64_t last = first + FL_SCAN_TILE < n ? first + FL_SCAN_TILE : n;
    uint32_t sum = fl_sum_between(value, first, last);

    if (threadIdx.x == 0)
        tile[blockIdx.x] = sum;
}

/* x of all threads before this one; *total: of all. A block of FL_THREADS; may
 * be called again after a barrier. */
__device__ static inline uint32_t fl_sum_before(uint32_t x, uint32_t *total)
{
    __shared__ uint32_t warp[FL_WARP];
    unsigned lane = threadIdx.x % FL_WARP, at = threadIdx.x / FL_WARP;
    uint32_t upto = x, before = 0, all = 0;

    for (unsigned by = 1; by < FL_WARP; by *= 2) {
        uint32_t other = __shfl_up_sync(FL_ALL_LANES, upto, by);

        upto += lane >= by ? other : 0;
    }
    if (lane == FL_WARP - 1)
        warp[at] = upto;
    __syncthreads();
    for (unsigned i = 0; i < FL_THREADS / FL_WARP; i++) {
        before += i < at ? warp[i] : 0;
        all += warp[i];
    }
    *total = all;
    return before + upto - x;
}

/* tile: sums of tiles; NULL: each block adds up what lies before its own. */
template <class F>
__global__ static void fl_scan_tile(const uint32_t *tile, F value, int64_t n,
                                    int64_t *total)
{
    __shared__ uint32_t base;
    int64_t first = (int64_t)blockIdx.x * FL_SCAN_TILE;
    uint32_t sum, all;

    sum = tile ? fl_sum_between(fl_scan_value{tile, nullptr}, 0, blockIdx.x)
               : fl_sum_between(value, 0, first);
    if (threadIdx.x == 0)
        base = sum;
    __syncthreads();
    sum = base;
    for (int r = 0; r < FL_SCAN_ROUNDS && first + r * FL_THREADS < n; r++) {
        int64_t i = first + r * FL_THREADS + threadIdx.x;
        uint32_t x = i < n ? value(i) : 0;
        uint32_t own = fl_sum_before(x, &all);

        if (i < n)
            value.put(i, sum + own, x);
        sum += all;
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {
        if (total)
            *total = sum;
        value.finish(sum);
    }
}

/* Of n numbers; their sum to *total, unless it is NULL. */
template <class F>
static inline fleet_status fl_scan(fl_queue *q, F value, int64_t n,
                                   int64_t *total, void *scratch)
{
    uint32_t *tile = static_cast<uint32_t *>(scratch);
    unsigned tiles = n > 0 ? (unsigned)fl_scan_tiles(n) : 1;

    if (n <= FL_SCAN_ALONE)
        return FL_LAUNCH(fl_scan_tile<F>, tiles, FL_THREADS, 0, q,
                         static_cast<const uint32_t *>(nullptr), value, n,
                         total);
    FL_TRY(FL_LAUNCH(fl_sum_tiles<F>, tiles, FL_THREADS, 0, q, tile, value, n));
    return FL_LAUNCH(fl_scan_tile<F>, tiles, FL_THREADS, 0, q,
                     static_cast<const uint32_t *>(tile), value, n, total);
}
