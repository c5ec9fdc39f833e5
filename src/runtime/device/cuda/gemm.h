/* gemm.h - matrix products by cuBLASLt, or by kernels where it has none. */
#pragma once

#include "runtime/device/cuda/cuda.h"

/* Failures of cuBLASLt are none: there is another way. A relu is fused only if
 * it gives NaN for NaN, which is tried on q. */
fleet_status fl_cuda_gemm_create(fl_device *d, fl_queue *q,
                                 const fl_gemm_spec *spec, fl_gemm **g);
fleet_status fl_cuda_gemm_run(fl_device *d, fl_queue *q, fl_gemm *g,
                              const fl_gemm_data *data);
void fl_cuda_gemm_destroy(fl_device *d, fl_gemm *g);

/* "fused", "biased", "filled" or "own". */
const char *fl_cuda_gemm_way(const fl_gemm *g);
