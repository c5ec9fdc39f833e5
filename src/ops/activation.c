/* activation.c - relu, tanh, sigmoid, square, scale: one value in, one out, of
 * the same shape.
 *
 * Derivatives come from the output where it is enough for them, else from the
 * input: relu' = y > 0, tanh' = 1 - y y, sigmoid' = y (1 - y), square' = 2 x.
 */
#include <math.h>

#include <fleet/nn.h>

#include "ops/activation.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

static fleet_status same_infer(fl_node *n)
{
    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

/* --- kernels: out <- in; dx <- dy, and what the derivative needs ---------- */

enum { OUT, IN, OTHER };

/* n elements from where the range begins: rows, or all without a batch. */
static int64_t span(const fl_instance *in, const fl_range *r, float **out)
{
    const fl_arg *a = &in->arg[OUT];

    *out = fl_rows_f32(in, OUT, r);
    if (a->factor)
        return fl_count(in, OUT, r);
    return a->rows * a->cols;
}

#define UNARY_KERNEL(op)                                                       \
    static fleet_status op##_run(const fl_instance *in, const fl_range *r)     \
    {                                                                          \
        float *out;                                                            \
        int64_t n = span(in, r, &out);                                         \
                                                                               \
        fl_simd_best()->op(out, fl_rows_f32(in, IN, r), n);                    \
        return FLEET_OK;                                                       \
    }                                                                          \
                                                                               \
    static fleet_status op##_grad_run(const fl_instance *in,                   \
                                      const fl_range *r)                       \
    {                                                                          \
        float *out;                                                            \
        int64_t n = span(in, r, &out);                                         \
                                                                               \
        fl_simd_best()->op##_grad(out, fl_rows_f32(in, OTHER, r),              \
                                  fl_rows_f32(in, IN, r), n);                  \
        return FLEET_OK;                                                       \
    }

UNARY_KERNEL(relu)
UNARY_KERNEL(tanh)
UNARY_KERNEL(sigmoid)

static fleet_status square_run(const fl_instance *in, const fl_range *r)
{
    const float *x = fl_rows_f32(in, IN, r);
    float *out;
    int64_t n = span(in, r, &out);

    fl_simd_best()->mul(out, x, x, n);
    return FLEET_OK;
}

static fleet_status square_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_simd *simd = fl_simd_best();
    float *dx;
    int64_t n = span(in, r, &dx);

    simd->mul(dx, fl_rows_f32(in, IN, r), fl_rows_f32(in, OTHER, r), n);
    simd->add(dx, dx, dx, n);
    return FLEET_OK;
}

static fleet_status scale_run(const fl_instance *in, const fl_range *r)
{
    const fl_scale_config *c = in->step->config;
    float *out;
    int64_t n = span(in, r, &out);

    fl_simd_best()->scale(out, fl_rows_f32(in, IN, r), c->scale, c->bias, n);
    return FLEET_OK;
}

static fleet_status scale_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_scale_config *c = in->step->config;
    float *dx;
    int64_t n = span(in, r, &dx);

    fl_simd_best()->scale(dx, fl_rows_f32(in, IN, r), c->scale, 0.0f, n);
    return FLEET_OK;
}

/* A value without a batch is the work of a single part. */
#define KERNELS(op)                                                            \
    static const fl_kernel_pair op##_pair = FL_KERNEL_PAIR(#op, op##_run);     \
    static const fl_kernel_pair op##_grad_pair =                               \
        FL_KERNEL_PAIR(#op ".grad", op##_grad_run);

KERNELS(relu)
KERNELS(tanh)
KERNELS(sigmoid)
KERNELS(square)
KERNELS(scale)

/* --- lowering ------------------------------------------------------------ */

static const void *scale_of(fl_lowering *l, const fl_node *n)
{
    fl_scale_config c;

    if (!fl_node_attr(n, "scale"))
        return NULL;
    c.scale = (float)fl_node_float(n, "scale");
    c.bias = (float)fl_node_float(n, "bias");
    return fl_config(l, &c, sizeof c);
}

/* The derivative comes from the output, unless it is square's. */
#define OP(op, code, attributes)                                               \
    static fleet_status op##_forward(fl_lowering *l, const fl_node *n)         \
    {                                                                          \
        FL_EMIT(l, fl_kernel_for(&op##_pair, n->out[0]), n, scale_of(l, n),    \
                FL_W(fl_value_of(l, n->out[0])),                               \
                FL_R(fl_value_of(l, n->in[0])));                               \
        return FLEET_OK;                                                       \
    }                                                                          \
                                                                               \
    static fleet_status op##_gradient(fl_lowering *l, const fl_node *n)        \
    {                                                                          \
        bool from_input = fl_ops_from_input(n);                                \
        int dy = fl_gradient_of(l, n->out[0]);                                 \
        int to = fl_gradient_to(l, n->in[0]);                                  \
                                                                               \
        if (to >= 0)                                                           \
            FL_EMIT(l, fl_kernel_for(&op##_grad_pair, n->out[0]), n,           \
                    scale_of(l, n), FL_W(to), FL_R(dy),                        \
                    FL_R(fl_value_of(l, from_input ? n->in[0] : n->out[0])));  \
        return FLEET_OK;                                                       \
    }                                                                          \
                                                                               \
    const fl_op fl_op_##op = {                                                 \
        .name = #op,                                                           \
        .n_out = 1,                                                            \
        .least_in = 1,                                                         \
        .most_in = 1,                                                          \
        .attrs = attributes,                                                   \
        .activation = code,                                                    \
        .infer = same_infer,                                                   \
        .forward = op##_forward,                                               \
        .gradient = op##_gradient,                                             \
    };

static bool fl_ops_from_input(const fl_node *n)
{
    return n->op == &fl_op_square;
}

OP(relu, FLEET_RELU, NULL)
OP(tanh, FLEET_TANH, NULL)
OP(sigmoid, FLEET_SIGMOID, NULL)
OP(square, 0, NULL)
OP(scale, 0, "scale:f bias:f")

/* --- builders ------------------------------------------------------------ */

static fleet_var *add(fleet_program *p, const fl_op *op, fleet_var *x)
{
    return fl_builder_ready(p, x) ? fl_program_add(p, op, &x, 1, NULL, 0)
                                  : NULL;
}

fleet_var *fleet_relu(fleet_program *p, fleet_var *x)
{
    return add(p, &fl_op_relu, x);
}

fleet_var *fleet_tanh(fleet_program *p, fleet_var *x)
{
    return add(p, &fl_op_tanh, x);
}

fleet_var *fleet_sigmoid(fleet_program *p, fleet_var *x)
{
    return add(p, &fl_op_sigmoid, x);
}

fleet_var *fleet_square(fleet_program *p, fleet_var *x)
{
    return add(p, &fl_op_square, x);
}

fleet_var *fleet_scale(fleet_program *p, fleet_var *x, float scale, float bias)
{
    fl_attr attr[] = {FL_ATTR_FLOAT("scale", scale),
                      FL_ATTR_FLOAT("bias", bias)};

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!isfinite(scale) || !isfinite(bias))
        return fl_program_failed(p, fl_fail(FLEET_EINVAL,
                                            "scale: %g and %g must be finite",
                                            (double)scale, (double)bias));
    return fl_program_add(p, &fl_op_scale, &x, 1, attr, 2);
}
