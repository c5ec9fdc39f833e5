/* gather.c - gather, which takes parts of a sample by its own indices; one_hot,
 * and cast. */
#include "ops/shape/gather.h"

#include <inttypes.h>
#include <string.h>

#include <fleet/ops.h>

#include "ops/ops.h"

static fleet_status check_ids(const fl_node *n, int in)
{
    const fleet_var *v = n->in[in];

    FL_TRY(fl_want_dtype(n, in, FLEET_INT64));
    if (!fl_shape_batched(&v->shape) || v->shape.n_dim != 2)
        return fl_want_shape(n, in, "[-1,M]");
    return FLEET_OK;
}

/* An id of the operand's row, in [0, below). */
static fleet_status id_of(const fl_instance *in, int i, int64_t at,
                          int64_t below, int64_t *id)
{
    int64_t cols = in->arg[i].cols;
    const fl_node *n = in->step->node;

    *id = ((const int64_t *)fl_ptr(in, i))[at];
    if (*id >= 0 && *id < below)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: \"%s\" is %" PRId64 " in row %" PRId64 " of the batch, "
                   "which is not in [0, %" PRId64 ")",
                   n->op->name, n->in[n->n_in - 1]->name, *id, at / cols,
                   below);
}

/* --- gather --------------------------------------------------------------- */

static fleet_status gather_infer(fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape, *index = &n->in[1]->shape;
    fl_shape out = *x;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(check_ids(n, 1));
    if (!fl_shape_batched(x) || x->n_dim < 2)
        return fl_want_shape(n, 0, "[-1,N] or more dimensions");
    if (x->dim[0] != index->dim[0])
        return fl_want_shape(n, 1, "as many rows as the input");
    out.dim[1] = index->dim[1];
    FL_TRY(fl_shape_check_result("gather", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static const void *gather_config(fl_lowering *l, const fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape;
    fl_gather_config c = {x->dim[1], n->in[1]->shape.dim[1],
                          fl_shape_cols(x) / x->dim[1]};

    return fl_config(l, &c, sizeof c);
}

static fleet_status gather_run(const fl_instance *in, const fl_range *r)
{
    const fl_gather_config *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor;
    int64_t rows = fl_range_rows(in, 0, r);
    float *out = fl_rows_f32(in, 0, r);
    const float *x = fl_rows_f32(in, 1, r);

    for (int64_t i = 0; i < rows; i++, x += c->n * c->inner)
        for (int64_t j = 0; j < c->m; j++, out += c->inner) {
            int64_t id;

            FL_TRY(id_of(in, 2, (first + i) * c->m + j, c->n, &id));
            memcpy(out, x + id * c->inner, (size_t)c->inner * sizeof *out);
        }
    return FLEET_OK;
}

static fleet_status gather_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_gather_config *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor;
    int64_t rows = fl_range_rows(in, 0, r);
    float *dx = fl_rows_f32(in, 0, r);
    const float *g = fl_rows_f32(in, 1, r);

    memset(dx, 0, (size_t)(rows * c->n * c->inner) * sizeof *dx);
    for (int64_t i = 0; i < rows; i++, dx += c->n * c->inner)
        for (int64_t j = 0; j < c->m; j++, g += c->inner) {
            int64_t id;

            FL_TRY(id_of(in, 2, (first + i) * c->m + j, c->n, &id));
            for (int64_t k = 0; k < c->inner; k++)
                dx[id * c->inner + k] += g[k];
        }
    return FLEET_OK;
}

static const fl_kernel gather = {
    .name = "gather", .split = FL_SPLIT_ROWS, .run = gather_run};
static const fl_kernel gather_grad = {
    .name = "gather.grad", .split = FL_SPLIT_ROWS, .run = gather_grad_run};

static fleet_status gather_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &gather, n, gather_config(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])), FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

static fleet_status gather_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[0]);

    if (to >= 0)
        FL_EMIT(l, &gather_grad, n, gather_config(l, n), FL_W(to),
                FL_R(fl_gradient_of(l, n->out[0])),
                FL_R(fl_value_of(l, n->in[1])));
    return FLEET_OK;
}

const fl_op fl_op_gather = {
    .name = "gather",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .traits = FL_OP_LEARNS_FIRST,
    .infer = gather_infer,
    .forward = gather_forward,
    .gradient = gather_gradient,
};

fleet_var *fleet_gather(fleet_program *p, fleet_var *x, fleet_var *index)
{
    return fl_build_of_two(p, &fl_op_gather, x, index, NULL, 0);
}

/* --- one_hot -------------------------------------------------------------- */

static fleet_status one_hot_infer(fl_node *n)
{
    int64_t depth = fl_node_int(n, "depth");
    fl_shape out = n->in[0]->shape;

    FL_TRY(check_ids(n, 0));
    if (depth < 1)
        return fl_fail(FLEET_EINVAL,
                       "one_hot: depth %" PRId64 "; expected 1 or more", depth);
    if (out.dim[1] == 1)
        out.n_dim = 1;
    out.dim[out.n_dim++] = depth;
    FL_TRY(fl_shape_check_result("one_hot", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status one_hot_run(const fl_instance *in, const fl_range *r)
{
    const fl_gather_config *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor * c->m;
    int64_t n = fl_range_rows(in, 0, r) * c->m;
    float *out = fl_rows_f32(in, 0, r);

    memset(out, 0, (size_t)(n * c->inner) * sizeof *out);
    for (int64_t i = 0; i < n; i++, out += c->inner) {
        int64_t id;

        FL_TRY(id_of(in, 1, first + i, c->inner, &id));
        out[id] = 1.0f;
    }
    return FLEET_OK;
}

static const fl_kernel one_hot = {
    .name = "one_hot", .split = FL_SPLIT_ROWS, .run = one_hot_run};

static fleet_status one_hot_forward(fl_lowering *l, const fl_node *n)
{
    fl_gather_config c = {0, n->in[0]->shape.dim[1], fl_node_int(n, "depth")};

    FL_EMIT(l, &one_hot, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

const fl_op fl_op_one_hot = {
    .name = "one_hot",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "depth:i",
    .infer = one_hot_infer,
    .forward = one_hot_forward,
};

fleet_var *fleet_one_hot(fleet_program *p, fleet_var *ids, int64_t depth)
{
    return fl_build_of_one(p, &fl_op_one_hot, ids, &FL_ATTR_INT("depth", depth),
                           1);
}

/* --- cast ----------------------------------------------------------------- */

static fleet_status cast_infer(fl_node *n)
{
    FL_TRY(fl_want_dtype(n, 0, FLEET_INT64));
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static fleet_status cast_run(const fl_instance *in, const fl_range *r)
{
    float *out = fl_rows_f32(in, 0, r);
    const int64_t *ids = fl_rows_any(in, 1, r);

    for (int64_t i = fl_range_count(in, 0, r); i-- > 0;)
        out[i] = (float)ids[i];
    return FLEET_OK;
}

static const fl_kernel_pair cast = FL_KERNEL_PAIR("cast", cast_run);

static fleet_status cast_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, fl_kernel_for(&cast, n->in[0]), n, NULL,
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

const fl_op fl_op_cast = {
    .name = "cast",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .infer = cast_infer,
    .forward = cast_forward,
};

fleet_var *fleet_cast(fleet_program *p, fleet_var *x)
{
    return fl_build_of_one(p, &fl_op_cast, x, NULL, 0);
}
