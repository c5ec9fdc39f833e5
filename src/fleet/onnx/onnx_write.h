/* onnx_write.h - a built model as a file. It is the only part that needs
 * protobuf-c: without it onnx_write_absent.c stands in. */
#pragma once

#include "fleet/onnx/onnx_graph.h"

/* FLEET_EUNSUPPORTED: built without protobuf-c. */
fleet_status fl_onnx_can_write(void);

/* external: tensors of FL_ONNX_LEAST_EXTERNAL bytes and more go into
 * "<path>.data". */
enum { FL_ONNX_LEAST_EXTERNAL = 1024 };
fleet_status fl_onnx_write(fl_onnx *x, const char *path, bool external);
