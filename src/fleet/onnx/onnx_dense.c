/* onnx_dense.c - forms in ONNX of products, softmaxes, normalizations and
 * losses. */
#include <float.h>
#include <string.h>

#include "fleet/onnx/onnx_ops.h"
#include "ops/activation.h"
#include "ops/ops.h"

static const char *at_input(fl_onnx *x, const fl_node *n, int i)
{
    return fl_onnx_of(x, fl_input_of(n, i));
}

/* The first input as [rows, K]. */
static const char *as_matrix(fl_onnx *x, const fl_node *n)
{
    const fl_shape *s = &n->in[0]->shape;
    fl_shape two = fl_shape_2(s->dim[0], fl_shape_cols(s));

    return s->n_dim == 2 ? at_input(x, n, 0)
                         : fl_onnx_reshape(x, at_input(x, n, 0), &two);
}

/* --- products ------------------------------------------------------------- */

const char *fl_onnx_emit_fc(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in[3] = {as_matrix(x, n), at_input(x, n, 1), at_input(x, n, 2)};
    const char *out = fl_onnx_put(x, type, in, fl_input_of(n, 2) ? 3 : 2);
    const fl_attr *a = fl_node_attr(n, "activation");
    const fl_op *activation = fl_activation_op(a ? a->i : FLEET_LINEAR);

    /* activations with numbers are nodes of their own */
    return activation ? FL_ONNX(x, fl_onnx_op_of(activation)->type, out) : out;
}

const char *fl_onnx_emit_matmul(fl_onnx *x, const fl_node *n, const char *type)
{
    return FL_ONNX(x, type, as_matrix(x, n), at_input(x, n, 1));
}

static const char *operand_of(fl_onnx *x, const fl_node *n, int i,
                              bool transposed)
{
    int64_t perm[FLEET_MAX_DIM + 1];
    int last = n->in[i]->shape.n_dim - 1;
    const char *v = at_input(x, n, i);

    if (!transposed)
        return v;
    for (int d = 0; d <= last; d++)
        perm[d] = d == last ? last - 1 : d == last - 1 ? last : d;
    v = FL_ONNX(x, "Transpose", v);
    fl_onnx_with_ints(x, "perm", perm, last + 1);
    return v;
}

const char *fl_onnx_emit_batch_matmul(fl_onnx *x, const fl_node *n,
                                      const char *type)
{
    const char *a = operand_of(x, n, 0, fl_node_int(n, "transpose_x") != 0);
    const char *b = operand_of(x, n, 1, fl_node_int(n, "transpose_y") != 0);

    return FL_ONNX(x, type, a, b);
}

/* --- softmaxes ------------------------------------------------------------ */

const char *fl_onnx_emit_softmax(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *out = FL_ONNX(x, type, at_input(x, n, 0));

    fl_onnx_with_int(x, "axis", -1);
    return out;
}

/* Of the numbers that count; what does not count becomes 0, all of a line,
 * too. */
static const char *softmax_where(fl_onnx *x, const char *counts, const char *v,
                                 const char *type)
{
    const char *out = FL_ONNX(
        x, type,
        FL_ONNX(x, "Where", counts, v, fl_onnx_number(x, (double)-FLT_MAX)));

    fl_onnx_with_int(x, "axis", -1);
    return FL_ONNX(x, "Where", counts, out, fl_onnx_number(x, 0));
}

const char *fl_onnx_emit_masked_softmax(fl_onnx *x, const fl_node *n,
                                        const char *type)
{
    const char *counts = fl_onnx_cast(x, at_input(x, n, 1), FL_ONNX_BOOL);

    return softmax_where(x, counts, at_input(x, n, 0), type);
}

/* [L, L], true up to the diagonal. */
static const char *triangle_of(fl_onnx *x, int64_t size)
{
    const char *what = fl_onnx_text(x, "triangle %lld", (long long)size);
    const char *name = fl_onnx_known(x, what);
    char *data;

    if (name || !what)
        return name;
    data = fl_onnx_room(x, (size_t)(size * size), 1);
    for (int64_t i = 0; data && i < size; i++)
        memset(data + i * size, 1, (size_t)i + 1);
    name = fl_onnx_text(x, "/triangle_%lld", (long long)size);
    return data ? fl_onnx_remember(
                      x, what,
                      fl_onnx_weights(
                          x, &(fl_onnx_tensor){.name = name,
                                               .type = FL_ONNX_BOOL,
                                               .n_dim = 2,
                                               .dim = {size, size},
                                               .data = data,
                                               .size = (size_t)(size * size)}))
                : NULL;
}

const char *fl_onnx_emit_causal_softmax(fl_onnx *x, const fl_node *n,
                                        const char *type)
{
    const fl_shape *s = &n->in[0]->shape;
    const char *counts = triangle_of(x, s->dim[s->n_dim - 1]);

    if (fl_input_of(n, 1))
        counts = FL_ONNX(x, "And", counts,
                         fl_onnx_cast(x, at_input(x, n, 1), FL_ONNX_BOOL));
    return softmax_where(x, counts, at_input(x, n, 0), type);
}

/* --- normalizations ------------------------------------------------------- */

const char *fl_onnx_emit_l2_normalize(fl_onnx *x, const fl_node *n,
                                      const char *type)
{
    const char *in = at_input(x, n, 0);
    const char *length = FL_ONNX(x, type, in, fl_onnx_int1(x, -1));

    length = FL_ONNX(x, "Max", length,
                     fl_onnx_number(x, fl_node_float(n, "epsilon")));
    return FL_ONNX(x, "Div", in, FL_ONNX(x, "Sqrt", length));
}

/* One number for each of a line of those dimensions; absent: `value`. */
static const char *line_of(fl_onnx *x, const fl_node *n, int i,
                           const fl_shape *dims, double value)
{
    const char *v = fl_input_of(n, i)
                        ? at_input(x, n, i)
                        : fl_onnx_filled(x, value, fl_shape_count(dims, 1));

    return dims->n_dim == 1 ? v : fl_onnx_reshape(x, v, dims);
}

const char *fl_onnx_emit_layer_norm(fl_onnx *x, const fl_node *n,
                                    const char *type)
{
    const fl_shape *s = &n->in[0]->shape;
    int64_t axis = fl_node_int(n, "axis");
    fl_shape dims = fl_shape_make(s->dim + axis, s->n_dim - (int)axis);
    const char *w = line_of(x, n, 1, &dims, 1), *out;

    if (fl_input_of(n, 2))
        out =
            FL_ONNX(x, type, at_input(x, n, 0), w, line_of(x, n, 2, &dims, 0));
    else
        out = FL_ONNX(x, type, at_input(x, n, 0), w);
    fl_onnx_with_int(x, "axis", axis);
    fl_onnx_with_float(x, "epsilon", fl_node_float(n, "epsilon"));
    return out;
}

/* ONNX has the channels in dimension 1. */
const char *fl_onnx_emit_batch_norm(fl_onnx *x, const fl_node *n,
                                    const char *type)
{
    const fl_shape *s = &n->in[0]->shape;
    const fl_shape one = fl_shape_1(s->dim[s->n_dim - 1]);
    fl_shape lines = fl_shape_2(-1, one.dim[0]);
    const char *in = at_input(x, n, 0), *out;

    if (s->n_dim > 2)
        in = fl_onnx_reshape(x, in, &lines);
    out = FL_ONNX(x, type, in, line_of(x, n, 3, &one, 1),
                  line_of(x, n, 4, &one, 0), at_input(x, n, 1),
                  at_input(x, n, 2));
    fl_onnx_with_float(x, "epsilon", fl_node_float(n, "epsilon"));
    return s->n_dim > 2 ? fl_onnx_reshape(x, out, s) : out;
}

/* (x - sum / size) sqrt(size / squares) */
const char *fl_onnx_emit_data_norm(fl_onnx *x, const fl_node *n,
                                   const char *type)
{
    const char *size = at_input(x, n, 1);
    const char *mean = FL_ONNX(x, "Div", at_input(x, n, 2), size);
    const char *scale = FL_ONNX(x, "Div", size, at_input(x, n, 3));

    scale = FL_ONNX(x, "Sqrt", scale);
    return FL_ONNX(x, type, FL_ONNX(x, "Sub", at_input(x, n, 0), mean), scale);
}

/* --- losses --------------------------------------------------------------- */

static const char *of_label(fl_onnx *x, const fl_node *n, const char *v)
{
    v = FL_ONNX(x, "GatherElements", v, at_input(x, n, 1));
    fl_onnx_with_int(x, "axis", 1);
    return v;
}

const char *fl_onnx_emit_cross_entropy(fl_onnx *x, const fl_node *n,
                                       const char *type)
{
    const char *p = of_label(x, n, at_input(x, n, 0));

    return FL_ONNX(x, "Neg", FL_ONNX(x, type, p));
}

const char *fl_onnx_emit_softmax_with_cross_entropy(fl_onnx *x,
                                                    const fl_node *n,
                                                    const char *type)
{
    const char *logs;

    fl_onnx_set(x, n->out[1], fl_onnx_emit_softmax(x, n, "Softmax"));
    logs = fl_onnx_emit_softmax(x, n, type);
    return FL_ONNX(x, "Neg", of_label(x, n, logs));
}

/* As a number. */
static const char *target_label(fl_onnx *x, const fl_node *n)
{
    return n->in[1]->dtype == FLEET_INT64
               ? fl_onnx_cast(x, at_input(x, n, 1), FL_ONNX_FLOAT)
               : at_input(x, n, 1);
}

/* log(1 + e^x) - x y */
const char *fl_onnx_emit_sigmoid_cross_entropy(fl_onnx *x, const fl_node *n,
                                               const char *type)
{
    const char *in = at_input(x, n, 0);
    const char *both = FL_ONNX(x, "Mul", in, target_label(x, n));

    return FL_ONNX(x, "Sub", FL_ONNX(x, type, in), both);
}

/* -y log(p + e) - (1 - y) log(1 - p + e) */
const char *fl_onnx_emit_log_loss(fl_onnx *x, const fl_node *n,
                                  const char *type)
{
    const char *p = at_input(x, n, 0), *y = target_label(x, n);
    const char *one = fl_onnx_number(x, 1);
    const char *e = fl_onnx_number(x, fl_node_float(n, "epsilon"));
    const char *q = FL_ONNX(x, "Sub", one, p);

    p = FL_ONNX(x, type, FL_ONNX(x, "Add", p, e));
    q = FL_ONNX(x, type, FL_ONNX(x, "Add", q, e));
    p = FL_ONNX(x, "Mul", y, p);
    q = FL_ONNX(x, "Mul", FL_ONNX(x, "Sub", one, y), q);
    return FL_ONNX(x, "Neg", FL_ONNX(x, "Add", p, q));
}

/* The labels index the weights. */
const char *fl_onnx_emit_class_weight(fl_onnx *x, const fl_node *n,
                                      const char *type)
{
    const fl_attr *a = fl_node_attr(n, "weights");
    const size_t size = (size_t)a->n * sizeof *a->w;
    const char *name = fl_onnx_text(x, "/%s.weights", n->out[0]->name);
    float *copy = fl_onnx_room(x, (size_t)a->n, sizeof *copy);

    if (!copy || !name)
        return NULL;
    memcpy(copy, a->w, size);
    name = fl_onnx_weights(x, &(fl_onnx_tensor){.name = name,
                                                .type = FL_ONNX_FLOAT,
                                                .n_dim = 1,
                                                .dim = {a->n},
                                                .data = copy,
                                                .size = size});
    return FL_ONNX(x, type, name, at_input(x, n, 0));
}
