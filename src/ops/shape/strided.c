/* strided.c - transpose, slice and pad: their elements go to other places, by
 * strides, and their gradients back. What is made of these: split. */
#include "ops/shape/strided.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <fleet/ops.h>

#include "ops/ops.h"

/* --- the kernel ----------------------------------------------------------- */

static void copy_line(float *to, int64_t to_step, const float *from,
                      int64_t from_step, int64_t n)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t k = 0; k < n; k++)
            to[k * to_step] = from[k * from_step];
}

/* Lines of the last dimension; places in those before it are counted up, not
 * computed anew for each. */
static void copy_row(const fl_strided_config *c, float *to, const float *from)
{
    const int64_t *ts = c->to.stride, *fs = c->from.stride;
    const int last = c->n_dim - 1;
    int64_t at[FLEET_MAX_DIM] = {0};

    to += c->to.at, from += c->from.at;
    for (int64_t left = c->count; left > 0; left -= c->dim[last]) {
        copy_line(to, ts[last], from, fs[last], c->dim[last]);
        for (int d = last - 1; d >= 0; d--) {
            to += ts[d], from += fs[d];
            if (++at[d] < c->dim[d])
                break;
            to -= ts[d] * c->dim[d], from -= fs[d] * c->dim[d];
            at[d] = 0;
        }
    }
}

/* All of a value without a batch is one row. */
static fleet_status strided_run(const fl_instance *in, const fl_range *r)
{
    const fl_strided_config *c = in->step->config;
    int64_t rows = in->arg[0].factor ? fl_range_rows(in, 0, r) : 1;
    float *to = fl_rows_f32(in, 0, r);
    const float *from = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < rows; i++) {
        if (c->fills)
            for (int64_t k = 0; k < c->to.size; k++)
                to[k] = c->fill;
        copy_row(c, to, from);
        to += c->to.size, from += c->from.size;
    }
    return FLEET_OK;
}

static const fl_kernel_pair kernel = FL_KERNEL_PAIR("strided", strided_run);

/* --- configurations ------------------------------------------------------- */

/* The first dimension of a row. */
static int first_dim(const fl_shape *s)
{
    return fl_shape_batched(s) ? 1 : 0;
}

static void set_side(fl_strided_side *side, const fl_shape *s)
{
    int first = first_dim(s);

    side->size = 1;
    for (int i = s->n_dim - 1; i >= first; i--) {
        side->stride[i - first] = side->size;
        side->size *= s->dim[i];
    }
}

/* All of `all`, which one of the sides has whole. */
static fl_strided_config config_of(const fl_node *n, const fl_shape *all)
{
    fl_strided_config c = {.n_dim = all->n_dim - first_dim(all), .count = 1};

    for (int i = 0; i < c.n_dim; i++)
        c.count *= c.dim[i] = all->dim[i + first_dim(all)];
    if (c.n_dim == 0) /* a number for each sample */
        c.dim[c.n_dim++] = 1;
    set_side(&c.to, &n->out[0]->shape);
    set_side(&c.from, &n->in[0]->shape);
    return c;
}

static fl_strided_config transpose_config(const fl_node *n)
{
    const fl_attr *perm = fl_node_attr(n, "perm");
    int first = first_dim(&n->in[0]->shape);
    fl_strided_config c = config_of(n, &n->out[0]->shape);
    fl_strided_side from = c.from;

    for (int i = first; i < perm->n; i++)
        c.from.stride[i - first] = from.stride[perm->v[i] - first];
    return c;
}

static fl_strided_config slice_config(const fl_node *n)
{
    fl_strided_config c = config_of(n, &n->out[0]->shape);
    int64_t axis = fl_node_int(n, "axis") - first_dim(&n->in[0]->shape);

    c.from.at = fl_node_int(n, "start") * c.from.stride[axis];
    return c;
}

static fl_strided_config pad_config(const fl_node *n)
{
    fl_strided_config c = config_of(n, &n->in[0]->shape);
    int64_t axis = fl_node_int(n, "axis") - first_dim(&n->in[0]->shape);

    c.to.at = fl_node_int(n, "before") * c.to.stride[axis];
    c.fills = true;
    c.fill = (float)fl_node_float(n, "value");
    return c;
}

/* The way back; what slice left out has no gradient. */
static fl_strided_config backward(const fl_strided_config *c)
{
    fl_strided_config b = *c;

    b.to = c->from;
    b.from = c->to;
    b.fills = c->count < c->from.size;
    b.fill = 0.0f;
    return b;
}

static fleet_status emit(fl_lowering *l, const fl_node *n,
                         const fl_strided_config *c, int to, int from)
{
    FL_EMIT(l, fl_kernel_for(&kernel, n->in[0]), n, fl_config(l, c, sizeof *c),
            FL_W(to), FL_R(from));
    return FLEET_OK;
}

#define OP(title, attributes)                                                  \
    static fleet_status title##_forward(fl_lowering *l, const fl_node *n)      \
    {                                                                          \
        fl_strided_config c = title##_config(n);                               \
                                                                               \
        return emit(l, n, &c, fl_value_of(l, n->out[0]),                       \
                    fl_value_of(l, n->in[0]));                                 \
    }                                                                          \
                                                                               \
    static fleet_status title##_gradient(fl_lowering *l, const fl_node *n)     \
    {                                                                          \
        fl_strided_config c = title##_config(n), back = backward(&c);          \
        int to = fl_gradient_to(l, n->in[0]);                                  \
                                                                               \
        return to < 0 ? FLEET_OK                                               \
                      : emit(l, n, &back, to, fl_gradient_of(l, n->out[0]));   \
    }                                                                          \
                                                                               \
    const fl_op fl_op_##title = {                                              \
        .name = #title,                                                        \
        .n_out = 1,                                                            \
        .least_in = 1,                                                         \
        .most_in = 1,                                                          \
        .attrs = attributes,                                                   \
        .infer = title##_infer,                                                \
        .forward = title##_forward,                                            \
        .gradient = title##_gradient,                                          \
    };

/* --- shapes --------------------------------------------------------------- */

static fleet_status transpose_infer(fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;
    const fl_attr *perm = fl_node_attr(n, "perm");
    bool seen[FLEET_MAX_DIM] = {false};
    fl_shape out = *x;
    bool good = perm->n == x->n_dim &&
                (!fl_shape_batched(x) || (perm->n > 0 && perm->v[0] == 0));

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    for (int i = 0; good && i < perm->n; i++) {
        good = perm->v[i] >= 0 && perm->v[i] < x->n_dim && !seen[perm->v[i]];
        if (good) {
            seen[perm->v[i]] = true;
            out.dim[i] = x->dim[perm->v[i]];
        }
    }
    if (!good)
        return fl_fail(
            FLEET_EINVAL,
            "transpose: perm of %d dimensions of \"%s\" %s; expected "
            "each of 0 to %d once, with the batch in its place",
            perm->n, n->in[0]->name, fl_shape_print(x).chars, x->n_dim - 1);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status check_axis(const fl_node *n)
{
    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    return fl_want_axis(n, first_dim(&n->in[0]->shape));
}

static fleet_status slice_infer(fl_node *n)
{
    fl_shape out = n->in[0]->shape;
    int64_t axis = fl_node_int(n, "axis"), start = fl_node_int(n, "start");
    int64_t end = fl_node_int(n, "end");

    FL_TRY(check_axis(n));
    if (start < 0 || start >= end || end > out.dim[axis])
        return fl_fail(FLEET_EINVAL,
                       "slice: %" PRId64 " to %" PRId64 " of axis %" PRId64
                       " of \"%s\" %s: not a part of it",
                       start, end, axis, n->in[0]->name,
                       fl_shape_print(&out).chars);
    out.dim[axis] = end - start;
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status pad_infer(fl_node *n)
{
    fl_shape out = n->in[0]->shape;
    int64_t axis = fl_node_int(n, "axis"), before = fl_node_int(n, "before");
    int64_t after = fl_node_int(n, "after");

    FL_TRY(check_axis(n));
    if (before < 0 || after < 0 || before > FL_MOST_DIM || after > FL_MOST_DIM)
        return fl_fail(FLEET_EINVAL,
                       "pad: %" PRId64 " before and %" PRId64 " after axis "
                       "%" PRId64 "; expected 0 or more",
                       before, after, axis);
    if (!isfinite((float)fl_node_float(n, "value")))
        return fl_fail(FLEET_EINVAL, "pad: value %g must be finite",
                       fl_node_float(n, "value"));
    out.dim[axis] += before + after;
    FL_TRY(fl_shape_check_result("pad", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

OP(transpose, "perm:v")
OP(slice, "axis:i start:i end:i")
OP(pad, "axis:i before:i after:i value:f")

/* --- builders ------------------------------------------------------------- */

fleet_var *fleet_transpose(fleet_program *p, fleet_var *x, const int *perm,
                           int n)
{
    int64_t v[FLEET_MAX_DIM];

    if (!fl_builder_ready(p, x))
        return NULL;
    if (!perm || n < 1 || n > FLEET_MAX_DIM)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "transpose: perm of %d dimensions; expected 1 to %d",
                       perm ? n : 0, (int)FLEET_MAX_DIM));
    for (int i = 0; i < n; i++)
        v[i] = perm[i];
    return fl_program_add(p, &fl_op_transpose, &x, 1,
                          &FL_ATTR_INTS("perm", v, n), 1);
}

fleet_var *fleet_slice(fleet_program *p, fleet_var *x, int axis, int64_t start,
                       int64_t end)
{
    bool has_axis;
    int64_t n;

    if (!fl_builder_ready(p, x))
        return NULL;
    has_axis = axis >= 0 && axis < x->shape.n_dim;
    n = has_axis ? x->shape.dim[axis] : 0;
    fl_attr attr[] = {
        FL_ATTR_INT("axis", axis),
        FL_ATTR_INT("start", has_axis && start < 0 ? start + n : start),
        FL_ATTR_INT("end", has_axis && end <= 0 ? end + n : end)};

    return fl_program_add(p, &fl_op_slice, &x, 1, attr, 3);
}

fleet_var *fleet_split(fleet_program *p, fleet_var *x, int axis,
                       const int64_t *sizes, int n, fleet_var **out)
{
    int64_t at = 0, whole;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (n < 1 || !out || axis < 1 || axis >= x->shape.n_dim ||
        (!sizes && x->shape.dim[axis] % n != 0))
        return fl_program_failed(
            p,
            fl_fail(FLEET_EINVAL, "split: axis %d of \"%s\" %s into %d parts%s",
                    axis, x->name, fl_shape_print(&x->shape).chars, n,
                    out ? "" : ", without room for them"));
    whole = x->shape.dim[axis];
    for (int i = 0; i < n; i++) {
        int64_t size = sizes ? sizes[i] : whole / n;

        out[i] = size > 0 && size <= whole - at
                     ? fleet_slice(p, x, axis, at, at + size)
                     : NULL;
        at += size > 0 && size <= whole - at ? size : whole + 1;
        if (!out[i] && fl_program_ok(p))
            break;
    }
    if (at != whole)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "split: the sizes of %d parts do not add up to axis %d "
                       "of \"%s\" %s",
                       n, axis, x->name, fl_shape_print(&x->shape).chars));
    return out[0];
}

fleet_var *fleet_pad(fleet_program *p, fleet_var *x, int axis, int64_t before,
                     int64_t after, float value)
{
    fl_attr attr[] = {FL_ATTR_INT("axis", axis), FL_ATTR_INT("before", before),
                      FL_ATTR_INT("after", after),
                      FL_ATTR_FLOAT("value", value)};

    return fl_build_of_one(p, &fl_op_pad, x, attr, 4);
}
