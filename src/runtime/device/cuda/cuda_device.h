/* cuda_device.h - what the device gives to the other files of the plug-in:
 * memory, and whether it may be freed. */
#pragma once

#include "runtime/device/cuda/cuda.h"

/* cudaMalloc(), after which what was freed has gone back to the driver if
 * there was too little memory. */
cudaError_t fl_cuda_alloc_now(fl_cuda *c, size_t bytes, void **p);

/* Give memory back that was freed; when nothing queued uses it. */
void fl_cuda_trim(fl_cuda *c);

/* Make d the thread's device, to free what is on it; false: nothing may be. */
bool fl_cuda_may_free(fl_device *d);
