/* nccl_gpu.cu - CUDA for groups of GPUs: memory, events, sums in rank order. */
#include "collective/nccl/nccl_gpu.h"

#include "runtime/simd/half_float.h"
#include "collective/nccl/nccl_lib.h"
#include "runtime/device/cuda/cuda.h"

/* Where NCCL's own header lies, what stands in nccl_lib.h is held against
 * it. */
#if defined(__CUDACC__) && __has_include(<nccl.h>)
#include <cstddef>
#include <nccl.h>

#define SAME(a, b) static_assert((long long)(a) == (long long)(b), #a " is " #b)
SAME(FL_NCCL_OK, ncclSuccess);
SAME(FL_NCCL_REMOTE, ncclRemoteError);
SAME(FL_NCCL_IN_PROGRESS, ncclInProgress);
SAME(FL_NCCL_U8, ncclUint8);
SAME(FL_NCCL_I32, ncclInt32);
SAME(FL_NCCL_I64, ncclInt64);
SAME(FL_NCCL_F32, ncclFloat32);
SAME(FL_NCCL_F64, ncclFloat64);
SAME(FL_NCCL_SUM, ncclSum);
SAME(FL_NCCL_MAX, ncclMax);
SAME(FL_NCCL_MIN, ncclMin);
SAME(sizeof(fl_nccl_id), sizeof(ncclUniqueId));
SAME(offsetof(fl_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(fl_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(fl_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
#undef SAME
#endif

/* --- streams, events, memory ---------------------------------------------- */

static cudaEvent_t event_of(fl_event *e)
{
    return reinterpret_cast<cudaEvent_t>(e);
}

const char *fl_cu_text(int result)
{
    return cudaGetErrorString(static_cast<cudaError_t>(result));
}

const char *fl_cu_nccl_sign(void)
{
#ifdef __CUDACC__
    return nullptr;
#else
    return "fl_nccl_emu_connect";
#endif
}

int fl_cu_bus(int device, char *bus)
{
    return cudaDeviceGetPCIBusId(bus, FL_CU_BUS, device);
}

int fl_cu_enter(int device)
{
    return cudaSetDevice(device);
}

int fl_cu_stream_create(fl_queue **q)
{
    return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(q),
                                     cudaStreamNonBlocking);
}

void fl_cu_stream_destroy(fl_queue *q)
{
    if (q)
        cudaStreamDestroy(fl_cuda_stream(q));
}

int fl_cu_event_create(fl_event **e)
{
    return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(e),
                                    cudaEventDisableTiming);
}

void fl_cu_event_destroy(fl_event *e)
{
    if (e)
        cudaEventDestroy(event_of(e));
}

int fl_cu_record(fl_event *e, fl_queue *q)
{
    return cudaEventRecord(event_of(e), fl_cuda_stream(q));
}

int fl_cu_look(fl_event *e)
{
    cudaError_t status = cudaEventQuery(event_of(e));

    if (status == cudaErrorNotReady)
        cudaGetLastError(); /* or a kernel's start may find it */
    return status;
}

int fl_cu_after(fl_queue *q, fl_event *e)
{
    return cudaStreamWaitEvent(fl_cuda_stream(q), event_of(e), 0);
}

int fl_cu_alloc(fl_queue *q, int64_t bytes, void **p)
{
    cudaError_t e =
        cudaMallocAsync(p, bytes ? (size_t)bytes : 1, fl_cuda_stream(q));

    if (e != cudaSuccess)
        *p = nullptr;
    return e;
}

void fl_cu_free(fl_queue *q, void *p)
{
    if (p)
        cudaFreeAsync(p, fl_cuda_stream(q));
}

int fl_cu_zero(fl_queue *q, void *p, int64_t bytes)
{
    return cudaMemsetAsync(p, 0, (size_t)bytes, fl_cuda_stream(q));
}

int fl_cu_copy(fl_queue *q, void *to, const void *from, int64_t bytes)
{
    return cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                           fl_cuda_stream(q));
}

int fl_cu_wait(fl_queue *q)
{
    return cudaStreamSynchronize(fl_cuda_stream(q));
}

bool fl_cu_is_host(const void *p)
{
    cudaPointerAttributes a;

    return cudaPointerGetAttributes(&a, p) == cudaSuccess &&
           (a.type == cudaMemoryTypeUnregistered ||
            a.type == cudaMemoryTypeHost);
}

/* --- reductions -------------------------------------------------------------
 * An element type, the type that it is summed in, and the conversions from one
 * to the other. */

template <class E> struct plain {
    typedef E element;
    typedef E number;
    __device__ static number read(E x)
    {
        return x;
    }
    __device__ static E write(number x)
    {
        return x;
    }
    __device__ static number add(number a, number b)
    {
        return a + b;
    }
};

/* Integers wrap around. */
template <class E, class U> struct integer : plain<E> {
    __device__ static E add(E a, E b)
    {
        return (E)(U)((U)a + (U)b);
    }
};

template <float (*from)(uint16_t), uint16_t (*to)(float)>
struct small_float : plain<float> {
    typedef uint16_t element;
    __device__ static float read(uint16_t x)
    {
        return from(x);
    }
    __device__ static uint16_t write(float x)
    {
        return to(x);
    }
};

/* A NaN on either side is the result. */
template <class T>
__device__ static typename T::number join(int how, typename T::number a,
                                          typename T::number b)
{
    if (how == FL_ALL_MAX)
        return a > b || a != a ? a : b;
    if (how == FL_ALL_MIN)
        return a < b || a != a ? a : b;
    return T::add(a, b);
}

template <class T>
__global__ static void reduce_sources(typename T::element *out,
                                      const typename T::element *in,
                                      int64_t step, int size, int how,
                                      typename T::number factor, int64_t n)
{
    FL_EACH(i, n)
    {
        typename T::number all = T::read(in[i]);

        for (int r = 1; r < size; r++)
            all = join<T>(how, all, T::read(in[r * step + i]));
        out[i] = T::write(
            how == FL_ALL_MEAN ? (typename T::number)(all * factor) : all);
    }
}

template <class T> static int run_reduce(fl_queue *q, const fl_cu_reduce *f)
{
    typedef typename T::number number;
    typedef typename T::element element;
    number factor = (number)(number(1) / (number)f->size);

    if (f->n <= 0)
        return cudaSuccess;
    FL_START_KERNEL(reduce_sources<T>, fl_blocks(f->n), FL_THREADS, 0,
                    fl_cuda_stream(q), static_cast<element *>(f->out),
                    static_cast<const element *>(f->in), f->step, f->size,
                    (int)f->how, factor, f->n);
    return cudaGetLastError();
}

int fl_cu_reduce_run(fl_queue *q, const fl_cu_reduce *f)
{
    switch (f->type) {
    case FL_WIRE_F32:
        return run_reduce<plain<float>>(q, f);
    case FL_WIRE_F64:
        return run_reduce<plain<double>>(q, f);
    case FL_WIRE_I32:
        return run_reduce<integer<int32_t, uint32_t>>(q, f);
    case FL_WIRE_I64:
        return run_reduce<integer<int64_t, uint64_t>>(q, f);
    case FL_WIRE_U8:
        return run_reduce<integer<uint8_t, uint8_t>>(q, f);
    case FL_WIRE_F16:
        return run_reduce<small_float<fl_from_f16, fl_to_f16>>(q, f);
    default:
        return run_reduce<small_float<fl_from_bf16, fl_to_bf16>>(q, f);
    }
}

template <class T> __global__ static void scale(T *x, T factor, int64_t n)
{
    FL_EACH(i, n)
    x[i] *= factor;
}

template <class T>
static int run_mean(fl_queue *q, void *x, int64_t n, int size)
{
    T factor = T(1) / (T)size;

    if (n > 0)
        FL_START_KERNEL(scale<T>, fl_blocks(n), FL_THREADS, 0,
                        fl_cuda_stream(q), static_cast<T *>(x), factor, n);
    return cudaGetLastError();
}

int fl_cu_mean(fl_queue *q, fl_wire_type type, void *x, int64_t n, int size)
{
    return type == FL_WIRE_F32 ? run_mean<float>(q, x, n, size)
                               : run_mean<double>(q, x, n, size);
}
