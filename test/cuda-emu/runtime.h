/* runtime.h - the part of CUDA's runtime API that the library uses, on the
 * host's memory. Streams run at once unless a test asks for another order
 * (streams.cpp): what is queued is done when the call returns, so an event has
 * happened when it was recorded. But for what others do on a stream
 * (control.h): what is queued behind that waits for it.
 *
 * New memory is full of NaN. Copies check which side is whose. */
#pragma once

#include <functional>
#include <cstddef>

#define CUDART_VERSION 13000

/* An index space: what a kernel is started over. */
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorECCUncorrectable = 214,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903
};
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();

typedef struct fl_emu_stream *cudaStream_t;
typedef struct fl_emu_event *cudaEvent_t;
typedef struct fl_emu_mem_pool *cudaMemPool_t;

/* --- devices -------------------------------------------------------------- */

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock;
    int l2CacheSize;
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDriverGetVersion(int *version);
enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported = 115 };
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device);
cudaError_t cudaMemGetInfo(std::size_t *free, std::size_t *total);

/* --- memory --------------------------------------------------------------- */

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2
};
struct cudaPointerAttributes {
    cudaMemoryType type;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p);
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };

cudaError_t cudaMalloc(void **p, std::size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocAsync(void **p, std::size_t bytes, cudaStream_t s);
cudaError_t cudaFreeAsync(void *p, cudaStream_t s);
cudaError_t cudaMallocHost(void **p, std::size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, std::size_t ld_to, const void *from,
                              std::size_t ld_from, std::size_t bytes,
                              std::size_t rows, cudaMemcpyKind kind,
                              cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, std::size_t bytes,
                            cudaStream_t s);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attr,
                                    void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t least);

/* --- streams and events --------------------------------------------------- */

enum { cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };

/* Do it in the stream's turn: what a program queues, which is counted. */
void fl_emu_queue(cudaStream_t s, std::function<void()> work);

/* The same, which reads pinned memory of the host when its turn comes. */
struct fl_emu_work {
    std::function<void()> work;
    const void *pinned; /* NULL: it reads none */
    std::size_t bytes;
};
void fl_emu_queue_pinned(cudaStream_t s, const fl_emu_work &work);

/* What it is once it is queued: it fails if that memory has changed. */
std::function<void()> fl_emu_pinned_work(const fl_emu_work &work);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

/* --- graphs: graph.cpp ----------------------------------------------------
 *
 * What is queued on a stream while it is captured is kept, and done in each
 * launch. One capture at a time for a thread; what a real one refuses, and any
 * event, makes it invalid, and says so.
 */

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
typedef struct fl_emu_graph *cudaGraph_t;
typedef struct fl_emu_graph_exec *cudaGraphExec_t;

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* --- inside --------------------------------------------------------------- */

/* Work for a stream that this thread captures is kept: then there is nothing
 * more to do. */
bool fl_emu_captured(cudaStream_t s, const fl_emu_work &work);

/* Does this thread capture a stream, or this one? */
bool fl_emu_captures();
bool fl_emu_captures(cudaStream_t s);

/* The call waits for all that the device has to do, without a deadline. */
void fl_emu_wait_for_device(const char *call);

/* The call cannot be captured: the capture is invalid. */
cudaError_t fl_emu_spoil(const char *call);

/* Keep an error for cudaGetLastError(), with a text of its own. */
cudaError_t fl_emu_error(cudaError_t e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
