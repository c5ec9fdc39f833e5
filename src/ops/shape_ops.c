/* shape_ops.c - concat and reshape, and what is made of these two: stack,
 * squeeze, unsqueeze. */
#include <string.h>

#include <fleet/nn.h>

#include "ops/ops.h"
#include "ops/shape_ops.h"

/* --- concat: out <- inputs that were not made in place -------------------- */

static fleet_status concat_infer(fl_node *n)
{
    int64_t axis = fl_node_int(n, "axis");
    fl_shape out = n->in[0]->shape;

    FL_TRY(fl_want_axis(n, 1));
    for (int i = 0; i < n->n_in; i++) {
        const fl_shape *s = &n->in[i]->shape;

        FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
        for (int d = 0; d < out.n_dim; d++)
            if (s->n_dim != out.n_dim || (d != axis && s->dim[d] != out.dim[d]))
                return fl_want_shape(n, i, fl_shape_print(&out).chars);
        if (i > 0 &&
            __builtin_add_overflow(out.dim[axis], s->dim[axis], &out.dim[axis]))
            return fl_fail(FLEET_ESHAPE, "concat: the result is too large");
    }
    FL_TRY(fl_shape_check_result("concat", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static void copy_pieces(float *to, int64_t to_step, const float *from,
                        int64_t from_step, const fl_concat_piece *p)
{
    for (int64_t i = 0; i < p->n_piece; i++)
        memcpy(to + i * to_step, from + i * from_step,
               (size_t)p->size * sizeof *to);
}

static fleet_status concat_run(const fl_instance *in, const fl_range *r)
{
    const fl_concat_config *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor;
    int64_t n = fl_range_rows(in, 0, r);

    for (int64_t row = first; row < first + n; row++)
        for (int i = 0; i < c->n; i++) {
            const fl_concat_piece *p = &c->piece[i];

            copy_pieces(
                (float *)fl_ptr(in, 0) + row * in->arg[0].ld + p->column,
                p->whole,
                (const float *)fl_ptr(in, 1 + i) + row * in->arg[1 + i].ld,
                p->size, p);
        }
    return FLEET_OK;
}

/* One input's gradient, out of the output's. */
static fleet_status split_run(const fl_instance *in, const fl_range *r)
{
    const fl_concat_config *c = in->step->config;
    const fl_concat_piece *p = &c->piece[0];
    int64_t first = r->begin * in->arg[0].factor;
    int64_t n = fl_range_rows(in, 0, r);

    for (int64_t row = first; row < first + n; row++)
        copy_pieces((float *)fl_ptr(in, 0) + row * in->arg[0].ld, p->size,
                    (const float *)fl_ptr(in, 1) + row * in->arg[1].ld +
                        p->column,
                    p->whole, p);
    return FLEET_OK;
}

static const fl_kernel_pair kernel_concat =
    FL_KERNEL_PAIR("concat", concat_run);
static const fl_kernel_pair kernel_split =
    FL_KERNEL_PAIR("concat.grad", split_run);

static fl_concat_piece piece_of(const fl_node *n, int i)
{
    int64_t axis = fl_node_int(n, "axis");
    const fl_shape *s = &n->in[i]->shape, *out = &n->out[0]->shape;
    fl_concat_piece p = {1, 0, 1, 1};

    for (int d = 1; d < s->n_dim; d++) {
        if (d < axis)
            p.n_piece *= s->dim[d];
        else
            p.size *= s->dim[d];
        if (d >= axis)
            p.whole *= out->dim[d];
    }
    for (int j = 0; j < i; j++)
        p.column += fl_shape_cols(&n->in[j]->shape) / p.n_piece;
    return p;
}

/* With room for n pieces; NULL without memory. */
static fl_concat_config *make_concat(fl_lowering *l, int n)
{
    fl_concat_config *c = fl_arena_alloc(&l->plan->arena, sizeof *c);

    if (c)
        c->piece =
            fl_arena_alloc(&l->plan->arena, (size_t)n * sizeof c->piece[0]);
    return c && c->piece ? c : NULL;
}

static fleet_status concat_forward(fl_lowering *l, const fl_node *n)
{
    fl_arena *arena = &l->plan->arena;
    fl_concat_config *c = make_concat(l, n->n_in);
    fl_operand *o = fl_arena_alloc(arena, (size_t)(1 + n->n_in) * sizeof *o);

    if (!c || !o)
        return FLEET_ENOMEM;
    o[0] = (fl_operand)FL_W(fl_value_of(l, n->out[0]));
    for (int i = 0; i < n->n_in; i++) {
        if (l->var[n->in[i]->id].inside == n->out[0])
            continue; /* made in place */
        c->piece[c->n++] = piece_of(n, i);
        o[c->n] = (fl_operand)FL_R(fl_value_of(l, n->in[i]));
    }
    if (c->n > 0)
        fl_emit(l, fl_kernel_for(&kernel_concat, n->out[0]), n, c, o, 1 + c->n);
    return FLEET_OK;
}

static fleet_status concat_gradient(fl_lowering *l, const fl_node *n)
{
    int g = fl_gradient_of(l, n->out[0]);

    for (int i = 0; i < n->n_in; i++) {
        fl_concat_piece p = piece_of(n, i);
        fl_concat_config *c;
        int to;

        if (l->var[n->in[i]->id].inside == n->out[0]) {
            fl_gradient_view(l, n->in[i], g, p.column);
            continue;
        }
        if ((to = fl_gradient_to(l, n->in[i])) < 0)
            continue;
        c = make_concat(l, 1);
        if (!c)
            return FLEET_ENOMEM;
        c->n = 1;
        c->piece[0] = p;
        FL_EMIT(l, fl_kernel_for(&kernel_split, n->out[0]), n, c, FL_W(to),
                FL_R(g));
    }
    return FLEET_OK;
}

const fl_op fl_op_concat = {
    .name = "concat",
    .n_out = 1,
    .least_in = 1,
    .most_in = INT32_MAX,
    .attrs = "axis:i",
    .traits = FL_OP_CONCAT,
    .infer = concat_infer,
    .forward = concat_forward,
    .gradient = concat_gradient,
};

fleet_var *fleet_concat(fleet_program *p, fleet_var *const *x, int n, int axis)
{
    if (!fl_builder_ready(p, x && n > 0 ? x[0] : NULL))
        return NULL;
    for (int i = 1; i < n; i++)
        if (!fl_builder_ready(p, x[i]))
            return NULL;
    return fl_program_add(p, &fl_op_concat, x, n, &FL_ATTR_INT("axis", axis),
                          1);
}

/* --- reshape: a view of the same memory, or else a copy ------------------- */

static fleet_status reshape_infer(fl_node *n)
{
    const fl_attr *a = fl_node_attr(n, "shape");
    const fleet_var *x = n->in[0];
    fl_shape out;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!a->v || a->n < 1 || a->n > FLEET_MAX_DIM)
        return fl_shape_check("reshape", a->v, a->n);
    out = fl_shape_make(a->v, a->n);
    FL_TRY(fl_shape_check_result("reshape", &out));
    if (fl_shape_batched(&out) != fl_shape_batched(&x->shape) ||
        fl_shape_count(&out, 1) != fl_shape_count(&x->shape, 1))
        return fl_fail(FLEET_ESHAPE, "reshape: \"%s\" %s cannot become %s",
                       x->name, fl_shape_print(&x->shape).chars,
                       fl_shape_print(&out).chars);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status copy_run(const fl_instance *in, const fl_range *r)
{
    memcpy(fl_rows_f32(in, 0, r), fl_rows_f32(in, 1, r),
           (size_t)fl_range_count(in, 0, r) * sizeof(float));
    return FLEET_OK;
}

static const fl_kernel_pair kernel_copy = FL_KERNEL_PAIR("reshape", copy_run);

static void emit_copy(fl_lowering *l, const fl_node *n, int to, int from)
{
    FL_EMIT(l, fl_kernel_for(&kernel_copy, n->out[0]), n, NULL, FL_W(to),
            FL_R(from));
}

static fleet_status reshape_forward(fl_lowering *l, const fl_node *n)
{
    int x = fl_value_of(l, n->in[0]);

    /* a view: forward values are written once */
    if (x >= 0 && l->value[n->out[0]->id] < 0)
        fl_value_view(l, n->out[0], x);
    else
        emit_copy(l, n, fl_value_of(l, n->out[0]), x);
    return FLEET_OK;
}

static fleet_status reshape_gradient(fl_lowering *l, const fl_node *n)
{
    const fleet_var *x = n->in[0];
    int g = fl_gradient_of(l, n->out[0]), to;

    /* the result's own; a parameter's lies in its group's */
    if (fl_gradient_wanted(l, x) && l->gradient[x->id] < 0 &&
        x->kind != FL_VAR_PARAM && fl_shape_batched(&x->shape))
        fl_gradient_view(l, n->in[0], g, 0);
    else if ((to = fl_gradient_to(l, n->in[0])) >= 0)
        emit_copy(l, n, to, g);
    return FLEET_OK;
}

const fl_op fl_op_reshape = {
    .name = "reshape",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "shape:v",
    .infer = reshape_infer,
    .forward = reshape_forward,
    .gradient = reshape_gradient,
};

fleet_var *fleet_reshape(fleet_program *p, fleet_var *x, const int64_t *dims,
                         int n_dim)
{
    if (!fl_builder_ready(p, x))
        return NULL;
    if (!dims || n_dim < 1 || n_dim > FLEET_MAX_DIM) /* they are copied */
        return fl_program_failed(p, fl_shape_check("reshape", dims, n_dim));
    return fl_build_of_one(p, &fl_op_reshape, x,
                           &FL_ATTR_INTS("shape", dims, n_dim), 1);
}

static fleet_var *bad_axis(fleet_program *p, const fleet_var *x,
                           const char *what, int axis, const char *wanted)
{
    return fl_program_failed(
        p, fl_fail(FLEET_EINVAL, "%s: axis %d of \"%s\" %s; expected %s", what,
                   axis, x->name, fl_shape_print(&x->shape).chars, wanted));
}

fleet_var *fleet_unsqueeze(fleet_program *p, fleet_var *x, int axis)
{
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    s = x->shape;
    if (axis < fl_shape_batched(&s) || axis > s.n_dim)
        return bad_axis(p, x, "unsqueeze", axis,
                        "one behind the batch, or the number of dimensions");
    for (int i = s.n_dim; i > axis; i--)
        s.dim[i] = s.dim[i - 1];
    s.dim[axis] = 1;
    s.n_dim++;
    return fleet_reshape(p, x, s.dim, s.n_dim);
}

fleet_var *fleet_squeeze(fleet_program *p, fleet_var *x, int axis)
{
    fl_shape s;

    if (!fl_builder_ready(p, x))
        return NULL;
    s = x->shape;
    if (axis < 0 || axis >= s.n_dim || s.dim[axis] != 1 || s.n_dim < 2)
        return bad_axis(p, x, "squeeze", axis, "one that has 1");
    for (int i = axis; i + 1 < s.n_dim; i++)
        s.dim[i] = s.dim[i + 1];
    s.n_dim--;
    return fleet_reshape(p, x, s.dim, s.n_dim);
}

fleet_var *fleet_stack(fleet_program *p, fleet_var *const *x, int n, int axis)
{
    enum { MOST = 1024 };
    fleet_var *one[MOST];

    if (!fl_builder_ready(p, x && n > 0 ? x[0] : NULL))
        return NULL;
    if (n > MOST)
        return fl_program_failed(p, fl_fail(FLEET_EINVAL,
                                            "stack: %d variables; at most %d",
                                            n, (int)MOST));
    for (int i = 0; i < n; i++) {
        one[i] = fleet_unsqueeze(p, x[i], axis);
        if (!one[i])
            return NULL;
    }
    return fleet_concat(p, one, n, axis);
}
