/* unary.c - the operators of unaries.def: one value, element by element, whose
 * result has its shape. An fc cannot do them, so that their derivatives may be
 * of the input; what an fc can do is in activation.c. */
#include "ops/math/unary.h"

#include <math.h>

#include <fleet/ops.h>

#include "ops/ops.h"
#include "runtime/simd/simd.h"

/* --- kernels: out <- in; dx <- dy, and what the derivative is of ---------- */

enum { OUT, IN, OF };

static fleet_status unary_run(const fl_instance *in, const fl_range *r)
{
    const fl_unary_config *c = in->step->config;

    fl_simd_best()->unary[c->kind].forward(fl_rows_f32(in, OUT, r),
                                           fl_rows_f32(in, IN, r), c->a, c->b,
                                           fl_range_count(in, OUT, r));
    return FLEET_OK;
}

static fleet_status unary_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_unary_config *c = in->step->config;

    fl_simd_best()->unary[c->kind].gradient(
        fl_rows_f32(in, OUT, r), fl_rows_f32(in, OF, r), fl_rows_f32(in, IN, r),
        c->a, c->b, fl_range_count(in, OUT, r));
    return FLEET_OK;
}

/* --- the list ------------------------------------------------------------- */

typedef struct unary_op {
    const fl_op *op;
    const char *a, *b;
    fl_kernel_pair run, grad;
    int of; /* what the derivative is computed from: OUT or IN */
} unary_op;

static const unary_op unary_ops[FL_N_UNARY] = {
#define FL_UNARY(NAME, name, attrs, a, b, FROM, ...)                           \
    {&fl_op_##name,                                                            \
     a,                                                                        \
     b,                                                                        \
     FL_KERNEL_PAIR(#name, unary_run),                                         \
     FL_KERNEL_PAIR(#name ".grad", unary_grad_run),                            \
     FROM},
#include "runtime/simd/unaries.def"
#undef FL_UNARY
};

static int kind_of(const fl_node *n)
{
    int kind = 0;

    while (unary_ops[kind].op != n->op)
        kind++;
    return kind;
}

static const void *unary_config(fl_lowering *l, const fl_node *n)
{
    int kind = kind_of(n);
    const unary_op *u = &unary_ops[kind];
    fl_unary_config c = {kind, u->a ? (float)fl_node_float(n, u->a) : 0.0f,
                         u->b ? (float)fl_node_float(n, u->b) : 0.0f};

    return fl_config(l, &c, sizeof c);
}

/* --- shapes, lowering ----------------------------------------------------- */

static fleet_status check_attrs(const fl_node *n)
{
    for (int i = 0; i < n->n_attr; i++) {
        const fl_attr *a = &n->attr[i];

        if (!isfinite((float)a->f))
            return fl_fail(FLEET_EINVAL, "%s: %s %g must be finite",
                           n->op->name, a->name, a->f);
    }
    if (n->op == &fl_op_clip &&
        fl_node_float(n, "min") >= fl_node_float(n, "max"))
        return fl_fail(FLEET_EINVAL, "clip: min %g must be below max %g",
                       fl_node_float(n, "min"), fl_node_float(n, "max"));
    if (n->op == &fl_op_elu && fl_node_float(n, "alpha") < 0)
        return fl_fail(FLEET_EINVAL, "elu: alpha %g must not be negative",
                       fl_node_float(n, "alpha"));
    if (n->op == &fl_op_pow && fl_node_float(n, "factor") == 0)
        return fl_fail(FLEET_EINVAL, "pow: factor 0 makes 1 of all numbers");
    return FLEET_OK;
}

static fleet_status unary_infer(fl_node *n)
{
    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(check_attrs(n));
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static fleet_status unary_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, fl_kernel_for(&unary_ops[kind_of(n)].run, n->out[0]), n,
            unary_config(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status unary_gradient(fl_lowering *l, const fl_node *n)
{
    const unary_op *u = &unary_ops[kind_of(n)];
    int dx = fl_gradient_to(l, n->in[0]);

    if (dx >= 0)
        FL_EMIT(l, fl_kernel_for(&u->grad, n->out[0]), n, unary_config(l, n),
                FL_W(dx), FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, u->of == IN ? n->in[0] : n->out[0])));
    return FLEET_OK;
}

#define FL_UNARY(NAME, title, attributes, ...)                                 \
    const fl_op fl_op_##title = {.name = #title,                               \
                                 .n_out = 1,                                   \
                                 .least_in = 1,                                \
                                 .most_in = 1,                                 \
                                 .attrs = attributes,                          \
                                 .infer = unary_infer,                         \
                                 .forward = unary_forward,                     \
                                 .gradient = unary_gradient};
#include "runtime/simd/unaries.def"
#undef FL_UNARY

/* --- builders ------------------------------------------------------------- */

fleet_var *fleet_exp(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_exp, x, NULL, 0);
}

fleet_var *fleet_log(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_log, x, NULL, 0);
}

fleet_var *fleet_sqrt(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_sqrt, x, NULL, 0);
}

fleet_var *fleet_abs(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_abs, x, NULL, 0);
}

fleet_var *fleet_pow(fleet_program *p, fleet_var *x, float factor)
{
    return fl_build_of_one(p, &fl_op_pow, x, &FL_ATTR_FLOAT("factor", factor),
                           1);
}

fleet_var *fleet_clip(fleet_program *p, fleet_var *x, float min, float max)
{
    fl_attr attr[] = {FL_ATTR_FLOAT("min", min), FL_ATTR_FLOAT("max", max)};

    return fl_build_of_one(p, &fl_op_clip, x, attr, 2);
}

fleet_var *fleet_elu(fleet_program *p, fleet_var *x, float alpha)
{
    return fl_build_of_one(p, &fl_op_elu, x,
                           &FL_ATTR_FLOAT("alpha", alpha != 0 ? alpha : 1.0f),
                           1);
}

fleet_var *fleet_gelu(fleet_program *p, fleet_var *x, int approximate)
{
    return fl_build_of_one(p, approximate ? &fl_op_gelu_tanh : &fl_op_gelu, x,
                           NULL, 0);
}

fleet_var *fleet_swish(fleet_program *p, fleet_var *x, float beta)
{
    return fl_build_of_one(p, &fl_op_swish, x,
                           &FL_ATTR_FLOAT("beta", beta != 0 ? beta : 1.0f), 1);
}

fleet_var *fleet_softplus(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_softplus, x, NULL, 0);
}
