/* cuda_kernels.cu - all kernels of the CUDA plug-in. */
#include "runtime/device/cuda/cuda_kernels.h"

#include "runtime/device/cuda/cuda.h"

#define FL_CUDA_FAMILY(name) extern const fl_device_kernel fl_cuda_##name[];
#include "runtime/device/cuda/cuda_kernels.def"
#undef FL_CUDA_FAMILY

static const fl_device_kernel *const families[] = {
#define FL_CUDA_FAMILY(name) fl_cuda_##name,
#include "runtime/device/cuda/cuda_kernels.def"
#undef FL_CUDA_FAMILY
};

const fl_device_kernel *fl_cuda_kernel_at(int i)
{
    for (const fl_device_kernel *family : families)
        for (; family->name; family++)
            if (i-- == 0)
                return family;
    return nullptr;
}
