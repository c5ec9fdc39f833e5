/* warp_rows.h - rows of floats by teams: 2^share neighbouring threads of a warp
 * have a row, and each of them V neighbouring floats at a time, so that short
 * rows leave no thread idle and long ones are read in pieces of 16 bytes. */
#pragma once

#include "runtime/device/cuda/block.h"

template <int V> struct alignas(V * sizeof(float)) fl_pack {
    float x[V];
};

/* May whatever lies so be read V at a time? */
template <int V> static inline bool fl_fits_pack(const void *p, int64_t ld)
{
    return reinterpret_cast<uintptr_t>(p) % sizeof(fl_pack<V>) == 0 &&
           ld % V == 0;
}

/* The smallest team for rows of dim floats. */
static inline int fl_warp_rows_share(int64_t dim, int v)
{
    int share = 0;

    while (share < 5 && ((int64_t)v << share) < dim)
        share++;
    return share;
}

static inline unsigned fl_warp_rows_blocks(int64_t rows, int share)
{
    return fl_blocks(rows << share);
}

/* The rows of this team, and the first float of this thread in them. */
#define FL_EACH_TEAM(row, rows, share)                                         \
    for (int64_t row =                                                         \
             ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> (share);      \
         row < (rows); row += ((int64_t)gridDim.x * blockDim.x) >> (share))

#define FL_EACH_PACK(column, dim, V, share)                                    \
    for (int64_t column =                                                      \
             (int64_t)(threadIdx.x & ((1u << (share)) - 1)) * (V);             \
         column < (dim); column += (int64_t)(V) << (share))

/* The same where the teams of a warp wait for each other: all of them have the
 * same number of turns, a few of which are past the last row. A barrier of each
 * team by itself would take its warp apart: its parts then go on one after
 * another. */
#define FL_EACH_TEAM_TOGETHER(row, rows, share)                                \
    for (int64_t row##_of_warp =                                               \
             (((int64_t)blockIdx.x * blockDim.x + threadIdx.x) &               \
              ~(int64_t)(FL_WARP - 1)) >>                                      \
             (share),                                                          \
                 row = row##_of_warp +                                         \
                       (int64_t)((threadIdx.x % FL_WARP) >> (share));          \
         row##_of_warp < (rows);                                               \
         row##_of_warp += ((int64_t)gridDim.x * blockDim.x) >> (share),        \
                 row += ((int64_t)gridDim.x * blockDim.x) >> (share))

__device__ static inline bool fl_warp_rows_first(int share)
{
    return (threadIdx.x & ((1u << share) - 1)) == 0;
}
