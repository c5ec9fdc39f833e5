/* cuda_error.cu - failures of CUDA and cuBLASLt as libfleet's. */
#include "runtime/device/cuda/cuda.h"

static fleet_status status_of(cudaError_t e)
{
    if (e == cudaErrorMemoryAllocation)
        return FLEET_ENOMEM;
    if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ||
        e == cudaErrorInvalidDevice)
        return FLEET_ENODEVICE;
    return FLEET_EIO;
}

/* A failure that is reported is over: CUDA keeps it for cudaGetLastError(),
 * which the next kernel's start asks. */
fleet_status fl_cuda_check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return FLEET_OK;
    fl_fail(status_of(e), "cuda: %s: %s", what, cudaGetErrorString(e));
    cudaGetLastError();
    return status_of(e);
}

fleet_status fl_cuda_check_lt(cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return FLEET_OK;
    return fl_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? FLEET_ENOMEM : FLEET_EIO,
                   "cuBLASLt: %s: %s", what, cublasLtGetStatusString(s));
}
