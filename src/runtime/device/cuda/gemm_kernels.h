/* gemm_kernels.h - products without cuBLASLt, and what it leaves over. */
#pragma once

#include "runtime/device/cuda/cuda.h"

/* The product with its epilogue, but for a bias gradient. Each element is
 * summed in the order of k, by one thread. */
fleet_status fl_cuda_multiply(fl_queue *q, const fl_gemm_spec *s,
                              const fl_gemm_data *data);

/* Each row of c = the bias. */
fleet_status fl_cuda_fill_with_bias(fl_queue *q, const fl_gemm_spec *s,
                                    const fl_gemm_data *data);

/* c = relu(c), which keeps NaN. */
fleet_status fl_cuda_relu(fl_queue *q, const fl_gemm_spec *s, void *c);

/* *hidden = 1 (device memory) if an element of c is not NaN. */
fleet_status fl_cuda_find_hidden_nan(fl_queue *q, const fl_gemm_spec *s,
                                     const void *c, int *hidden);
