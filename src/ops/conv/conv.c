/* conv.c - convolutions of one and of two dimensions, as PyTorch has them.
 *
 *   x [B, I, H, W]   w [O, I / groups, h, w]   b [O], may be absent
 *   out [B, O, H', W']
 *
 * Of one dimension H and h are absent: what is computed is that of a height of
 * 1. Images go through forward and dx slice by slice. dW sums over the whole
 * batch: a number of parts that follows from shapes alone each sums its images
 * by itself, and then one after the other.
 */
#include "ops/conv/conv.h"

#include <inttypes.h>
#include <math.h>

#include <fleet/conv.h>

#include "ops/activation.h"
#include "ops/conv/window.h"
#include "ops/ops.h"
#include "runtime/graph/initializer.h"
#include "runtime/graph/program.h"
#include "runtime/simd/simd.h"

enum { IN_X, IN_W, IN_B };

static const fl_conv *config_of(const fl_instance *in)
{
    return in->step->config;
}

/* One convolution, or two when the last part has fewer images. */
typedef struct conv_state {
    fl_matmul *conv, *last;
} conv_state;

static fleet_status make(fl_instance *in, fl_matmul **conv, fl_conv_kind kind,
                         int64_t images)
{
    const fl_conv *c = config_of(in);

    FL_TRY(fl_conv_create(conv, kind, &c->shape, images,
                          c->bias && kind == FL_CONV_FORWARD, in->n_thread));
    if (fl_matmul_scratch(*conv) > in->scratch_size)
        in->scratch_size = fl_matmul_scratch(*conv);
    return FLEET_OK;
}

static void conv_finish(fl_instance *in)
{
    conv_state *s = in->state;

    fl_matmul_destroy(s->conv);
    fl_matmul_destroy(s->last);
}

/* --- conv: out <- x, W, b ------------------------------------------------- */

enum { F_OUT, F_X, F_W, F_B };

static fleet_status forward_prepare(fl_instance *in)
{
    conv_state *s = in->state;

    return make(in, &s->conv, FL_CONV_FORWARD, in->slice * in->arg[F_X].factor);
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const conv_state *s = in->state;

    return fl_matmul_run(s->conv, r->thread, fl_rows_f32(in, F_X, r),
                         fl_ptr(in, F_W),
                         config_of(in)->bias ? fl_ptr(in, F_B) : NULL,
                         fl_rows_f32(in, F_OUT, r), r->scratch);
}

static const fl_kernel kernel_forward = {
    .name = "conv",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(conv_state),
    .prepare = forward_prepare,
    .finish = conv_finish,
    .run = forward_run,
};

/* --- conv.dx: dx <- g, W -------------------------------------------------- */

enum { X_DX, X_G, X_W };

static fleet_status dx_prepare(fl_instance *in)
{
    conv_state *s = in->state;

    return make(in, &s->conv, FL_CONV_DX, in->slice * in->arg[X_G].factor);
}

static fleet_status dx_run(const fl_instance *in, const fl_range *r)
{
    const conv_state *s = in->state;

    return fl_matmul_run(s->conv, r->thread, fl_rows_f32(in, X_G, r),
                         fl_ptr(in, X_W), NULL, fl_rows_f32(in, X_DX, r),
                         r->scratch);
}

static const fl_kernel kernel_dx = {
    .name = "conv.dx",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(conv_state),
    .prepare = dx_prepare,
    .finish = conv_finish,
    .run = dx_run,
};

/* --- conv.dw: sums <- x, g ------------------------------------------------ */

enum { W_SUMS, W_X, W_G };

static fleet_status dw_prepare(fl_instance *in)
{
    conv_state *s = in->state;
    int64_t part = config_of(in)->part;
    int64_t images = in->batch * in->arg[W_X].factor;

    in->n_part = (int)((images + part - 1) / part);
    FL_TRY(make(in, &s->last, FL_CONV_DW, images - (in->n_part - 1) * part));
    return in->n_part == 1 ? FLEET_OK : make(in, &s->conv, FL_CONV_DW, part);
}

static fleet_status dw_run(const fl_instance *in, const fl_range *r)
{
    const conv_state *s = in->state;
    int64_t first = r->begin * config_of(in)->part, n = in->arg[W_SUMS].cols;
    fl_matmul *conv = r->begin + 1 < in->n_part ? s->conv : s->last;

    return fl_matmul_run(
        conv, r->thread, (float *)fl_ptr(in, W_X) + first * in->arg[W_X].cols,
        (float *)fl_ptr(in, W_G) + first * in->arg[W_G].cols, NULL,
        (float *)fl_ptr(in, W_SUMS) + r->begin * n, r->scratch);
}

static const fl_kernel kernel_dw = {
    .name = "conv.dw",
    .split = FL_SPLIT_PARTS,
    .state_size = sizeof(conv_state),
    .prepare = dw_prepare,
    .finish = conv_finish,
    .run = dw_run,
    .whole_batch = true,
};

/* --- conv.db: db <- g; a part is a channel -------------------------------- */

enum { B_DB, B_G };

static fleet_status db_prepare(fl_instance *in)
{
    in->n_part = (int)config_of(in)->shape.out;
    return FLEET_OK;
}

static fleet_status db_run(const fl_instance *in, const fl_range *r)
{
    const fl_conv_shape *c = &config_of(in)->shape;
    int64_t plane = c->y[0] * c->y[1];
    const float *g = (float *)fl_ptr(in, B_G) + r->begin * plane;
    float sum = 0.0f;

    for (int64_t i = 0; i < r->batch * in->arg[B_G].factor; i++)
        sum += fl_simd_best()->row_sum(g + i * c->out * plane, plane);
    ((float *)fl_ptr(in, B_DB))[r->begin] = sum;
    return FLEET_OK;
}

static const fl_kernel kernel_db = {
    .name = "conv.db",
    .split = FL_SPLIT_PARTS,
    .prepare = db_prepare,
    .run = db_run,
};

/* --- shapes --------------------------------------------------------------- */

/* How many dimensions an image has beside its channels. */
static int dims_of(const fl_node *n)
{
    return n->op == &fl_op_conv1d ? 1 : 2;
}

/* But for the results' size. */
static fleet_status read_shape(const fl_node *n, fl_conv_shape *c)
{
    const fl_shape *x = &n->in[IN_X]->shape, *w = &n->in[IN_W]->shape;
    int dims = dims_of(n);

    *c = (fl_conv_shape){.groups = fl_node_int(n, "groups"),
                         .in = x->dim[1],
                         .out = w->dim[0],
                         .x = {1, 1},
                         .kernel = {1, 1}};
    for (int i = 0; i < dims; i++) {
        c->x[2 - dims + i] = x->dim[2 + i];
        c->kernel[2 - dims + i] = w->dim[2 + i];
    }
    FL_TRY(fl_window_pair(n, dims, "stride", 1, 1, c->stride));
    FL_TRY(fl_window_pair(n, dims, "padding", 0, 0, c->padding));
    return fl_window_pair(n, dims, "dilation", 1, 1, c->dilation);
}

static fleet_status want_operands(const fl_node *n)
{
    static const char *const images[] = {"[-1,C,L]", "[-1,C,H,W]"};
    static const char *const weights[] = {"[O,C,l]", "[O,C,h,w]"};
    const fleet_var *x = n->in[IN_X], *w = n->in[IN_W];
    const fleet_var *b = fl_input_of(n, IN_B);
    int dims = dims_of(n);

    for (int i = 0; i < (b ? 3 : 2); i++)
        FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
    if (!fl_shape_batched(&x->shape) || x->shape.n_dim != dims + 2)
        return fl_want_shape(n, IN_X, images[dims - 1]);
    if (w->shape.n_dim != dims + 2 || fl_shape_batched(&w->shape))
        return fl_want_shape(n, IN_W, weights[dims - 1]);
    if (b && (b->shape.n_dim != 1 || b->shape.dim[0] != w->shape.dim[0]))
        return fl_want_shape(n, IN_B, "one number for each filter");
    return FLEET_OK;
}

static fleet_status check_channels(const fl_node *n, const fl_conv_shape *c)
{
    if (c->groups < 1 || c->in % c->groups != 0 || c->out % c->groups != 0)
        return fl_fail(FLEET_ESHAPE,
                       "%s: %" PRId64 " groups do not divide %" PRId64
                       " channels of \"%s\" and %" PRId64 " filters",
                       n->op->name, c->groups, c->in, n->in[IN_X]->name,
                       c->out);
    if (n->in[IN_W]->shape.dim[1] * c->groups == c->in)
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE,
                   "%s: weights \"%s\" %s do not fit \"%s\" %s in %" PRId64
                   " groups",
                   n->op->name, n->in[IN_W]->name,
                   fl_shape_print(&n->in[IN_W]->shape).chars, n->in[IN_X]->name,
                   fl_shape_print(&n->in[IN_X]->shape).chars, c->groups);
}

static fleet_status find_results(const fl_node *n, fl_conv_shape *c)
{
    for (int i = 0; i < 2; i++) {
        int64_t room = c->x[i] + 2 * c->padding[i];
        int64_t spread = c->dilation[i] * (c->kernel[i] - 1) + 1;

        if (spread > room)
            return fl_fail(FLEET_ESHAPE,
                           "%s: a kernel that spreads over %" PRId64
                           " is larger than \"%s\" %s with its padding, "
                           "%" PRId64,
                           n->op->name, spread, n->in[IN_X]->name,
                           fl_shape_print(&n->in[IN_X]->shape).chars, room);
        c->y[i] = (room - spread) / c->stride[i] + 1;
    }
    return FLEET_OK;
}

static fleet_status infer(fl_node *n)
{
    fl_shape out = n->in[IN_X]->shape;
    int dims = dims_of(n);
    fl_conv_shape c;

    FL_TRY(want_operands(n));
    FL_TRY(read_shape(n, &c));
    FL_TRY(check_channels(n, &c));
    FL_TRY(find_results(n, &c));
    out.dim[1] = c.out;
    for (int i = 0; i < dims; i++)
        out.dim[2 + i] = c.y[2 - dims + i];
    FL_TRY(fl_shape_check_result(n->op->name, &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* --- lowering ------------------------------------------------------------- */

/* Images of a part: enough parts for eight threads if each has 200,000
 * operations. */
static int64_t part_of(const fl_conv_shape *c, int64_t images)
{
    enum { MOST_PARTS = 8 };
    double work = 2.0 * (double)images * (double)(c->out * c->y[0] * c->y[1]) *
                  (double)(c->in / c->groups * c->kernel[0] * c->kernel[1]);
    int64_t parts =
        work / 2e5 > MOST_PARTS ? MOST_PARTS : (int64_t)(work / 2e5);

    if (parts > images)
        parts = images;
    return parts < 1 ? images : (images + parts - 1) / parts;
}

static int64_t images_of(const fl_lowering *l, const fl_node *n)
{
    return fl_shape_rows(&n->in[IN_X]->shape, l->plan->batch);
}

static const fl_conv *make_config(fl_lowering *l, const fl_node *n)
{
    fl_conv c = {.bias = fl_input_of(n, IN_B) != NULL};

    /* infer() has had no fault with it */
    if (read_shape(n, &c.shape) != FLEET_OK ||
        find_results(n, &c.shape) != FLEET_OK)
        return NULL;
    c.part = part_of(&c.shape, images_of(l, n));
    return fl_config(l, &c, sizeof c);
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &kernel_forward, n, make_config(l, n),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[IN_X])),
            FL_R(fl_value_of(l, n->in[IN_W])),
            FL_R(fl_value_of(l, fl_input_of(n, IN_B))));
    return FLEET_OK;
}

static void emit_dw(fl_lowering *l, const fl_node *n, const fl_conv *c, int dw,
                    int g)
{
    int64_t parts = (images_of(l, n) + c->part - 1) / c->part;
    fl_shape shape = fl_shape_2(parts, fl_shape_count(&n->in[IN_W]->shape, 1));
    int sums = parts > 1 ? fl_temp(l, "sums", FLEET_FLOAT32, &shape) : dw;

    FL_EMIT(l, &kernel_dw, n, c, FL_W(sums), FL_R(fl_value_of(l, n->in[IN_X])),
            FL_R(g));
    if (parts > 1)
        FL_EMIT(l, &fl_kernel_sum_parts, n, NULL, FL_W(dw), FL_R(sums));
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const fl_conv *c = make_config(l, n);
    int g = fl_gradient_of(l, n->out[0]), to;

    if (!c)
        return FLEET_ENOMEM;
    if ((to = fl_gradient_to(l, n->in[IN_X])) >= 0)
        FL_EMIT(l, &kernel_dx, n, c, FL_W(to), FL_R(g),
                FL_R(fl_value_of(l, n->in[IN_W])));
    if ((to = fl_gradient_to(l, n->in[IN_W])) >= 0)
        emit_dw(l, n, c, to, g);
    if ((to = fl_gradient_to(l, fl_input_of(n, IN_B))) >= 0)
        FL_EMIT(l, &kernel_db, n, c, FL_W(to), FL_R(g));
    return FLEET_OK;
}

#define CONV                                                                   \
    .n_out = 1, .least_in = 2, .most_in = 3,                                   \
    .attrs = "stride:v padding:v dilation:v groups:i", .infer = infer,         \
    .forward = forward, .gradient = gradient

const fl_op fl_op_conv1d = {.name = "conv1d", CONV};
const fl_op fl_op_conv2d = {.name = "conv2d", CONV};

/* --- builders ------------------------------------------------------------- */

static fleet_status check_layer(const fl_op *op, const fleet_var *x, int dims,
                                int64_t filters, const int64_t *kernel,
                                int64_t groups)
{
    const fl_shape *s = &x->shape;

    if (!fl_shape_batched(s) || s->n_dim != dims + 2 || x->ragged)
        return fl_fail(FLEET_ESHAPE, "%s: \"%s\" has shape %s; expected %s",
                       op->name, x->name, fl_shape_print(s).chars,
                       dims == 1 ? "[-1,C,L]" : "[-1,C,H,W]");
    if (filters < 1 || filters > FL_MOST_WINDOW)
        return fl_fail(FLEET_ESHAPE, "%s: cannot have %" PRId64 " filters",
                       op->name, filters);
    for (int i = 0; i < dims; i++)
        if (!kernel || kernel[i] < 1 || kernel[i] > FL_MOST_WINDOW)
            return fl_fail(
                FLEET_EINVAL, "%s: kernel size %" PRId64 "; expected 1 to %d",
                op->name, kernel ? kernel[i] : 0, (int)FL_MOST_WINDOW);
    if (groups < 1 || s->dim[1] % groups != 0 || filters % groups != 0)
        return fl_fail(FLEET_ESHAPE,
                       "%s: %" PRId64 " groups do not divide %" PRId64
                       " channels of \"%s\" and %" PRId64 " filters",
                       op->name, groups, s->dim[1], x->name, filters);
    return FLEET_OK;
}

/* [O, C / groups, h, w]. What a filter sees is He's fan. */
static fleet_var *add_weights(fleet_program *p, const char *name,
                              const fl_shape *shape, int64_t groups,
                              const fleet_param_attr *attr)
{
    fleet_initializer he = {FLEET_INIT_KAIMING_NORMAL, 0, 0};
    fleet_param_attr own = *attr;
    int64_t in = fl_shape_cols(shape);
    int64_t out = shape->dim[0] / groups * (in / shape->dim[1]);

    if (own.initializer.kind == FLEET_INIT_DEFAULT)
        own.initializer = he;
    own.initializer = fl_initializer_of(&own.initializer, in, out);
    return fl_program_param(p, name, "w", shape, &own, own.initializer);
}

static void put_pair(int64_t to[2], const int64_t *from, int dims, int64_t none)
{
    for (int i = 0; i < dims; i++)
        to[i] = from[i] ? from[i] : none;
}

static fleet_status check_options(const fl_op *op, const fleet_conv_options *o,
                                  int dims)
{
    if (o->activation != FLEET_LINEAR && !fl_activation_op(o->activation))
        return fl_fail(FLEET_EINVAL, "%s: activation %d does not exist",
                       op->name, (int)o->activation);
    if (dims == 2 || (!o->stride[1] && !o->padding[1] && !o->dilation[1]))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: stride, padding and dilation have one number, and the "
                   "second one is 0",
                   op->name);
}

static fleet_var *add_conv(fleet_program *p, const fl_op *op, fleet_var *x,
                           const fl_shape *w, const fleet_conv_options *o,
                           const char *name)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    int64_t stride[2], padding[2], dilation[2];
    fl_shape b = fl_shape_1(w->dim[0]);
    fleet_var *in[3] = {x}, *out;
    int dims = w->n_dim - 2;

    put_pair(stride, o->stride, dims, 1);
    put_pair(padding, o->padding, dims, 0);
    put_pair(dilation, o->dilation, dims, 1);
    fl_attr attr[] = {FL_ATTR_INTS("stride", stride, dims),
                      FL_ATTR_INTS("padding", padding, dims),
                      FL_ATTR_INTS("dilation", dilation, dims),
                      FL_ATTR_INT("groups", o->groups ? o->groups : 1)};

    in[IN_W] = add_weights(p, name, w, o->groups ? o->groups : 1, &o->weight);
    if (!o->no_bias)
        in[IN_B] = fl_program_param(p, name, "b", &b, &o->bias, zero);
    out = fl_program_add(p, op, in, o->no_bias ? 2 : 3, attr, 4);
    return o->activation == FLEET_LINEAR
               ? out
               : fl_activation_add(p, out, o->activation, 0);
}

static fleet_var *build(fleet_program *p, const fl_op *op, fleet_var *x,
                        int64_t filters, const int64_t *kernel, int dims,
                        const fleet_conv_options *options)
{
    static const fleet_conv_options defaults;
    const fleet_conv_options *o = options ? options : &defaults;
    int64_t groups = o->groups ? o->groups : 1;
    fl_shape w = {.n_dim = dims + 2, .dim = {filters}};
    fleet_status status;
    const char *name;

    if (!fl_builder_ready(p, x))
        return NULL;
    status = check_layer(op, x, dims, filters, kernel, groups);
    if (status == FLEET_OK)
        status = check_options(op, o, dims);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    w.dim[1] = x->shape.dim[1] / groups;
    for (int i = 0; i < dims; i++)
        w.dim[2 + i] = kernel[i];
    name = o->name ? o->name : fl_program_name(p, op->name);
    if (!name || (status = fl_shape_check_result(name, &w)) != FLEET_OK)
        return fl_program_failed(p, name ? status : FLEET_ENOMEM);
    return add_conv(p, op, x, &w, o, name);
}

fleet_var *fleet_conv2d(fleet_program *p, fleet_var *x, int64_t filters,
                        const int64_t *kernel,
                        const fleet_conv_options *options)
{
    return build(p, &fl_op_conv2d, x, filters, kernel, 2, options);
}

fleet_var *fleet_conv1d(fleet_program *p, fleet_var *x, int64_t filters,
                        int64_t kernel, const fleet_conv_options *options)
{
    return build(p, &fl_op_conv1d, x, filters, &kernel, 1, options);
}
