/* elementwise.c - operators of two values, broadcast as NumPy does: add, sub,
 * mul, and the formulas of binaries.def and comparisons.def; and what has
 * none, a constant.
 *
 * Dimensions are aligned at the end. Where an operand has 1, or nothing, its
 * stride is 0. Both operands and the result are walked by the result's
 * dimensions, in blocks: the innermost dimensions in which each operand is
 * either contiguous or one element.
 *
 * An operand's gradient is summed over the dimensions in which it was
 * broadcast: rows by rows if it has a batch, else over the whole batch, in
 * order.
 */
#include <math.h>
#include <string.h>

#include <fleet/nn.h>

#include "ops/elementwise.h"
#include "ops/fc_kernels.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

enum { OUT, A, B };

/* Which operator it is. */
typedef struct binary_kind {
    fl_arithmetic op;
    int formula;
} binary_kind;

/* --- shapes -------------------------------------------------------------- */

static fleet_status broadcast(const fl_node *n, fl_shape *out)
{
    const fl_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;

    out->n_dim = a->n_dim > b->n_dim ? a->n_dim : b->n_dim;
    for (int i = 0; i < out->n_dim; i++) {
        int64_t x = fl_shape_from_end(a, i), y = fl_shape_from_end(b, i);

        if (x != y && x != 1 && y != 1)
            return fl_fail(FLEET_ESHAPE,
                           "%s: \"%s\" %s and \"%s\" %s do not fit",
                           n->op->name, n->in[0]->name, fl_shape_print(a).chars,
                           n->in[1]->name, fl_shape_print(b).chars);
        out->dim[out->n_dim - 1 - i] = x == 1 ? y : x;
    }
    for (int i = 1; i < out->n_dim; i++)
        if (out->dim[i] < 0)
            return fl_fail(FLEET_ESHAPE,
                           "%s: the batch of \"%s\" %s is not in first place "
                           "of the result",
                           n->op->name, n->in[0]->name,
                           fl_shape_print(a).chars);
    return FLEET_OK;
}

static fleet_status infer(fl_node *n)
{
    fl_shape out = {0};

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(fl_want_dtype(n, 1, FLEET_FLOAT32));
    FL_TRY(broadcast(n, &out));
    FL_TRY(fl_shape_check_result(n->op->name, &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* Does the operand run through the result's dimension without a gap? */
static bool spans(const fl_shape *s, int from_end, int64_t dim)
{
    return fl_shape_from_end(s, from_end) == dim;
}

/* The block: trailing dimensions, none of them the rows, in which both operands
 * are whole, or in which each is always whole or always 1. */
static int block_dims(const fl_shape *out, const fl_shape *a, const fl_shape *b,
                      fl_elementwise *c)
{
    int n = 0;

    c->block = 1;
    for (; n < out->n_dim - 1; n++) {
        int64_t d = fl_shape_from_end(out, n);
        bool wa = spans(a, n, d), wb = spans(b, n, d);

        if (n == 0) {
            c->a.block_is_one = !wa;
            c->b.block_is_one = !wb;
        } else if (wa == c->a.block_is_one || wb == c->b.block_is_one) {
            if (d != 1)
                break;
        }
        c->block *= d;
    }
    return n;
}

/* Strides of the dimensions between the rows and the block. */
static void set_walk(fl_walk *w, const fl_shape *s, const fl_shape *out,
                     int n_block_dim)
{
    int64_t stride = 1;

    for (int i = 0; i < out->n_dim - 1; i++) {
        int64_t d = fl_shape_from_end(s, i);
        int at = out->n_dim - 2 - i; /* place in config.dim */

        if (i >= n_block_dim)
            w->stride[at] = d == 1 ? 0 : stride;
        stride *= d;
    }
    w->batched = fl_shape_batched(s);
}

static void make_config(const fl_node *n, binary_kind kind, fl_elementwise *c)
{
    const fl_shape *out = &n->out[0]->shape;
    const fl_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;
    fl_shape with_row; /* without a batch: one row around it all */
    int inside;

    *c = (fl_elementwise){.op = kind.op, .formula = kind.formula};
    if (!fl_shape_batched(out)) {
        with_row.n_dim = out->n_dim + 1;
        with_row.dim[0] = 1;
        memcpy(with_row.dim + 1, out->dim,
               (size_t)out->n_dim * sizeof out->dim[0]);
        out = &with_row;
    }
    inside = block_dims(out, a, b, c);
    c->n_dim = out->n_dim - 1 - inside;
    c->n_block = 1;
    for (int i = 0; i < c->n_dim; i++)
        c->n_block *= c->dim[i] = out->dim[1 + i];
    set_walk(&c->a, a, out, inside);
    set_walk(&c->b, b, out, inside);
}

/* --- walking ------------------------------------------------------------- */

static const float *row_of(const fl_instance *in, int i, const fl_walk *w,
                           int64_t row)
{
    const float *x = fl_ptr(in, i);

    return w->batched ? x + row * in->arg[i].ld : x;
}

static fl_operand_pair operands_of(const fl_elementwise *c, const float *a,
                                   const float *b)
{
    return (fl_operand_pair){a, b, c->a.block_is_one, c->b.block_is_one,
                             c->block};
}

static void apply_formula(const fl_elementwise *c, float *out, const float *a,
                          const float *b)
{
    fl_operand_pair o = operands_of(c, a, b);

    fl_simd_best()->binary[c->formula].forward(out, &o);
}

/* One block of the result. */
static void apply(const fl_elementwise *c, float *out, const float *a,
                  const float *b)
{
    if (c->op == FL_FORMULA) {
        apply_formula(c, out, a, b);
        return;
    }
    const fl_simd *s = fl_simd_best();
    int64_t n = c->block;
    float sign = c->op == FL_SUB ? -1.0f : 1.0f;

    if (!c->a.block_is_one && !c->b.block_is_one) {
        fl_binary *f = c->op == FL_ADD   ? s->add
                       : c->op == FL_SUB ? s->sub
                                         : s->mul;
        f(out, a, b, n);
    } else if (c->b.block_is_one && !c->a.block_is_one) {
        if (c->op == FL_MUL)
            s->scale(out, a, *b, 0.0f, n);
        else
            s->scale(out, a, 1.0f, sign * *b, n);
    } else if (c->a.block_is_one && !c->b.block_is_one) {
        if (c->op == FL_MUL)
            s->scale(out, b, *a, 0.0f, n);
        else
            s->scale(out, b, sign, *a, n);
    } else {
        float x = c->op == FL_MUL ? *a * *b : *a + sign * *b;
        for (int64_t i = 0; i < n; i++)
            out[i] = x;
    }
}

/* Nothing is broadcast: all rows of a range are one block. */
static bool is_plain(const fl_elementwise *c)
{
    return c->n_dim == 0 && c->a.batched && c->b.batched &&
           !c->a.block_is_one && !c->b.block_is_one;
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_elementwise *c = in->step->config;
    int64_t factor = in->arg[OUT].factor, size = c->block * c->n_block;
    int64_t first = factor ? r->begin * factor : 0;
    int64_t last = factor ? r->end * factor : 1; /* one without a batch */
    if (is_plain(c)) {
        fl_elementwise all = *c;

        all.block = (last - first) * c->block;
        apply(&all, fl_rows_f32(in, OUT, r), fl_rows_f32(in, A, r),
              fl_rows_f32(in, B, r));
        return FLEET_OK;
    }
    for (int64_t row = first; row < last; row++) {
        const float *a = row_of(in, A, &c->a, row);
        const float *b = row_of(in, B, &c->b, row);
        float *out = (float *)fl_ptr(in, OUT) + row * size;

        for (int64_t i = 0; i < c->n_block; i++)
            apply(c, out + i * c->block, a + fl_walk_block(c, &c->a, i),
                  b + fl_walk_block(c, &c->b, i));
    }
    return FLEET_OK;
}

/* --- gradients ----------------------------------------------------------- */

/* Operands of a gradient step: the operand's gradient, the result's gradient,
 * and for mul the other operand, for a formula both. */
enum { D, G, OTHER, BOTH = OTHER };

/* d += g, g * other, or -g, over one block. */
static void accumulate(const fl_elementwise_grad *k, const fl_walk *mine,
                       const fl_walk *other, float *d, const float *g,
                       const float *x)
{
    const fl_simd *s = fl_simd_best();
    int64_t n = k->c.block;
    float sum = 0.0f;

    if (!mine->block_is_one) {
        if (k->c.op != FL_MUL)
            s->add_scaled(d, g, k->sign, 0.0f, n);
        else if (other->block_is_one)
            s->add_scaled(d, g, *x, 0.0f, n);
        else
            s->add_mul(d, g, x, n);
        return;
    }
    if (k->c.op != FL_MUL || other->block_is_one)
        sum = s->row_sum(g, n) * (k->c.op == FL_MUL ? *x : k->sign);
    else
        for (int64_t i = 0; i < n; i++)
            sum += g[i] * x[i];
    *d += sum;
}

static void add_row_by_formula(const fl_instance *in, int64_t row, float *d)
{
    const fl_elementwise_grad *k = in->step->config;
    const fl_elementwise *c = &k->c;
    const fl_walk *mine = k->of_b ? &c->b : &c->a;
    const float *g = (const float *)fl_ptr(in, G) + row * c->block * c->n_block;
    const float *a = row_of(in, BOTH, &c->a, row);
    const float *b = row_of(in, BOTH + 1, &c->b, row);

    for (int64_t i = 0; i < c->n_block; i++) {
        fl_operand_pair o = operands_of(c, a + fl_walk_block(c, &c->a, i),
                                        b + fl_walk_block(c, &c->b, i));

        fl_simd_best()->binary[c->formula].gradient[k->of_b](
            d + fl_walk_block(c, mine, i),
            mine->block_is_one ? FL_TERMS_SUM : FL_TERMS_ADD, g + i * c->block,
            &o);
    }
}

static void add_row(const fl_instance *in, int64_t row, float *d)
{
    const fl_elementwise_grad *k = in->step->config;
    const fl_elementwise *c = &k->c;
    const fl_walk *mine = k->of_b ? &c->b : &c->a;
    const fl_walk *other = k->of_b ? &c->a : &c->b;
    const float *g = (const float *)fl_ptr(in, G) + row * c->block * c->n_block;
    const float *x = c->op == FL_MUL ? row_of(in, OTHER, other, row) : NULL;

    if (c->op == FL_FORMULA) {
        add_row_by_formula(in, row, d);
        return;
    }
    for (int64_t i = 0; i < c->n_block; i++)
        accumulate(k, mine, other, d + fl_walk_block(c, mine, i),
                   g + i * c->block, x ? x + fl_walk_block(c, other, i) : NULL);
}

static fleet_status grad_plain_run(const fl_instance *in, const fl_range *r)
{
    const fl_elementwise_grad *k = in->step->config;
    const fl_simd *s = fl_simd_best();
    float *d = fl_rows_f32(in, D, r), *g = fl_rows_f32(in, G, r);
    int64_t n = fl_count(in, D, r);

    if (k->c.op == FL_FORMULA)
        s->binary[k->c.formula].gradient[k->of_b](
            d, FL_TERMS_SET, g,
            &(fl_operand_pair){fl_rows_f32(in, BOTH, r),
                               fl_rows_f32(in, BOTH + 1, r), false, false, n});
    else if (k->c.op == FL_MUL)
        s->mul(d, g, fl_rows_f32(in, OTHER, r), n);
    else
        s->scale(d, g, k->sign, 0.0f, n);
    return FLEET_OK;
}

static fleet_status grad_rows_run(const fl_instance *in, const fl_range *r)
{
    const fl_elementwise_grad *k = in->step->config;
    int64_t factor = in->arg[D].factor;

    if (is_plain(&k->c))
        return grad_plain_run(in, r);
    for (int64_t row = r->begin * factor; row < r->end * factor; row++) {
        float *d = (float *)fl_ptr(in, D) + row * k->size;

        memset(d, 0, (size_t)k->size * sizeof *d);
        add_row(in, row, d);
    }
    return FLEET_OK;
}

static fleet_status grad_whole_run(const fl_instance *in, const fl_range *r)
{
    const fl_elementwise_grad *k = in->step->config;
    int64_t factor = in->arg[G].factor;
    int64_t rows = factor ? r->batch * factor : 1;
    float *d = fl_ptr(in, D);

    memset(d, 0, (size_t)k->size * sizeof *d);
    for (int64_t row = 0; row < rows; row++)
        add_row(in, row, d);
    return FLEET_OK;
}

static const fl_kernel_pair kernel = FL_KERNEL_PAIR("elementwise", forward_run);
static const fl_kernel kernel_grad_rows = {
    .name = "elementwise.grad", .split = FL_SPLIT_ROWS, .run = grad_rows_run};
static const fl_kernel kernel_grad_whole = {
    .name = "elementwise.grad", .split = FL_SPLIT_PARTS, .run = grad_whole_run};

/* --- lowering ------------------------------------------------------------ */

static fleet_status forward(fl_lowering *l, const fl_node *n, binary_kind kind)
{
    fl_elementwise c;

    make_config(n, kind, &c);
    FL_EMIT(l, fl_kernel_for(&kernel, n->out[0]), n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])),
            FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

/* Is it added, whole and without a batch, to each row of the result? */
static bool is_row_of(const fl_shape *s, const fl_shape *out)
{
    return !fl_shape_batched(s) && fl_shape_batched(out) &&
           fl_shape_count(s, 1) == fl_shape_cols(out);
}

/* A bias's gradient, which threads share by columns. */
static void emit_row_sums(fl_lowering *l, const fl_node *n, int to, int g,
                          int64_t columns)
{
    const fl_fc_config c = {.n = columns};

    FL_EMIT(l, &fl_kernel_fc_db, n, fl_config(l, &c, sizeof c), FL_W(to),
            FL_R(g));
}

static void gradient_for(fl_lowering *l, const fl_node *n, binary_kind kind,
                         bool of_b)
{
    const fleet_var *v = n->in[of_b], *other = n->in[!of_b];
    bool rows = fl_shape_batched(&v->shape);
    int to = fl_gradient_to(l, v);
    fl_elementwise_grad k = {.of_b = of_b,
                             .sign = kind.op == FL_SUB && of_b ? -1.0f : 1.0f};
    int g = fl_gradient_of(l, n->out[0]);
    const fl_kernel *kernel_grad =
        rows ? &kernel_grad_rows : &kernel_grad_whole;

    if (to < 0)
        return;
    if (kind.op == FL_ADD && is_row_of(&v->shape, &n->out[0]->shape)) {
        emit_row_sums(l, n, to, g, fl_shape_count(&v->shape, 1));
        return;
    }
    make_config(n, kind, &k.c);
    k.size = rows ? fl_shape_cols(&v->shape) : fl_shape_count(&v->shape, 1);
    if (kind.op == FL_FORMULA)
        FL_EMIT(l, kernel_grad, n, fl_config(l, &k, sizeof k), FL_W(to),
                FL_R(g), FL_R(fl_value_of(l, n->in[0])),
                FL_R(fl_value_of(l, n->in[1])));
    else
        FL_EMIT(l, kernel_grad, n, fl_config(l, &k, sizeof k), FL_W(to),
                FL_R(g), FL_R(kind.op == FL_MUL ? fl_value_of(l, other) : -1));
}

#define FORWARD(name_, ...)                                                    \
    static fleet_status name_##_forward(fl_lowering *l, const fl_node *n)      \
    {                                                                          \
        return forward(l, n, (binary_kind){__VA_ARGS__});                      \
    }

#define OP(name_, ...)                                                         \
    FORWARD(name_, __VA_ARGS__)                                                \
                                                                               \
    static fleet_status name_##_gradient(fl_lowering *l, const fl_node *n)     \
    {                                                                          \
        gradient_for(l, n, (binary_kind){__VA_ARGS__}, false);                 \
        gradient_for(l, n, (binary_kind){__VA_ARGS__}, true);                  \
        return FLEET_OK;                                                       \
    }                                                                          \
                                                                               \
    const fl_op fl_op_##name_ = {                                              \
        .name = #name_,                                                        \
        .n_out = 1,                                                            \
        .least_in = 2,                                                         \
        .most_in = 2,                                                          \
        .infer = infer,                                                        \
        .forward = name_##_forward,                                            \
        .gradient = name_##_gradient,                                          \
    };

OP(add, FL_ADD, 0)
OP(sub, FL_SUB, 0)
OP(mul, FL_MUL, 0)
#define FL_BINARY(NAME, name, ...) OP(name, FL_FORMULA, FL_BINARY_##NAME)
#include "runtime/simd/binaries.def"
#undef FL_BINARY

#define FL_COMPARISON(NAME, title, ...)                                        \
    FORWARD(title, FL_FORMULA, FL_BINARY_##NAME)                               \
                                                                               \
    const fl_op fl_op_##title = {.name = #title,                               \
                                 .n_out = 1,                                   \
                                 .least_in = 2,                                \
                                 .most_in = 2,                                 \
                                 .infer = infer,                               \
                                 .forward = title##_forward};
#include "runtime/simd/comparisons.def"
#undef FL_COMPARISON

/* --- constant: out <- nothing --------------------------------------------- */

static fleet_status constant_infer(fl_node *n)
{
    fl_shape one = fl_shape_1(1);

    if (!isfinite((float)fl_node_float(n, "value")))
        return fl_fail(FLEET_EINVAL, "constant: value %g must be finite",
                       fl_node_float(n, "value"));
    fl_set_out(n, 0, &one);
    return FLEET_OK;
}

static fleet_status constant_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    *(float *)fl_ptr(in, OUT) = *(const float *)in->step->config;
    return FLEET_OK;
}

static const fl_kernel kernel_constant = {
    .name = "constant", .split = FL_SPLIT_PARTS, .run = constant_run};

static fleet_status constant_forward(fl_lowering *l, const fl_node *n)
{
    float value = (float)fl_node_float(n, "value");

    FL_EMIT(l, &kernel_constant, n, fl_config(l, &value, sizeof value),
            FL_W(fl_value_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_constant = {
    .name = "constant",
    .n_out = 1,
    .attrs = "value:f",
    .infer = constant_infer,
    .forward = constant_forward,
};

fleet_var *fleet_constant(fleet_program *p, float value)
{
    fleet_var *none[1] = {NULL};

    if (!p)
        fl_fail(FLEET_EINVAL, "constant: the program is NULL");
    return fl_program_add(p, &fl_op_constant, none, 0,
                          &FL_ATTR_FLOAT("value", value), 1);
}

/* --- builders ------------------------------------------------------------- */

#define BUILDER(name)                                                          \
    fleet_var *fleet_##name(fleet_program *p, fleet_var *x, fleet_var *y)      \
    {                                                                          \
        return fl_build_of_two(p, &fl_op_##name, x, y, NULL, 0);               \
    }

BUILDER(add)
BUILDER(sub)
BUILDER(mul)
BUILDER(div)
BUILDER(min)
BUILDER(max)
BUILDER(equal)
BUILDER(not_equal)
BUILDER(less_than)
BUILDER(less_equal)
BUILDER(greater_than)
BUILDER(greater_equal)
BUILDER(logical_and)
BUILDER(logical_or)
BUILDER(logical_xor)

fleet_var *fleet_logical_not(fleet_program *p, fleet_var *x)
{
    return fl_builder_ready(p, x) ? fleet_equal(p, x, fleet_constant(p, 0))
                                  : NULL;
}

/* One of the two terms is 0, so that what is not finite in the other operand
 * does not come through. */
fleet_var *fleet_where(fleet_program *p, fleet_var *condition, fleet_var *x,
                       fleet_var *y)
{
    if (!fl_builder_ready(p, condition) || !fl_builder_ready(p, x) ||
        !fl_builder_ready(p, y))
        return NULL;
    if (condition->dtype == FLEET_INT64 && !condition->ragged)
        condition = fleet_cast(p, condition);
    x = fl_build_of_two(p, &fl_op_where_true, condition, x, NULL, 0);
    y = x ? fl_build_of_two(p, &fl_op_where_false, condition, y, NULL, 0)
          : NULL;
    return y ? fleet_add(p, x, y) : NULL;
}

/* The shape of alpha: what it has for a sample, of which it may have fewer. */
static bool prelu_shape(const fl_shape *x, fleet_prelu_mode mode, fl_shape *s)
{
    *s = fl_shape_1(1);
    if (mode == FLEET_PRELU_ALL)
        return true;
    if (!fl_shape_batched(x) || x->n_dim < 2)
        return false;
    s->n_dim = x->n_dim - 1;
    for (int i = 0; i < s->n_dim; i++)
        s->dim[i] = i == 0 || mode == FLEET_PRELU_ELEMENT ? x->dim[1 + i] : 1;
    return true;
}

fleet_var *fleet_prelu(fleet_program *p, fleet_var *x, fleet_prelu_mode mode,
                       const fleet_param_attr *attr)
{
    const fleet_initializer quarter = {FLEET_INIT_CONSTANT, 0.25f, 0};
    fl_shape shape;
    const char *name;
    fleet_var *in[2] = {x};

    if (!fl_builder_ready(p, x))
        return NULL;
    if ((unsigned)mode > FLEET_PRELU_ELEMENT)
        return fl_program_failed(
            p,
            fl_fail(FLEET_EINVAL, "prelu: mode %d does not exist", (int)mode));
    if (!prelu_shape(&x->shape, mode, &shape))
        return fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "prelu: \"%s\" has shape %s; expected [-1,C] or more "
                       "dimensions",
                       x->name, fl_shape_print(&x->shape).chars));
    name = fl_program_name(p, "prelu");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    in[1] = fl_program_param(p, name, "alpha", &shape, attr, quarter);
    return in[1] ? fl_program_add(p, &fl_op_prelu, in, 2, NULL, 0) : NULL;
}
