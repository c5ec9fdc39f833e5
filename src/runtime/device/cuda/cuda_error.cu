/* cuda_host.cu - what the plug-in has of libfleet: errors and memory, by a table. */
#include <cstdarg>
#include <cstdio>

#include "runtime/device/cuda/cuda.h"

static const fl_device_host *host;

void fl_cuda_set_host(const fl_device_host *h)
{
    host = h;
}

fleet_status fl_cuda_fail(fleet_status code, const char *format, ...)
{
    char text[1000];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return host->fail(code, text);
}

void *fl_cuda_new(size_t bytes)
{
    return host->alloc(bytes);
}

void fl_cuda_delete(void *p)
{
    host->free(p);
}

static fleet_status say(cudaError_t e, const char *what)
{
    fleet_status code = FLEET_EIO;

    if (e == cudaErrorMemoryAllocation)
        code = FLEET_ENOMEM;
    else if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ||
             e == cudaErrorInvalidDevice)
        code = FLEET_ENODEVICE;
    return fl_cuda_fail(code, "cuda: %s: %s", what, cudaGetErrorString(e));
}

/* What was said is over: CUDA keeps it for cudaGetLastError(), which the next
 * kernel's start asks. */
fleet_status fl_cuda_check(cudaError_t e, const char *what)
{
    fleet_status status;

    if (e == cudaSuccess)
        return FLEET_OK;
    status = say(e, what);
    cudaGetLastError();
    return status;
}

fleet_status fl_cuda_check_lt(cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return FLEET_OK;
    return fl_cuda_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? FLEET_ENOMEM
                                                        : FLEET_EIO,
                        "cuBLASLt: %s: %s", what, cublasLtGetStatusString(s));
}
