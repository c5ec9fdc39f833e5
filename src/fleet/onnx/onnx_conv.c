/* onnx_conv.c - convolutions and pooling in ONNX, which has both with the same
 * layout of images and weights. */
#include "fleet/onnx/onnx_ops.h"
#include "ops/ops.h"

enum { MOST = 2 }; /* dimensions of a window */

static void with(fl_onnx *x, const fl_node *n, const char *name,
                 const char *attr)
{
    const fl_attr *a = fl_node_attr(n, attr);

    fl_onnx_with_ints(x, name, a->v, a->n);
}

/* Before all dimensions, then behind them. */
static void with_padding(fl_onnx *x, const fl_node *n)
{
    const fl_attr *a = fl_node_attr(n, "padding");
    int64_t both[2 * MOST] = {0};

    for (int i = 0; i < 2 * a->n; i++)
        both[i] = a->v[i % a->n];
    fl_onnx_with_ints(x, "pads", both, 2 * a->n);
}

const char *fl_onnx_emit_conv(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in[3];
    const char *out;

    for (int i = 0; i < n->n_in; i++)
        in[i] = fl_onnx_of(x, n->in[i]);
    out = fl_onnx_put(x, type, in, (size_t)n->n_in);
    with(x, n, "strides", "stride");
    with_padding(x, n);
    with(x, n, "dilations", "dilation");
    fl_onnx_with_int(x, "group", fl_node_int(n, "groups"));
    return out;
}

const char *fl_onnx_emit_pool(fl_onnx *x, const fl_node *n, const char *type)
{
    bool is_mean = fl_node_int(n, "kind") == FLEET_POOL_AVERAGE;
    const char *out =
        FL_ONNX(x, is_mean ? "AveragePool" : type, fl_onnx_of(x, n->in[0]));

    with(x, n, "kernel_shape", "size");
    with(x, n, "strides", "stride");
    with_padding(x, n);
    if (is_mean)
        fl_onnx_with_int(x, "count_include_pad",
                         fl_node_int(n, "count_padding") != 0);
    return out;
}
