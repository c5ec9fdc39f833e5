/* cuda.h - the inside of the CUDA plug-in: its device, its errors, how a kernel
 * is started.
 *
 * The plug-in links no symbol of libfleet: fl_fail(), fl_alloc() and fl_free()
 * in it are plugin_side.c's. Its sources compile with nvcc, and with the host's
 * compiler against test/cuda-emu, where FL_START_KERNEL is another one; that is
 * all that differs.
 */
#pragma once

#include "runtime/device/cuda/cuda_error.h"
#include "base/memory.h"
#include "runtime/device/device.h"

enum { FL_MOST_TRIED = 64, FL_MOST_WORKSPACES = 8 };

/* A kernel of cuBLASLt's with a fused relu, that was tried: does NaN stay? */
typedef struct fl_relu_checked {
    cublasLtMatmulAlgo_t algo;
    fleet_dtype in, out;
    bool keeps_nan;
} fl_relu_checked;

typedef struct fl_cuda {
    fl_device base;
    cublasLtHandle_t lt; /* NULL: products are computed without cuBLASLt */
    bool strict_fp32;
    cudaMemPool_t pool; /* NULL: this GPU has none, or no driver for it */

    /* A wait has passed its deadline. Until one succeeds, waits only ask, and
     * nothing is freed: that would wait for the GPU without a deadline. */
    bool given_up;

    /* of gemm.cu; the last workspace is the largest */
    void *workspace[FL_MOST_WORKSPACES];
    size_t workspace_bytes;
    int n_workspace, n_tried;
    fl_relu_checked tried[FL_MOST_TRIED];
} fl_cuda;

static inline fl_cuda *fl_cuda_of(fl_device *d)
{
    return reinterpret_cast<fl_cuda *>(d);
}

static inline cudaStream_t fl_cuda_stream(fl_queue *q)
{
    return reinterpret_cast<cudaStream_t>(q);
}

/* --- kernels -------------------------------------------------------------- */

/* A family's list of kernels, which ends with one that has no name. */
#define FL_KERNEL_OF_WITH(dtype, name, state_size, prepare, finish, run)       \
    {                                                                          \
        name, dtype, state_size, prepare, finish, run                          \
    }
#define FL_KERNEL_WITH(name, state_size, prepare, finish, run)                 \
    FL_KERNEL_OF_WITH(FLEET_FLOAT32, name, state_size, prepare, finish, run)
#define FL_KERNEL(name, run) FL_KERNEL_WITH(name, 0, nullptr, nullptr, run)
#define FL_KERNEL_OF(dtype, name, run)                                         \
    FL_KERNEL_OF_WITH(dtype, name, 0, nullptr, nullptr, run)
#define FL_KERNEL_END FL_KERNEL(nullptr, nullptr)

/* nvcc's own way to start a kernel. */
#ifndef FL_START_KERNEL
#define FL_START_KERNEL(kernel, grid, block, shared, stream, ...)              \
    (kernel<<<grid, block, shared, stream>>>(__VA_ARGS__))
#define FL_BLOCK_MEMORY(type, name)                                            \
    extern __shared__ __align__(16) unsigned char fl_block_memory_[];          \
    type *name = reinterpret_cast<type *>(fl_block_memory_)
#endif

/* Start a kernel; the status of that, the kernel's name in its text. */
#define FL_LAUNCH(kernel, grid, block, shared, queue, ...)                     \
    (FL_START_KERNEL(kernel, grid, block, shared, fl_cuda_stream(queue),       \
                     __VA_ARGS__),                                             \
     fl_cuda_check(cudaGetLastError(), #kernel))

/* The same over n elements, each thread some of them: FL_EACH(i, n) in it. */
enum { FL_THREADS = 256, FL_MOST_BLOCKS = 1 << 16 };

/* One block for each of n, up to a limit: blocks then take several. */
static inline unsigned fl_most_blocks(int64_t n)
{
    return n < FL_MOST_BLOCKS ? (unsigned)n : (unsigned)FL_MOST_BLOCKS;
}

static inline unsigned fl_blocks(int64_t n)
{
    return fl_most_blocks((n + FL_THREADS - 1) / FL_THREADS);
}

#define FL_LAUNCH_EACH(kernel, n, queue, ...)                                  \
    ((n) > 0                                                                   \
         ? FL_LAUNCH(kernel, fl_blocks(n), FL_THREADS, 0, queue, __VA_ARGS__)  \
         : FLEET_OK)

/* a / b, for neither below 0: in 32 bits where that is enough. */
__device__ static inline int64_t fl_quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

#define FL_EACH(i, n)                                                          \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);  \
         i += (int64_t)gridDim.x * blockDim.x)

/* Rows, and elements, that count: of a batch, or all. */
static inline int64_t fl_step_rows(const fl_device_step *s, int i)
{
    const fl_device_arg *a = &s->arg[i];

    return a->factor ? s->batch * a->factor : a->rows;
}

static inline int64_t fl_step_count(const fl_device_step *s, int i)
{
    return fl_step_rows(s, i) * s->arg[i].cols;
}

template <class T> static inline T *fl_step_ptr(const fl_device_step *s, int i)
{
    return static_cast<T *>(s->arg[i].data);
}

/* The largest power of two, up to 256, that divides an address. */
static inline uint32_t fl_alignment_of(uintptr_t p)
{
    return (uint32_t)((p | 256) & (~(p | 256) + 1));
}

static inline uint32_t fl_step_alignment(const fl_device_step *s, int i)
{
    return fl_alignment_of(reinterpret_cast<uintptr_t>(s->arg[i].data));
}

static inline float *fl_step_f32(const fl_device_step *s, int i)
{
    return fl_step_ptr<float>(s, i);
}
