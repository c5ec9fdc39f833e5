/* gemm.h - matrix products by cuBLASLt. */
#pragma once

#include "runtime/device/cuda/cuda.h"

fleet_status fl_cuda_gemm_create(fl_device *d, const fl_gemm_spec *spec,
                                 fl_gemm **g);
fleet_status fl_cuda_gemm_run(fl_device *d, fl_queue *q, const fl_gemm *g,
                              const fl_gemm_data *data);
void fl_cuda_gemm_destroy(fl_device *d, fl_gemm *g);

/* Do fused relus give NaN for NaN? One that does not would hide it from the
 * check of the loss, and spoil the weights. */
fleet_status fl_cuda_try_relus(fl_cuda *c);
