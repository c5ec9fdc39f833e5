/* elementwise.c - add, sub and mul of two values, broadcast as NumPy does.
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
#include <string.h>

#include <fleet/nn.h>

#include "ops/elementwise.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

enum { OUT, A, B };

/* --- shapes -------------------------------------------------------------- */

static int64_t dim_at(const fl_shape *s, int from_end)
{
    return from_end < s->n_dim ? s->dim[s->n_dim - 1 - from_end] : 1;
}

static fleet_status broadcast(const fl_node *n, fl_shape *out)
{
    const fl_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;

    out->n_dim = a->n_dim > b->n_dim ? a->n_dim : b->n_dim;
    for (int i = 0; i < out->n_dim; i++) {
        int64_t x = dim_at(a, i), y = dim_at(b, i);

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
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* Does the operand run through the result's dimension without a gap? */
static bool spans(const fl_shape *s, int from_end, int64_t dim)
{
    return dim_at(s, from_end) == dim;
}

/* The block: trailing dimensions, none of them the rows, in which both operands
 * are whole, or in which each is always whole or always 1. */
static int block_dims(const fl_shape *out, const fl_shape *a, const fl_shape *b,
                      fl_elementwise *c)
{
    int n = 0;

    c->block = 1;
    for (; n < out->n_dim - 1; n++) {
        int64_t d = dim_at(out, n);
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
        int64_t d = dim_at(s, i);
        int at = out->n_dim - 2 - i; /* place in config.dim */

        if (i >= n_block_dim)
            w->stride[at] = d == 1 ? 0 : stride;
        stride *= d;
    }
    w->batched = fl_shape_batched(s);
}

static void make_config(const fl_node *n, fl_arithmetic op, fl_elementwise *c)
{
    const fl_shape *out = &n->out[0]->shape;
    const fl_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;
    fl_shape with_row; /* without a batch: one row around it all */
    int inside;

    *c = (fl_elementwise){.op = op};
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

/* One block of the result. */
static void apply(const fl_elementwise *c, float *out, const float *a,
                  const float *b)
{
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
 * and for mul the other operand. */
enum { D, G, OTHER };

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

static void add_row(const fl_instance *in, int64_t row, float *d)
{
    const fl_elementwise_grad *k = in->step->config;
    const fl_elementwise *c = &k->c;
    const fl_walk *mine = k->of_b ? &c->b : &c->a;
    const fl_walk *other = k->of_b ? &c->a : &c->b;
    const float *g = (const float *)fl_ptr(in, G) + row * c->block * c->n_block;
    const float *x = c->op == FL_MUL ? row_of(in, OTHER, other, row) : NULL;

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

    if (k->c.op == FL_MUL)
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

static fleet_status forward(fl_lowering *l, const fl_node *n, fl_arithmetic op)
{
    fl_elementwise c;

    make_config(n, op, &c);
    FL_EMIT(l, fl_kernel_for(&kernel, n->out[0]), n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])),
            FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

static void gradient_for(fl_lowering *l, const fl_node *n, fl_arithmetic op,
                         bool of_b)
{
    const fleet_var *v = n->in[of_b], *other = n->in[!of_b];
    bool rows = fl_shape_batched(&v->shape);
    int to = fl_gradient_to(l, v);
    fl_elementwise_grad k = {.of_b = of_b,
                             .sign = op == FL_SUB && of_b ? -1.0f : 1.0f};

    if (to < 0)
        return;
    make_config(n, op, &k.c);
    k.size = rows ? fl_shape_cols(&v->shape) : fl_shape_count(&v->shape, 1);
    FL_EMIT(l, rows ? &kernel_grad_rows : &kernel_grad_whole, n,
            fl_config(l, &k, sizeof k), FL_W(to),
            FL_R(fl_gradient_of(l, n->out[0])),
            FL_R(op == FL_MUL ? fl_value_of(l, other) : -1));
}

#define OP(name_, code)                                                        \
    static fleet_status name_##_forward(fl_lowering *l, const fl_node *n)      \
    {                                                                          \
        return forward(l, n, code);                                            \
    }                                                                          \
                                                                               \
    static fleet_status name_##_gradient(fl_lowering *l, const fl_node *n)     \
    {                                                                          \
        gradient_for(l, n, code, false);                                       \
        gradient_for(l, n, code, true);                                        \
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
    };                                                                         \
                                                                               \
    fleet_var *fleet_##name_(fleet_program *p, fleet_var *x, fleet_var *y)     \
    {                                                                          \
        if (!fl_builder_ready(p, x) || !fl_builder_ready(p, y))                \
            return NULL;                                                       \
        return fl_program_add(p, &fl_op_##name_, (fleet_var *[]){x, y}, 2,     \
                              NULL, 0);                                        \
    }

OP(add, FL_ADD)
OP(sub, FL_SUB)
OP(mul, FL_MUL)
