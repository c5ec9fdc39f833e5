/* cuda_error.h - failed calls of CUDA as a status, with their text. The only
 * <cuda_runtime.h> and <cublasLt.h>. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "base/error.h"

/* A failed call as a status, "what: " before CUDA's text. */
fleet_status fl_cuda_check(cudaError_t e, const char *what);
