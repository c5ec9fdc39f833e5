/* gpu_backend.h - the backend of executors whose place has a GPU. */
#ifndef FL_RUNTIME_EXEC_GPU_BACKEND_H
#define FL_RUNTIME_EXEC_GPU_BACKEND_H

#include "runtime/exec/backend.h"

extern const fl_backend fl_gpu_backend;

#endif
