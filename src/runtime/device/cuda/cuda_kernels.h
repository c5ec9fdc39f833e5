/* cuda_kernels.h - all kernels of the CUDA plug-in, by number. */
#pragma once

#include "runtime/device/device.h"

/* NULL behind the last one. */
const fl_device_kernel *fl_cuda_kernel_at(int i);
