/* cuda_kernels.h - all kernels of the CUDA plug-in, by number. */
#ifndef FL_RUNTIME_DEVICE_CUDA_CUDA_KERNELS_H
#define FL_RUNTIME_DEVICE_CUDA_CUDA_KERNELS_H

#include "runtime/device/device.h"

/* NULL behind the last one. */
const fl_device_kernel *fl_cuda_kernel_at(int i);

#endif
