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

/* Fused relus of cuBLASLt that keep NaN: by the types of a and b, and of c. */
typedef struct fl_relu_checked {
    bool of[FLEET_FLOAT16 + 1][FLEET_FLOAT16 + 1];
} fl_relu_checked;

typedef struct fl_cuda {
    fl_device base;
    cublasLtHandle_t lt;
    bool strict_fp32;
    fl_relu_checked keeps_nan; /* tried when the device was opened */
} fl_cuda;

static inline const fl_cuda *fl_cuda_of(const fl_device *d)
{
    return reinterpret_cast<const fl_cuda *>(d);
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

static inline float *fl_step_f32(const fl_device_step *s, int i)
{
    return fl_step_ptr<float>(s, i);
}
