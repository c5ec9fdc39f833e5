/* host_device.h - functions that are compiled for CPUs and for GPUs, so that
 * both have the same bits of them: IEEE's operations alone, and no library's.
 */
#pragma once

#ifdef __CUDACC__
#define FL_EVERYWHERE __host__ __device__ static inline
#else
#define FL_EVERYWHERE static inline
#endif
