/* host.cu - what the plug-in has of libfleet: errors and memory, by a table. */
#include <cstdarg>
#include <cstdio>

#include "runtime/cuda/cuda.h"

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

fleet_status fl_cuda_check(cudaError_t e, const char *what)
{
    switch (e) {
    case cudaSuccess:
        return FLEET_OK;
    case cudaErrorMemoryAllocation:
        return fl_cuda_fail(FLEET_ENOMEM, "cuda: %s: %s", what,
                            cudaGetErrorString(e));
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
        return fl_cuda_fail(FLEET_ENODEVICE, "cuda: %s: %s", what,
                            cudaGetErrorString(e));
    default:
        return fl_cuda_fail(FLEET_EIO, "cuda: %s: %s", what,
                            cudaGetErrorString(e));
    }
}

fleet_status fl_cuda_check_lt(cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return FLEET_OK;
    return fl_cuda_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? FLEET_ENOMEM
                                                        : FLEET_EIO,
                        "cuBLASLt: %s: %s", what, cublasLtGetStatusString(s));
}
