/* onnx_ops.h - operators as nodes of ONNX; onnx_ops.def lists them. */
#pragma once

#include "fleet/onnx/onnx_graph.h"

/* Make the nodes, mostly of that type; returns the value of the first output.
 * Further outputs are set by fl_onnx_set(). */
typedef const char *fl_onnx_emitter(fl_onnx *x, const fl_node *n,
                                    const char *type);

#define FL_ONNX_OP(name, type, emitter) fl_onnx_emitter fl_onnx_emit_##emitter;
#define FL_ONNX_NOT(name, why)
#include "fleet/onnx/onnx_ops.def"
#undef FL_ONNX_OP
#undef FL_ONNX_NOT

typedef struct fl_onnx_op {
    const fl_op *op;
    const char *type;
    fl_onnx_emitter *emit; /* NULL: it has no form */
    const char *why;       /* then */
} fl_onnx_op;

/* NULL: an operator that onnx_ops.def does not have. */
const fl_onnx_op *fl_onnx_op_of(const fl_op *op);

/* The nodes of a node of the program. FLEET_EUNSUPPORTED for one without a
 * form, with its reason. */
void fl_onnx_emit_node(fl_onnx *x, const fl_node *n);
