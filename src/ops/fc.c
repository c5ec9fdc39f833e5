/* fc.c - fully connected layer and matrix product.
 *
 *   x [B, K]   W [K, N]   b [N], may be absent   out [B, N]
 *
 * With g the gradient of out, after the activation's:
 *
 *   dx = g . W'     dW = x' . g     db = the sum of g's rows
 */
#include <fleet/nn.h>

#include "ops/fc_kernels.h"
#include "ops/ops.h"
#include "runtime/graph/program.h"
#include "runtime/passes/place_steps.h"
#include "runtime/simd/simd.h"

enum { IN_X, IN_W, IN_B };

/* One with an attribute is a node of its own, see fleet_fc(). */
static fleet_status check_activation(int64_t kind)
{
    const fl_op *op = fl_activation_op(kind);

    if (kind != FLEET_LINEAR && !op)
        return fl_fail(FLEET_EINVAL, "fc: activation %lld does not exist",
                       (long long)kind);
    if (op && op->attrs)
        return fl_fail(FLEET_EINVAL,
                       "fc: activation %lld, %s, has to be a node after it",
                       (long long)kind, op->name);
    return FLEET_OK;
}

static fleet_status fc_infer(fl_node *n)
{
    const fleet_var *x = n->in[IN_X], *w = n->in[IN_W];
    fl_shape out;

    const fl_attr *a = fl_node_attr(n, "activation");

    FL_TRY(fl_want_dtype(n, IN_X, FLEET_FLOAT32));
    FL_TRY(fl_want_dtype(n, IN_W, FLEET_FLOAT32));
    if (a)
        FL_TRY(check_activation(a->i));
    if (w->shape.n_dim != 2 || fl_shape_batched(&w->shape))
        return fl_want_shape(n, IN_W, "a matrix without a batch");
    if (!fl_shape_batched(&x->shape) || x->shape.n_dim < 2)
        return fl_want_shape(n, IN_X, "[-1,K]");
    if (fl_in_cols(n, IN_X) != w->shape.dim[0])
        return fl_fail(FLEET_ESHAPE,
                       "%s: cannot multiply \"%s\" %s by \"%s\" "
                       "%s",
                       n->op->name, x->name, fl_shape_print(&x->shape).chars,
                       w->name, fl_shape_print(&w->shape).chars);
    if (n->n_in > IN_B && n->in[IN_B]) {
        FL_TRY(fl_want_dtype(n, IN_B, FLEET_FLOAT32));
        if (n->in[IN_B]->shape.n_dim != 1 ||
            n->in[IN_B]->shape.dim[0] != w->shape.dim[1])
            return fl_want_shape(n, IN_B, "one number for each unit");
    }
    out = fl_shape_2(x->shape.dim[0], w->shape.dim[1]);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static const fl_fc_config *make_config(fl_lowering *l, const fl_node *n,
                                       bool packed)
{
    const fleet_var *w = n->in[IN_W];
    const fl_node *fused = l->node[n->id].activation;
    fl_fc_config c = {.k = w->shape.dim[0],
                      .n = w->shape.dim[1],
                      .bias = n->n_in > IN_B && n->in[IN_B],
                      .packed = packed};

    if (fused)
        c.activation = fl_activation_of(fused);
    else if (fl_node_attr(n, "activation"))
        c.activation.kind = (int)fl_node_int(n, "activation");
    return fl_config(l, &c, sizeof c);
}

static fleet_status fc_forward(fl_lowering *l, const fl_node *n)
{
    const fl_fc_config *c = make_config(l, n, false);
    int out = fl_value_of(l, fl_out(l, n, 0)), x = fl_value_of(l, n->in[IN_X]);
    int w = fl_value_of(l, n->in[IN_W]);
    int b = n->n_in > IN_B ? fl_value_of(l, n->in[IN_B]) : -1;
    bool small;

    if (!c)
        return FLEET_ENOMEM;
    small = c->n <= FL_SMALL_N;
    FL_EMIT(l, small ? &fl_kernel_fc_small_forward : &fl_kernel_fc_forward, n,
            c, FL_W(out), FL_R(x), FL_R(w), FL_R(b));
    return FLEET_OK;
}

/* oneDNN transposes W anew for every slice; from four slices on it pays to do
 * it once. Of bfloat16 it has to rearrange W in any case, and a GPU reads it as
 * it is. */
static bool wants_pack(const fl_lowering *l, const fl_node *n,
                       const fl_fc_config *c)
{
    return c->n > FL_SMALL_N && !l->program->training.amp.type &&
           !fl_node_is_for_gpu(l->plan, n) &&
           l->plan->batch >= 4 * l->plan->slice;
}

/* Rows of whole vectors: oneDNN is a fifth slower where their ends are cut. */
static int emit_pack(fl_lowering *l, const fl_node *n, const fl_fc_config *c,
                     int w)
{
    enum { VECTOR = 16 };
    fl_shape shape = fl_shape_2(c->n, (c->k + VECTOR - 1) / VECTOR * VECTOR);
    int wt = fl_temp(l, "wt", FLEET_FLOAT32, &shape);

    FL_EMIT(l, &fl_kernel_fc_pack, n, c, FL_W(wt), FL_R(w));
    return wt;
}

/* dW and db: on a GPU that is one step, because a product can have the sums. */
static fleet_status emit_weight_gradients(fl_lowering *l, const fl_node *n,
                                          const fl_fc_config *c, int g)
{
    const fl_kernel *product =
        c->n <= FL_SMALL_N ? &fl_kernel_fc_small_dw : &fl_kernel_fc_dw;
    const int x = fl_value_of(l, n->in[IN_X]);
    const int dw = fl_gradient_to(l, n->in[IN_W]);
    const int db = c->bias ? fl_gradient_to(l, n->in[IN_B]) : -1;
    const bool both = dw >= 0 && db >= 0 && fl_node_is_for_gpu(l->plan, n);

    if (both)
        FL_EMIT(l, product, n, c, FL_W(dw), FL_R(x), FL_R(g), FL_W(db));
    else if (dw >= 0)
        FL_EMIT(l, product, n, c, FL_W(dw), FL_R(x), FL_R(g));
    if (db >= 0 && !both)
        FL_EMIT(l, &fl_kernel_fc_db, n, c, FL_W(db), FL_R(g));
    return FLEET_OK;
}

static fleet_status fc_gradient(fl_lowering *l, const fl_node *n)
{
    const fl_fc_config *c = make_config(l, n, false);
    const fleet_var *out = fl_out(l, n, 0);
    int g = fl_gradient_of(l, out), w = fl_value_of(l, n->in[IN_W]), to;
    bool small;

    if (!c)
        return FLEET_ENOMEM;
    small = c->n <= FL_SMALL_N;
    if (c->activation.kind != FLEET_LINEAR)
        FL_EMIT(l, &fl_kernel_fc_mask, n, c, FL_RW(g),
                FL_R(fl_value_of(l, out)));
    if ((to = fl_gradient_to(l, n->in[IN_X])) >= 0) {
        bool packed = wants_pack(l, n, c);

        if (packed) {
            c = make_config(l, n, true);
            if (!c)
                return FLEET_ENOMEM;
            w = emit_pack(l, n, c, w);
        }
        FL_EMIT(l, small ? &fl_kernel_fc_small_dx : &fl_kernel_fc_dx, n, c,
                FL_W(to), FL_R(g), FL_R(w));
    }
    return emit_weight_gradients(l, n, c, g);
}

const fl_op fl_op_fc = {
    .name = "fc",
    .n_out = 1,
    .least_in = 2,
    .most_in = 3,
    .attrs = "activation:i",
    .traits = FL_OP_TAKES_ACTIVATION,
    .infer = fc_infer,
    .forward = fc_forward,
    .gradient = fc_gradient,
};

const fl_op fl_op_matmul = {
    .name = "matmul",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .infer = fc_infer,
    .forward = fc_forward,
    .gradient = fc_gradient,
};

/* --- builders ------------------------------------------------------------ */

static fleet_status check_fc(const fleet_var *x, int64_t n, int flatten)
{
    if (flatten < 0 || (flatten > 1 && flatten >= x->shape.n_dim))
        return fl_fail(FLEET_EINVAL,
                       "fc: num_flatten_dims %d of \"%s\" %s; expected 1 to %d",
                       flatten, x->name, fl_shape_print(&x->shape).chars,
                       x->shape.n_dim - 1);
    if (n < 1 || n > INT32_MAX)
        return fl_fail(FLEET_ESHAPE, "fc: cannot have %lld units",
                       (long long)n);
    if (x->ragged)
        return fl_fail(FLEET_EDTYPE,
                       "fc: \"%s\" is ragged %s, not float32: pool it first",
                       x->name, fleet_dtype_name(x->dtype));
    if (!fl_shape_batched(&x->shape) || x->shape.n_dim < 2)
        return fl_fail(FLEET_ESHAPE, "fc: \"%s\" has shape %s; expected [-1,K]",
                       x->name, fl_shape_print(&x->shape).chars);
    return FLEET_OK;
}

/* As [-L, K] rows of the batch, and back. Both are views. */
static fleet_var *fold(fleet_program *p, fleet_var *x, int dims)
{
    fl_shape s = x->shape;
    int64_t shape[2] = {s.dim[0], 1};

    for (int i = 1; i < s.n_dim; i++)
        shape[i >= dims] *= s.dim[i];
    return fleet_reshape(p, x, shape, 2);
}

static fleet_var *unfold(fleet_program *p, fleet_var *y, const fl_shape *x,
                         int dims, int64_t n)
{
    fl_shape s = *x;

    s.dim[dims] = n;
    return y ? fleet_reshape(p, y, s.dim, dims + 1) : NULL;
}

static fleet_var *fc_of_rows(fleet_program *p, fleet_var *x, int64_t n,
                             const fleet_fc_options *o)
{
    fleet_fc_options rows = *o;
    fl_shape shape = x->shape;

    rows.num_flatten_dims = 0;
    x = fold(p, x, o->num_flatten_dims);
    return x ? unfold(p, fleet_fc(p, x, n, &rows), &shape, o->num_flatten_dims,
                      n)
             : NULL;
}

fleet_var *fleet_fc(fleet_program *p, fleet_var *x, int64_t n,
                    const fleet_fc_options *options)
{
    static const fleet_fc_options defaults;
    const fleet_fc_options *o = options ? options : &defaults;
    fleet_initializer xavier = {FLEET_INIT_XAVIER_UNIFORM, 0, 0};
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_var *in[3] = {x};
    const fl_op *activation = fl_activation_op(o->activation);
    bool apart = activation && activation->attrs;
    fleet_status status;
    const char *name;
    fl_shape w, b;
    fleet_var *out;

    if (!fl_builder_ready(p, x))
        return NULL;
    status = check_fc(x, n, o->num_flatten_dims);
    if (status == FLEET_OK && o->num_flatten_dims > 1)
        return fc_of_rows(p, x, n, o);
    name = o->name ? o->name : fl_program_name(p, "fc");
    if (status != FLEET_OK || !name)
        return fl_program_failed(p, status ? status : FLEET_ENOMEM);
    w = fl_shape_2(fl_shape_cols(&x->shape), n);
    b = fl_shape_1(n);
    in[IN_W] = fl_program_param(p, name, "w", &w, &o->weight, xavier);
    if (!o->no_bias)
        in[IN_B] = fl_program_param(p, name, "b", &b, &o->bias, zero);
    out = fl_program_add(
        p, &fl_op_fc, in, o->no_bias ? 2 : 3,
        &FL_ATTR_INT("activation", apart ? FLEET_LINEAR : (int)o->activation),
        1);
    /* Pass fuse_activation makes one of the two again. */
    return apart ? fl_activation_add(p, out, o->activation, 0) : out;
}

fleet_var *fleet_matmul(fleet_program *p, fleet_var *x, fleet_var *y)
{
    return fl_build_of_two(p, &fl_op_matmul, x, y, NULL, 0);
}
