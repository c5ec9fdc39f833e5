/* cuda_device.cu - a CUDA device as device.h has it. */
#include <cstdio>
#include <cstring>
#include <ctime>

#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/cuda_graph.h"
#include "runtime/device/cuda/cuda_kernels.h"

static cudaEvent_t event_of(fl_event *e)
{
    return reinterpret_cast<cudaEvent_t>(e);
}

/* The thread may have used another device since. */
static fleet_status enter(const fl_device *d)
{
    return fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice");
}

bool fl_cuda_may_free(fl_device *d)
{
    return !fl_cuda_of(d)->given_up && enter(d) == FLEET_OK;
}

/* --- memory --------------------------------------------------------------- */

static fleet_status stream_wait(fl_device *d, fl_queue *q, int64_t ms);

enum { ROOM_MS = 60000 };

void fl_cuda_trim(fl_cuda *c)
{
    cudaGetLastError(); /* the want of memory */
    if (c->pool)
        cudaMemPoolTrimTo(c->pool, 0);
    cudaGetLastError();
}

cudaError_t fl_cuda_alloc_now(fl_cuda *c, size_t bytes, void **p)
{
    cudaError_t e = cudaMalloc(p, bytes);

    if (e == cudaErrorMemoryAllocation) {
        fl_cuda_trim(c);
        e = cudaMalloc(p, bytes);
    }
    if (e != cudaSuccess)
        cudaGetLastError();
    return e;
}

static cudaError_t alloc_once(const fl_cuda *c, fl_queue *q, size_t bytes,
                              void **p)
{
    return c->pool ? cudaMallocAsync(p, bytes ? bytes : 1, fl_cuda_stream(q))
                   : cudaMalloc(p, bytes ? bytes : 1);
}

/* What is short of memory waits for what is queued, whose memory may be free
 * then, and asks again. */
static fleet_status alloc(fl_device *d, fl_queue *q, size_t bytes, void **p)
{
    fl_cuda *c = fl_cuda_of(d);
    cudaError_t e;

    *p = nullptr;
    FL_TRY(enter(d));
    e = alloc_once(c, q, bytes, p);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        FL_TRY(stream_wait(d, q, ROOM_MS));
        fl_cuda_trim(c);
        e = alloc_once(c, q, bytes, p);
    }
    if (e != cudaErrorMemoryAllocation)
        return fl_cuda_check(e, "cudaMallocAsync");
    cudaGetLastError();
    *p = nullptr;
    return fl_fail(FLEET_ENOMEM, "cuda: no %zu bytes on device %d (%s)", bytes,
                   d->ordinal, d->name);
}

static void release(fl_device *d, fl_queue *q, void *p)
{
    if (!p || !fl_cuda_may_free(d))
        return;
    if (fl_cuda_of(d)->pool)
        cudaFreeAsync(p, fl_cuda_stream(q));
    else
        cudaFree(p);
}

static fleet_status alloc_pinned(fl_device *d, size_t bytes, void **p)
{
    *p = nullptr;
    FL_TRY(enter(d));
    return fl_cuda_check(cudaMallocHost(p, bytes ? bytes : 1),
                         "cudaMallocHost");
}

static void free_pinned(fl_device *d, void *p)
{
    if (p && fl_cuda_may_free(d))
        cudaFreeHost(p);
}

static const cudaMemcpyKind kinds[] = {
    cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};

static fleet_status copy_bytes(fl_device *d, fl_queue *q, void *to,
                               const void *from, size_t bytes, fl_copy kind)
{
    FL_TRY(enter(d));
    return fl_cuda_check(
        cudaMemcpyAsync(to, from, bytes, kinds[kind], fl_cuda_stream(q)),
        "cudaMemcpyAsync");
}

__global__ static void move_words(uint32_t *to, const uint32_t *from, int64_t n)
{
    FL_EACH(i, n)
    to[i] = from[i];
}

/* Pinned memory has one address for both. */
static fleet_status copy_words(fl_device *d, fl_queue *q, void *to,
                               const void *from, size_t n)
{
    FL_TRY(enter(d));
    return FL_LAUNCH_EACH(move_words, (int64_t)n, q,
                          static_cast<uint32_t *>(to),
                          static_cast<const uint32_t *>(from), (int64_t)n);
}

static fleet_status copy_rows(fl_device *d, fl_queue *q, void *to, size_t ld_to,
                              const void *from, size_t ld_from, size_t bytes,
                              size_t n, fl_copy kind)
{
    FL_TRY(enter(d));
    return fl_cuda_check(cudaMemcpy2DAsync(to, ld_to, from, ld_from, bytes, n,
                                           kinds[kind], fl_cuda_stream(q)),
                         "cudaMemcpy2DAsync");
}

static fleet_status fill_bytes(fl_device *d, fl_queue *q, void *p, int byte,
                               size_t bytes)
{
    FL_TRY(enter(d));
    return fl_cuda_check(cudaMemsetAsync(p, byte, bytes, fl_cuda_stream(q)),
                         "cudaMemsetAsync");
}

/* --- waiting -------------------------------------------------------------- */

static int64_t now_us()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Ask until it is done: without a pause for as long as a step may take, then
 * every 20 us. A GPU that was given up is asked once. */
template <class Query>
static fleet_status wait_for(fl_device *d, int64_t ms, const char *what,
                             Query done)
{
    const int64_t begun = now_us(), spin = 200;
    const struct timespec pause = {0, 20000};
    fl_cuda *c = fl_cuda_of(d);
    int64_t most = c->given_up ? -1 : ms * 1000;

    for (;;) {
        /* before the question: if the process did not run meanwhile, what the
         * device has done in that time counts */
        int64_t passed = now_us() - begun;
        cudaError_t e = done();

        c->given_up = e == cudaErrorNotReady && passed > most;
        if (e != cudaErrorNotReady)
            return fl_cuda_check(e, what);
        cudaGetLastError(); /* or a kernel's start may find it */
        if (c->given_up)
            return fl_fail(FLEET_ETIMEDOUT,
                           "cuda: device %d (%s) was not done after %lld "
                           "ms (deadline)",
                           d->ordinal, d->name, (long long)ms);
        if (passed > spin)
            nanosleep(&pause, nullptr);
    }
}

static fleet_status stream_wait(fl_device *d, fl_queue *q, int64_t ms)
{
    FL_TRY(enter(d));
    return wait_for(d, ms, "cudaStreamQuery",
                    [q] { return cudaStreamQuery(fl_cuda_stream(q)); });
}

static fleet_status event_wait(fl_device *d, fl_event *e, int64_t ms)
{
    FL_TRY(enter(d));
    return wait_for(d, ms, "cudaEventQuery",
                    [e] { return cudaEventQuery(event_of(e)); });
}

static fleet_status event_done(fl_device *d, fl_event *e, bool *done)
{
    cudaError_t now;

    FL_TRY(enter(d));
    now = cudaEventQuery(event_of(e));
    *done = now != cudaErrorNotReady;
    if (*done)
        return fl_cuda_check(now, "cudaEventQuery");
    cudaGetLastError(); /* or a kernel's start may find it */
    return FLEET_OK;
}

/* --- streams and events --------------------------------------------------- */

static fleet_status stream_create(fl_device *d, fl_queue **q)
{
    cudaStream_t s = nullptr;
    fleet_status status = enter(d);

    if (status == FLEET_OK)
        status =
            fl_cuda_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking),
                          "cudaStreamCreate");
    *q = reinterpret_cast<fl_queue *>(s);
    return status;
}

static void stream_destroy(fl_device *d, fl_queue *q)
{
    if (q && fl_cuda_may_free(d))
        cudaStreamDestroy(fl_cuda_stream(q));
}

static fleet_status stream_after(fl_device *d, fl_queue *q, fl_event *e)
{
    FL_TRY(enter(d));
    return fl_cuda_check(cudaStreamWaitEvent(fl_cuda_stream(q), event_of(e), 0),
                         "cudaStreamWaitEvent");
}

static fleet_status event_create(fl_device *d, bool timed, fl_event **e)
{
    cudaEvent_t made = nullptr;
    fleet_status status = enter(d);

    if (status == FLEET_OK)
        status = fl_cuda_check(
            cudaEventCreateWithFlags(&made, timed ? cudaEventDefault
                                                  : cudaEventDisableTiming),
            "cudaEventCreate");
    *e = reinterpret_cast<fl_event *>(made);
    return status;
}

static void event_destroy(fl_device *d, fl_event *e)
{
    if (e && fl_cuda_may_free(d))
        cudaEventDestroy(event_of(e));
}

static fleet_status event_record(fl_device *d, fl_event *e, fl_queue *q)
{
    FL_TRY(enter(d));
    return fl_cuda_check(cudaEventRecord(event_of(e), fl_cuda_stream(q)),
                         "cudaEventRecord");
}

static fleet_status event_elapsed(fl_device *d, fl_event *from, fl_event *to,
                                  float *ms)
{
    FL_TRY(enter(d));
    return fl_cuda_check(cudaEventElapsedTime(ms, event_of(from), event_of(to)),
                         "cudaEventElapsedTime");
}

/* --- kernels -------------------------------------------------------------- */

static const fl_device_kernel *kernel(const fl_device *, const char *name,
                                      fleet_dtype dtype)
{
    const fl_device_kernel *k;

    for (int i = 0; (k = fl_cuda_kernel_at(i)) != nullptr; i++)
        if (k->dtype == dtype && strcmp(k->name, name) == 0)
            return k;
    return nullptr;
}

/* --- the device itself ---------------------------------------------------- */

static void destroy_device(fl_device *d)
{
    fl_cuda *c = fl_cuda_of(d);

    if (!d)
        return;
    if (fl_cuda_may_free(d)) {
        for (int i = 0; i < c->n_workspace; i++)
            cudaFree(c->workspace[i]);
        if (c->lt)
            cublasLtDestroy(c->lt);
    }
    fl_free(d);
}

static const fl_device_class methods = {
    alloc,
    release,
    alloc_pinned,
    free_pinned,
    stream_create,
    stream_destroy,
    stream_wait,
    stream_after,
    event_create,
    event_destroy,
    event_record,
    event_wait,
    event_done,
    event_elapsed,
    copy_bytes,
    copy_words,
    copy_rows,
    fill_bytes,
    fl_cuda_gemm_create,
    fl_cuda_gemm_run,
    fl_cuda_gemm_destroy,
    fl_cuda_gemm_way,
    fl_cuda_capture_begin,
    fl_cuda_capture_end,
    fl_cuda_graph_launch,
    fl_cuda_graph_destroy,
    kernel,
    destroy_device,
};

/* What a driver is missing for, in words that help. */
static fleet_status say_what_is_missing(cudaError_t e)
{
    int driver = 0;

    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    if (driver == 0)
        return fl_fail(FLEET_ENODEVICE,
                       "cuda: no NVIDIA driver is installed here");
    if (e == cudaErrorInsufficientDriver)
        return fl_fail(FLEET_ENODEVICE,
                       "cuda: the NVIDIA driver is too old: it has CUDA "
                       "%d.%d, and %d.%d is needed",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice)
        return fl_fail(FLEET_ENODEVICE,
                       "cuda: there is a driver (CUDA %d.%d), but no GPU",
                       driver / 1000, driver % 1000 / 10);
    return fl_fail(FLEET_ENODEVICE, "cuda: %s", cudaGetErrorString(e));
}

static fleet_status count(int *n)
{
    cudaError_t e = cudaGetDeviceCount(n);

    if (e == cudaSuccess && *n > 0)
        return FLEET_OK;
    *n = 0;
    return say_what_is_missing(e == cudaSuccess ? cudaErrorNoDevice : e);
}

/* Memory that was freed stays with the pool, if there is one: some virtual
 * GPUs have none. */
static void find_pool(fl_cuda *c)
{
    uint64_t most = UINT64_MAX;
    int has = 0;

    if (cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported,
                               c->base.ordinal) != cudaSuccess ||
        !has ||
        cudaDeviceGetDefaultMemPool(&c->pool, c->base.ordinal) != cudaSuccess)
        c->pool = nullptr;
    if (c->pool)
        cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrReleaseThreshold,
                                &most);
    cudaGetLastError();
}

static fleet_status set_up(fl_cuda *c)
{
    fl_device *d = &c->base;
    cudaDeviceProp p;

    FL_TRY(fl_cuda_check(cudaGetDeviceProperties(&p, d->ordinal),
                         "cudaGetDeviceProperties"));
    snprintf(d->name, sizeof d->name, "%s", p.name);
    d->major = p.major;
    d->minor = p.minor;
    if (p.major < 8)
        return fl_fail(FLEET_ENODEVICE,
                       "cuda: device %d (%s) has compute capability "
                       "%d.%d; 8.0 or more is needed",
                       d->ordinal, d->name, p.major, p.minor);
    FL_TRY(enter(d));
    find_pool(c);
    if (cublasLtCreate(&c->lt) != CUBLAS_STATUS_SUCCESS) {
        c->lt = nullptr; /* products are slower then */
        cudaGetLastError();
    }
    return FLEET_OK;
}

static fleet_status open(int ordinal, const fl_device_options *o, fl_device **d)
{
    fleet_status status;
    fl_cuda *c;
    int n;

    *d = nullptr;
    FL_TRY(count(&n));
    if (ordinal < 0 || ordinal >= n)
        return fl_fail(FLEET_ENODEVICE,
                       "cuda: there is no device %d; there are %d", ordinal, n);
    c = static_cast<fl_cuda *>(fl_alloc(sizeof *c));
    if (!c)
        return FLEET_ENOMEM;
    c->base.methods = &methods;
    c->base.ordinal = ordinal;
    c->strict_fp32 = o && o->strict_fp32;
    status = set_up(c);
    if (status == FLEET_OK)
        *d = &c->base;
    else
        destroy_device(&c->base);
    return status;
}

/* For cuda_entry.c. */
extern "C" const fl_device_table *fl_cuda_open(void);
extern "C" const fl_device_table *fl_cuda_open(void)
{
    static const fl_device_table table = {sizeof table, FL_DEVICE_VERSION,
                                          count, open, fl_cuda_kernel_at};

    return &table;
}
