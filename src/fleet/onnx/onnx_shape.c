/* onnx_shape.c - forms in ONNX of operators that move elements, and that reduce
 * dimensions. */
#include <string.h>

#include "fleet/onnx/onnx_ops.h"

static const char *first_of(fl_onnx *x, const fl_node *n)
{
    return fl_onnx_of(x, n->in[0]);
}

const char *fl_onnx_emit_concat(fl_onnx *x, const fl_node *n, const char *type)
{
    const char **in = fl_onnx_room(x, (size_t)n->n_in, sizeof *in);

    (void)type;
    for (int i = 0; in && i < n->n_in; i++)
        in[i] = fl_onnx_of(x, n->in[i]);
    return in ? fl_onnx_concat(x, fl_node_int(n, "axis"), in, (size_t)n->n_in)
              : NULL;
}

const char *fl_onnx_emit_reshape(fl_onnx *x, const fl_node *n, const char *type)
{
    (void)type;
    return fl_onnx_reshape(x, first_of(x, n), &n->out[0]->shape);
}

const char *fl_onnx_emit_transpose(fl_onnx *x, const fl_node *n,
                                   const char *type)
{
    const fl_attr *perm = fl_node_attr(n, "perm");
    const char *out = FL_ONNX(x, type, first_of(x, n));

    fl_onnx_with_ints(x, "perm", perm->v, perm->n);
    return out;
}

const char *fl_onnx_emit_slice(fl_onnx *x, const fl_node *n, const char *type)
{
    (void)type;
    return fl_onnx_slice(x, first_of(x, n), fl_node_int(n, "axis"),
                         fl_node_int(n, "start"), fl_node_int(n, "end"));
}

const char *fl_onnx_emit_pad(fl_onnx *x, const fl_node *n, const char *type)
{
    const int64_t pads[] = {fl_node_int(n, "before"), fl_node_int(n, "after")};

    return FL_ONNX(x, type, first_of(x, n), fl_onnx_ints(x, pads, 2),
                   fl_onnx_number(x, fl_node_float(n, "value")),
                   fl_onnx_int1(x, fl_node_int(n, "axis")));
}

/* A sample's square as one line, of which some elements are taken. */
const char *fl_onnx_emit_lower_triangle(fl_onnx *x, const fl_node *n,
                                        const char *type)
{
    int64_t size = n->in[0]->shape.dim[1], count = 0;
    int64_t diagonal = fl_node_int(n, "diagonal") != 0;
    int64_t *at = fl_onnx_room(x, (size_t)(size * size), sizeof *at);
    fl_shape line = fl_shape_2(-1, size * size);

    (void)type;
    for (int64_t i = 0; at && i < size; i++)
        for (int64_t j = 0; j < i + diagonal; j++)
            at[count++] = i * size + j;
    return at ? fl_onnx_gather(x, fl_onnx_reshape(x, first_of(x, n), &line),
                               fl_onnx_ints(x, at, count), 1)
              : NULL;
}

const char *fl_onnx_emit_expand(fl_onnx *x, const fl_node *n, const char *type)
{
    int64_t times[FLEET_MAX_DIM + 1];
    int n_dim = n->in[0]->shape.n_dim;

    for (int i = 0; i < n_dim; i++)
        times[i] = i == fl_node_int(n, "axis") ? fl_node_int(n, "times") : 1;
    return FL_ONNX(x, type, first_of(x, n), fl_onnx_ints(x, times, n_dim));
}

const char *fl_onnx_emit_gather(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *index = fl_onnx_unsqueeze(x, fl_onnx_of(x, n->in[1]), 2);
    const char *out = FL_ONNX(x, type, first_of(x, n), index);

    fl_onnx_with_int(x, "batch_dims", 1);
    return out;
}

const char *fl_onnx_emit_one_hot(fl_onnx *x, const fl_node *n, const char *type)
{
    static const float values[] = {0, 1};
    float *copy = fl_onnx_room(x, 2, sizeof *copy);
    const char *what = "off and on", *both = fl_onnx_known(x, what), *out;

    if (!copy)
        return NULL;
    memcpy(copy, values, sizeof values);
    if (!both)
        both = fl_onnx_remember(
            x, what,
            fl_onnx_weights(x, &(fl_onnx_tensor){.name = "/off_and_on",
                                                 .type = FL_ONNX_FLOAT,
                                                 .n_dim = 1,
                                                 .dim = {2},
                                                 .data = copy,
                                                 .size = sizeof values}));
    out = FL_ONNX(x, type, first_of(x, n),
                  fl_onnx_integer(x, fl_node_int(n, "depth")), both);
    return n->out[0]->shape.n_dim < 3
               ? fl_onnx_reshape(x, out, &n->out[0]->shape)
               : out;
}

const char *fl_onnx_emit_reduce(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *out = FL_ONNX(x, type, first_of(x, n),
                              fl_onnx_int1(x, fl_node_int(n, "axis")));

    fl_onnx_with_int(x, "keepdims", fl_node_int(n, "keep_dim") != 0);
    return out;
}

const char *fl_onnx_emit_mean(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *out = FL_ONNX(x, type, first_of(x, n));

    fl_onnx_with_int(x, "keepdims", 0);
    return fl_onnx_reshape(x, out, &n->out[0]->shape);
}
