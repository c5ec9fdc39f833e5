/* activation.c - operators of one value whose result has its shape: the
 * activations of activations.def, square, scale.
 *
 * An operator is an fl_op, a pair of kernels (its result, its gradient) and a
 * line in the table of this file, which lowering looks them up in.
 */
#include "ops/activation.h"

#include <math.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "runtime/simd/simd.h"

/* --- kernels: out <- in; dx <- dy, and what the derivative is computed from */

enum { OUT, IN, OTHER };

static fleet_status activation_run(const fl_instance *in, const fl_range *r)
{
    const fl_activation *a = in->step->config;

    fl_simd_best()->activation[a->kind].forward(
        fl_rows_f32(in, OUT, r), fl_rows_f32(in, IN, r), a->alpha,
        fl_range_count(in, OUT, r));
    return FLEET_OK;
}

static fleet_status activation_grad_run(const fl_instance *in,
                                        const fl_range *r)
{
    const fl_activation *a = in->step->config;

    fl_simd_best()->activation[a->kind].gradient(
        fl_rows_f32(in, OUT, r), fl_rows_f32(in, OTHER, r),
        fl_rows_f32(in, IN, r), a->alpha, fl_range_count(in, OUT, r));
    return FLEET_OK;
}

static fleet_status square_run(const fl_instance *in, const fl_range *r)
{
    const float *x = fl_rows_f32(in, IN, r);

    fl_simd_best()->mul(fl_rows_f32(in, OUT, r), x, x,
                        fl_range_count(in, OUT, r));
    return FLEET_OK;
}

static fleet_status square_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_simd *simd = fl_simd_best();
    float *dx = fl_rows_f32(in, OUT, r);
    int64_t n = fl_range_count(in, OUT, r);

    simd->mul(dx, fl_rows_f32(in, IN, r), fl_rows_f32(in, OTHER, r), n);
    simd->add(dx, dx, dx, n);
    return FLEET_OK;
}

static fleet_status scale_run(const fl_instance *in, const fl_range *r)
{
    const fl_scale_config *c = in->step->config;

    fl_simd_best()->scale(fl_rows_f32(in, OUT, r), fl_rows_f32(in, IN, r),
                          c->scale, c->bias, fl_range_count(in, OUT, r));
    return FLEET_OK;
}

static fleet_status scale_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_scale_config *c = in->step->config;

    fl_simd_best()->scale(fl_rows_f32(in, OUT, r), fl_rows_f32(in, IN, r),
                          c->scale, 0.0f, fl_range_count(in, OUT, r));
    return FLEET_OK;
}

/* --- what the kernels are configured with --------------------------------- */

fl_activation fl_activation_of(const fl_node *n)
{
    const fl_attr *alpha = fl_node_attr(n, "alpha");

    return (fl_activation){n->op->activation, alpha ? (float)alpha->f : 0.0f};
}

static const void *activation_config(fl_lowering *l, const fl_node *n)
{
    fl_activation a = fl_activation_of(n);

    return fl_config(l, &a, sizeof a);
}

static const void *scale_config(fl_lowering *l, const fl_node *n)
{
    fl_scale_config c = {(float)fl_node_float(n, "scale"),
                         (float)fl_node_float(n, "bias")};

    return fl_config(l, &c, sizeof c);
}

static const void *no_config(fl_lowering *l, const fl_node *n)
{
    (void)l, (void)n;
    return NULL;
}

/* --- the table, and what looks into it ------------------------------------ */

typedef struct unary_op {
    const fl_op *op;
    fl_kernel_pair run, grad;
    const void *(*config)(fl_lowering *l, const fl_node *n);
    bool from_input; /* the derivative is: else it is from the output */
} unary_op;

static const unary_op unary_ops[] = {
#define FL_ACTIVATION(NAME, name, ...)                                         \
    {&fl_op_##name, FL_KERNEL_PAIR(#name, activation_run),                     \
     FL_KERNEL_PAIR(#name ".grad", activation_grad_run), activation_config,    \
     false},
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
    {&fl_op_square, FL_KERNEL_PAIR("square", square_run),
     FL_KERNEL_PAIR("square.grad", square_grad_run), no_config, true},
    {&fl_op_scale, FL_KERNEL_PAIR("scale", scale_run),
     FL_KERNEL_PAIR("scale.grad", scale_grad_run), scale_config, false},
};

static const unary_op *unary_op_of(const fl_node *n)
{
    const unary_op *u = unary_ops;

    while (u->op != n->op)
        u++;
    return u;
}

static fleet_status unary_infer(fl_node *n)
{
    const fl_attr *alpha = fl_node_attr(n, "alpha");

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (alpha && !(isfinite((float)alpha->f) && alpha->f >= 0))
        return fl_fail(FLEET_EINVAL,
                       "%s: alpha %g must be finite and not negative",
                       n->op->name, alpha->f);
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static fleet_status unary_forward(fl_lowering *l, const fl_node *n)
{
    const unary_op *u = unary_op_of(n);

    FL_EMIT(l, fl_kernel_for(&u->run, n->out[0]), n, u->config(l, n),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status unary_gradient(fl_lowering *l, const fl_node *n)
{
    const unary_op *u = unary_op_of(n);
    int dy = fl_gradient_of(l, n->out[0]);
    int dx = fl_gradient_to(l, n->in[0]);

    if (dx >= 0)
        FL_EMIT(l, fl_kernel_for(&u->grad, n->out[0]), n, u->config(l, n),
                FL_W(dx), FL_R(dy),
                FL_R(fl_value_of(l, u->from_input ? n->in[0] : n->out[0])));
    return FLEET_OK;
}

/* --- the operators -------------------------------------------------------- */

#define UNARY                                                                  \
    .n_out = 1, .least_in = 1, .most_in = 1, .infer = unary_infer,             \
    .forward = unary_forward, .gradient = unary_gradient

#define FL_ACTIVATION(NAME, title, default_alpha, ...)                         \
    const fl_op fl_op_##title = {.name = #title,                               \
                                 .attrs =                                      \
                                     (default_alpha) != 0 ? "alpha:f" : NULL,  \
                                 .activation = FLEET_##NAME,                   \
                                 UNARY};
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION

const fl_op fl_op_square = {.name = "square", UNARY};
const fl_op fl_op_scale = {.name = "scale", .attrs = "scale:f bias:f", UNARY};

const fl_op *fl_activation_op(int64_t kind)
{
    static const fl_op *const op[FL_N_ACTIVATION] = {
#define FL_ACTIVATION(NAME, name, ...) [FLEET_##NAME] = &fl_op_##name,
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
    };

    return kind > FLEET_LINEAR && kind < FL_N_ACTIVATION ? op[kind] : NULL;
}

/* --- builders ------------------------------------------------------------- */

fleet_var *fl_activation_add(fleet_program *p, fleet_var *x, int64_t kind,
                             float alpha)
{
    static const float default_alpha[FL_N_ACTIVATION] = {
#define FL_ACTIVATION(NAME, name, value, ...) [FLEET_##NAME] = (value),
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
    };
    fl_attr attr =
        FL_ATTR_FLOAT("alpha", alpha != 0 ? alpha : default_alpha[kind]);

    return fl_build_of_one(p, fl_activation_op(kind), x, &attr,
                           default_alpha[kind] != 0);
}

fleet_var *fleet_relu(fleet_program *p, fleet_var *x)
{
    return fl_activation_add(p, x, FLEET_RELU, 0);
}

fleet_var *fleet_tanh(fleet_program *p, fleet_var *x)
{
    return fl_activation_add(p, x, FLEET_TANH, 0);
}

fleet_var *fleet_sigmoid(fleet_program *p, fleet_var *x)
{
    return fl_activation_add(p, x, FLEET_SIGMOID, 0);
}

fleet_var *fleet_leaky_relu(fleet_program *p, fleet_var *x, float alpha)
{
    return fl_activation_add(p, x, FLEET_LEAKY_RELU, alpha);
}

fleet_var *fleet_square(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_square, x, NULL, 0);
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
