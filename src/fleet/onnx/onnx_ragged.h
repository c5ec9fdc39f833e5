/* onnx_ragged.h - ragged variables in ONNX. Each is two inputs of the model:
 * the values of all samples, one behind the other, [N], and "<name>.offsets",
 * [batch + 1] int64, where each sample's begin and, at last, N: as
 * fleet_feed has them. Weights have the offsets of their ids. */
#pragma once

#include "fleet/onnx/onnx_ops.h"

/* Add both inputs. FLEET_EEXIST: a variable has the name of the offsets. */
void fl_onnx_input_ragged(fl_onnx *x, const fleet_var *v);

/* Rows [N, dim], or numbers [N, 1], of the variable's values, pooled: [batch,
 * dim]. */
const char *fl_onnx_pool(fl_onnx *x, const fleet_var *v, const char *rows,
                         int64_t dim, fleet_combiner combiner);

/* What a sample keeps of values, side by side. `values` has them in its first
 * dimension, and behind them what a place without one gets. */
const char *fl_onnx_pad_ragged(fl_onnx *x, const fl_node *n, const fleet_var *v,
                               const char *values);

/* Rows with a row of that number behind them. */
const char *fl_onnx_rows_and(fl_onnx *x, const char *rows, int64_t dim,
                             double value);
