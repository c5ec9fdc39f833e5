/* masked_softmax.c - softmax over the last dimension, of the numbers whose
 * mask is not 0; causal_softmax, of a square of numbers the part up to
 * the diagonal. The gradient is softmax's: what is masked has a probability of
 * 0. */
#include "ops/math/masked_softmax.h"

#include <string.h>

#include <fleet/sequence.h>

#include "ops/loss.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

static bool counts_all(const float *mask, int64_t n)
{
    bool all = true;

    for (int64_t j = 0; j < n; j++)
        all &= mask[j] != 0.0f;
    return all;
}

/* One line: of its first n numbers the ones that count side by side, then each
 * to its place. mask NULL: all count. */
static void softmax_line(float *y, const float *x, const float *mask, int64_t n)
{
    int64_t kept = 0;

    if (!mask || counts_all(mask, n)) {
        fl_simd_best()->softmax(y, x, n);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        if (mask[j] != 0.0f)
            y[kept++] = x[j];
    if (kept > 0)
        fl_simd_best()->softmax(y, y, kept);
    for (int64_t j = n; j-- > 0;)
        y[j] = mask[j] != 0.0f ? y[--kept] : 0.0f;
}

static fleet_status masked_run(const fl_instance *in, const fl_range *r)
{
    const fl_masked_softmax *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor, n = c->classes;
    int64_t rows = fl_range_rows(in, 0, r);
    float *y = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < rows; i++) {
        const float *mask = in->arg[2].base ? fl_ptr(in, 2) : NULL;

        if (c->batched)
            mask += (first + i) * in->arg[2].ld;
        for (int64_t l = 0; l < c->lines; l++, y += n, x += n) {
            int64_t seen = c->causal ? l % n + 1 : n;

            softmax_line(y, x, mask ? mask + fl_mask_at(c, l) : NULL, seen);
            memset(y + seen, 0, (size_t)(n - seen) * sizeof *y);
        }
    }
    return FLEET_OK;
}

static const fl_kernel kernel = {
    .name = "masked_softmax", .split = FL_SPLIT_ROWS, .run = masked_run};

/* The mask is dense, and broadcast to x but along lines. */
static fleet_status check_mask(const fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape, *mask = &n->in[1]->shape;

    FL_TRY(fl_want_dtype(n, 1, FLEET_FLOAT32));
    for (int i = 0; i < x->n_dim; i++) {
        int64_t have = fl_shape_from_end(mask, i),
                want = fl_shape_from_end(x, i);

        if (mask->n_dim > x->n_dim || (have != want && (have != 1 || i == 0)))
            return fl_fail(
                FLEET_ESHAPE, "%s: mask \"%s\" %s does not fit \"%s\" %s",
                n->op->name, n->in[1]->name, fl_shape_print(mask).chars,
                n->in[0]->name, fl_shape_print(x).chars);
    }
    return FLEET_OK;
}

static bool is_causal(const fl_node *n)
{
    return n->op == &fl_op_causal_softmax;
}

static bool has_mask(const fl_node *n)
{
    return fl_input_of(n, 1) != NULL;
}

static fleet_status infer(fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(x) || x->n_dim < 2)
        return fl_want_shape(n, 0, "[-1,C]");
    if (is_causal(n) &&
        (x->n_dim < 3 || x->dim[x->n_dim - 1] != x->dim[x->n_dim - 2]))
        return fl_want_shape(n, 0, "[-1,L,L], or more dimensions in between");
    if (has_mask(n))
        FL_TRY(check_mask(n));
    fl_set_out(n, 0, x);
    return FLEET_OK;
}

static fl_masked_softmax config_of(const fl_node *n)
{
    const fl_shape none = {0}, *x = &n->in[0]->shape,
                   *mask = has_mask(n) ? &n->in[1]->shape : &none;
    fl_masked_softmax c = {.classes = x->dim[x->n_dim - 1],
                           .lines = 1,
                           .n_dim = x->n_dim - 2,
                           .batched = has_mask(n) && fl_shape_batched(mask),
                           .causal = is_causal(n)};
    int64_t size = c.classes;

    for (int i = c.n_dim - 1; i >= 0; i--) {
        int64_t have = fl_shape_from_end(mask, c.n_dim - i);

        c.dim[i] = x->dim[1 + i];
        c.stride[i] = have == 1 ? 0 : size;
        c.lines *= c.dim[i];
        size *= have;
    }
    return c;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    fl_masked_softmax c = config_of(n);

    FL_EMIT(l, &kernel, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])),
            FL_R(has_mask(n) ? fl_value_of(l, n->in[1]) : -1));
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_softmax_config c = {x->dim[x->n_dim - 1]};
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, &fl_kernel_softmax_grad, n, fl_config(l, &c, sizeof c),
                FL_W(to), FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_masked_softmax = {
    .name = "masked_softmax",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .traits = FL_OP_LEARNS_FIRST,
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

const fl_op fl_op_causal_softmax = {
    .name = "causal_softmax",
    .n_out = 1,
    .least_in = 1,
    .most_in = 2,
    .traits = FL_OP_LEARNS_FIRST,
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_causal_softmax(fleet_program *p, fleet_var *x, fleet_var *mask)
{
    return mask ? fl_build_of_two(p, &fl_op_causal_softmax, x, mask, NULL, 0)
                : fl_build_of_one(p, &fl_op_causal_softmax, x, NULL, 0);
}

fleet_var *fleet_masked_softmax(fleet_program *p, fleet_var *x, fleet_var *mask)
{
    return fl_build_of_two(p, &fl_op_masked_softmax, x, mask, NULL, 0);
}
