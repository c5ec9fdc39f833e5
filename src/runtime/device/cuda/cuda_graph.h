/* cuda_graph.h - CUDA graphs of what is queued. */
#pragma once

#include "runtime/device/cuda/cuda.h"

fleet_status fl_cuda_capture_begin(fl_device *d, fl_queue *q);
fleet_status fl_cuda_capture_end(fl_device *d, fl_queue *q, fl_graph **g);
fleet_status fl_cuda_graph_launch(fl_device *d, fl_queue *q, fl_graph *g);
void fl_cuda_graph_destroy(fl_device *d, fl_graph *g);
