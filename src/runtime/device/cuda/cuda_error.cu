/* cuda_error.cu - failures of CUDA as libfleet's. */
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

/* After these every call of the process fails. */
static bool is_final(cudaError_t e)
{
    return e == cudaErrorIllegalAddress || e == cudaErrorLaunchTimeout ||
           e == cudaErrorAssert || e == cudaErrorHardwareStackError ||
           e == cudaErrorIllegalInstruction ||
           e == cudaErrorMisalignedAddress || e == cudaErrorLaunchFailure ||
           e == cudaErrorInvalidAddressSpace || e == cudaErrorInvalidPc ||
           e == cudaErrorECCUncorrectable;
}

/* A failure that is reported is over: CUDA keeps it for cudaGetLastError(),
 * which the next kernel's start asks. */
fleet_status fl_cuda_check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return FLEET_OK;
    fl_fail(status_of(e), "cuda: %s: %s%s", what, cudaGetErrorString(e),
            is_final(e) ? ": no GPU can be used by this process any more; it "
                          "has to be started again"
                        : "");
    cudaGetLastError();
    return status_of(e);
}
