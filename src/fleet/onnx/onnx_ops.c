/* onnx_ops.c - the list of operators with their forms in ONNX, and the forms of
 * operators that work element by element. */
#include "fleet/onnx/onnx_ops.h"

#include "ops/ops.h"

static const fl_onnx_op forms[] = {
#define FL_ONNX_OP(name, type, emitter)                                        \
    {&fl_op_##name, type, fl_onnx_emit_##emitter, NULL},
#define FL_ONNX_NOT(name, why) {&fl_op_##name, NULL, NULL, why},
#include "fleet/onnx/onnx_ops.def"
#undef FL_ONNX_OP
#undef FL_ONNX_NOT
};

const fl_onnx_op *fl_onnx_op_of(const fl_op *op)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].op == op)
            return &forms[i];
    return NULL;
}

void fl_onnx_emit_node(fl_onnx *x, const fl_node *n)
{
    const fl_onnx_op *o = fl_onnx_op_of(n->op);

    if (x->status != FLEET_OK)
        return;
    if (o && o->emit)
        fl_onnx_set(x, n->out[0], o->emit(x, n, o->type));
    else
        fl_onnx_failed(
            x, fl_fail(FLEET_EUNSUPPORTED,
                       "onnx: operator %s, which makes \"%s\", has no form in "
                       "ONNX: %s",
                       n->op->name, n->out[0]->name,
                       o ? o->why : "it is not in the list of those"));
}

/* --- element by element --------------------------------------------------- */

static const char *input_of(fl_onnx *x, const fl_node *n, int i)
{
    return fl_onnx_of(x, fl_input_of(n, i));
}

const char *fl_onnx_emit_same(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in[2] = {input_of(x, n, 0), input_of(x, n, 1)};

    return fl_onnx_put(x, type, in, (size_t)n->n_in);
}

const char *fl_onnx_emit_with_alpha(fl_onnx *x, const fl_node *n,
                                    const char *type)
{
    const char *out = FL_ONNX(x, type, input_of(x, n, 0));

    fl_onnx_with_float(x, "alpha", fl_node_float(n, "alpha"));
    return out;
}

const char *fl_onnx_emit_pow(fl_onnx *x, const fl_node *n, const char *type)
{
    return FL_ONNX(x, type, input_of(x, n, 0),
                   fl_onnx_number(x, fl_node_float(n, "factor")));
}

const char *fl_onnx_emit_clip(fl_onnx *x, const fl_node *n, const char *type)
{
    return FL_ONNX(x, type, input_of(x, n, 0),
                   fl_onnx_number(x, fl_node_float(n, "min")),
                   fl_onnx_number(x, fl_node_float(n, "max")));
}

const char *fl_onnx_emit_gelu_tanh(fl_onnx *x, const fl_node *n,
                                   const char *type)
{
    const char *out = FL_ONNX(x, type, input_of(x, n, 0));

    fl_onnx_with_text(x, "approximate", "tanh");
    return out;
}

/* x sigmoid(beta x) */
const char *fl_onnx_emit_swish(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in = input_of(x, n, 0), *share = in;
    double beta = fl_node_float(n, "beta");

    if (beta != 1)
        share = FL_ONNX(x, "Mul", in, fl_onnx_number(x, beta));
    share = FL_ONNX(x, type, share);
    return FL_ONNX(x, "Mul", in, share);
}

const char *fl_onnx_emit_scale(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *out = FL_ONNX(x, type, input_of(x, n, 0),
                              fl_onnx_number(x, fl_node_float(n, "scale")));

    if (fl_node_float(n, "bias") != 0)
        out =
            FL_ONNX(x, "Add", out, fl_onnx_number(x, fl_node_float(n, "bias")));
    return out;
}

const char *fl_onnx_emit_square(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in = input_of(x, n, 0);

    return FL_ONNX(x, type, in, in);
}

const char *fl_onnx_emit_constant(fl_onnx *x, const fl_node *n,
                                  const char *type)
{
    (void)type;
    return fl_onnx_filled(x, fl_node_float(n, "value"), 1);
}

const char *fl_onnx_emit_cast(fl_onnx *x, const fl_node *n, const char *type)
{
    (void)type;
    return fl_onnx_cast(x, input_of(x, n, 0), FL_ONNX_FLOAT);
}

/* --- what is true --------------------------------------------------------- */

static const char *truth_of(fl_onnx *x, const char *v)
{
    return fl_onnx_cast(x, v, FL_ONNX_BOOL);
}

const char *fl_onnx_emit_prelu(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *in = input_of(x, n, 0);
    const char *positive = FL_ONNX(x, "Greater", in, fl_onnx_number(x, 0));
    const char *other = FL_ONNX(x, "Mul", in, input_of(x, n, 1));

    return FL_ONNX(x, type, positive, in, other);
}

const char *fl_onnx_emit_where_true(fl_onnx *x, const fl_node *n,
                                    const char *type)
{
    return FL_ONNX(x, type, truth_of(x, input_of(x, n, 0)), input_of(x, n, 1),
                   fl_onnx_number(x, 0));
}

const char *fl_onnx_emit_where_false(fl_onnx *x, const fl_node *n,
                                     const char *type)
{
    return FL_ONNX(x, type, truth_of(x, input_of(x, n, 0)),
                   fl_onnx_number(x, 0), input_of(x, n, 1));
}

const char *fl_onnx_emit_comparison(fl_onnx *x, const fl_node *n,
                                    const char *type)
{
    return fl_onnx_cast(x,
                        FL_ONNX(x, type, input_of(x, n, 0), input_of(x, n, 1)),
                        FL_ONNX_FLOAT);
}

const char *fl_onnx_emit_not_equal(fl_onnx *x, const fl_node *n,
                                   const char *type)
{
    const char *equal = FL_ONNX(x, type, input_of(x, n, 0), input_of(x, n, 1));

    return fl_onnx_cast(x, FL_ONNX(x, "Not", equal), FL_ONNX_FLOAT);
}

const char *fl_onnx_emit_logic(fl_onnx *x, const fl_node *n, const char *type)
{
    const char *a = truth_of(x, input_of(x, n, 0));
    const char *b = truth_of(x, input_of(x, n, 1));

    return fl_onnx_cast(x, FL_ONNX(x, type, a, b), FL_ONNX_FLOAT);
}
