/* onnx_table.h - lookups in tables of rows, in ONNX. A table's rows are a
 * tensor; which of them an id has is found by ai.onnx.ml's LabelEncoder, a hash
 * map, of all lookups in the table at once, since its keys are in the node. A
 * table whose `rows` are few goes out whole: then the id is the row. */
#pragma once

#include "fleet/onnx/onnx_ops.h"

/* The rows of a lookup's ids, in a value that all lookups of these ids in this
 * table share: [batch, L * dim], of ragged ids [N, dim]. */
const char *fl_onnx_look_up(fl_onnx *x, const fl_node *n);
