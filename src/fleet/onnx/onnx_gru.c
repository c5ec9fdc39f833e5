/* onnx_gru.c - a gated recurrent unit in ONNX: a Scan over the steps, whose
 * body is the formula of fleet/sequence.h. ONNX's own GRU has no weights of
 * updates, and multiplies the input, which a layer in front has done. */
#include <inttypes.h>

#include "fleet/onnx/onnx_ops.h"
#include "ops/ops.h"

enum { X, W, B, WEIGHTS };

/* An input of the body: [batch, cols], or [batch] for 0. */
static const char *body_input(fl_onnx *x, const char *what, int64_t cols)
{
    const fl_shape s = cols > 0 ? fl_shape_2(-1, cols) : fl_shape_1(-1);
    const char *name = fl_onnx_text(x, "/gru_%d_%s", x->n_made++, what);

    if (name)
        fl_onnx_input(x, fl_onnx_value_of(x, name, FL_ONNX_FLOAT, &s));
    return name;
}

static void body_output(fl_onnx *x, const char *name, int64_t cols)
{
    const fl_shape s = fl_shape_2(-1, cols);

    if (name)
        fl_onnx_output(x, fl_onnx_value_of(x, name, FL_ONNX_FLOAT, &s));
}

/* Gates r, z, n of [batch, 3 H]. */
static const char *const *gates_of(fl_onnx *x, const char *v, int64_t units)
{
    const int64_t sizes[] = {units, units, units};
    const char *const in[] = {v, fl_onnx_ints(x, sizes, 3)};
    const char *const *out = fl_onnx_put_many(x, "Split", in, 2, 3);

    fl_onnx_with_int(x, "axis", 1);
    return out;
}

static const char *gate_of(fl_onnx *x, const char *type, const char *a,
                           const char *b)
{
    return FL_ONNX(x, type, FL_ONNX(x, "Add", a, b));
}

/* h + a (1 - z) (n - h) */
static const char *next_state(fl_onnx *x, const char *h, const char *step,
                              const char *weight, const fl_node *n,
                              int64_t units)
{
    const char *product =
        FL_ONNX(x, "Gemm", h, fl_onnx_of(x, n->in[W]), fl_onnx_of(x, n->in[B]));
    const char *const *s = gates_of(x, product, units);
    const char *const *v = gates_of(x, step, units);
    const char *r, *z, *now;

    if (!s || !v)
        return NULL;
    r = gate_of(x, "Sigmoid", v[0], s[0]);
    z = gate_of(x, "Sigmoid", v[1], s[1]);
    now = gate_of(x, "Tanh", v[2], FL_ONNX(x, "Mul", r, s[2]));
    z = FL_ONNX(x, "Sub", fl_onnx_number(x, 1), z);
    if (weight)
        z = FL_ONNX(x, "Mul", z, fl_onnx_unsqueeze(x, weight, 1));
    now = FL_ONNX(x, "Mul", z, FL_ONNX(x, "Sub", now, h));
    return FL_ONNX(x, "Add", h, now);
}

static fl_onnx_graph *body_of(fl_onnx *x, const fl_node *n, int64_t units)
{
    fl_onnx_graph *body = fl_onnx_room(x, 1, sizeof *body), *outside = x->at;
    const char *h, *step, *weight = NULL, *next;

    if (!body)
        return NULL;
    body->name = fl_onnx_text(x, "gru_%d", x->n_made++);
    x->at = body;
    h = body_input(x, "state", units);
    step = body_input(x, "step", 3 * units);
    if (fl_input_of(n, WEIGHTS))
        weight = body_input(x, "weight", 0);
    next = next_state(x, h, step, weight, n, units);
    body_output(x, next, units);
    body_output(x, FL_ONNX(x, "Identity", next), units);
    x->at = outside;
    return body;
}

/* Zeros [batch, H]. */
static const char *first_state(fl_onnx *x, const char *v, int64_t units)
{
    const char *batch = FL_ONNX(x, "Shape", v), *both[2];

    fl_onnx_with_int(x, "start", 0);
    fl_onnx_with_int(x, "end", 1);
    both[0] = batch;
    both[1] = fl_onnx_int1(x, units);
    return FL_ONNX(x, "Expand", fl_onnx_number(x, 0),
                   fl_onnx_concat(x, 0, both, 2));
}

const char *fl_onnx_emit_gru(fl_onnx *x, const fl_node *n, const char *type)
{
    static const int64_t along[] = {1, 1};
    int64_t units = n->in[X]->shape.dim[2] / 3;
    const fleet_var *weights = fl_input_of(n, WEIGHTS);
    const char *v = fl_onnx_of(x, n->in[X]);
    const char *in[] = {first_state(x, v, units), v, fl_onnx_of(x, weights)};
    const fl_onnx_graph *body = body_of(x, n, units);
    const char *const *out = fl_onnx_put_many(x, type, in, weights ? 3 : 2, 2);

    fl_onnx_with_graph(x, "body", body);
    fl_onnx_with_int(x, "num_scan_inputs", weights ? 2 : 1);
    fl_onnx_with_ints(x, "scan_input_axes", along, weights ? 2 : 1);
    fl_onnx_with_ints(x, "scan_output_axes", along, 1);
    return out ? out[1] : NULL;
}
