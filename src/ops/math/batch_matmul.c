/* batch_matmul.c - products of matrices that each sample has its own of.
 *
 * With X and Y the operands as they are multiplied, transposed or not, and g
 * the gradient of out: dX = g Y', dY = X' g. Each of these is such a product
 * again.
 */
#include "ops/math/batch_matmul.h"

#include <fleet/ops.h>

#include "ops/dnnl.h"
#include "ops/ops.h"

enum { OUT, A, B };

typedef struct product {
    fl_matmul *matmul;
} product;

/* Of all matrices of a slice at once. */
static fleet_status batch_prepare(fl_instance *in)
{
    const fl_batch_matmul *c = in->step->config;
    product *p = in->state;

    FL_TRY(fl_matmul_create(
        &p->matmul,
        &(fl_matmul_spec){.batch = in->slice * in->arg[OUT].factor * c->count,
                          .m = c->m,
                          .n = c->n,
                          .k = c->k,
                          .ta = c->ta,
                          .tb = c->tb,
                          .lda = c->ta ? c->m : c->k,
                          .ldb = c->tb ? c->k : c->n,
                          .ldc = c->n},
        in->n_thread));
    in->scratch_size = fl_matmul_scratch(p->matmul);
    return FLEET_OK;
}

static void batch_finish(fl_instance *in)
{
    fl_matmul_destroy(((product *)in->state)->matmul);
}

static fleet_status batch_run(const fl_instance *in, const fl_range *r)
{
    const product *p = in->state;

    return fl_matmul_run(p->matmul, r->thread, fl_rows_f32(in, A, r),
                         fl_rows_f32(in, B, r), NULL, fl_rows_f32(in, OUT, r),
                         r->scratch);
}

static const fl_kernel kernel = {
    .name = "batch_matmul",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(product),
    .prepare = batch_prepare,
    .finish = batch_finish,
    .run = batch_run,
};

/* --- shapes --------------------------------------------------------------- */

static fleet_status do_not_fit(const fl_node *n)
{
    return fl_fail(FLEET_ESHAPE,
                   "batch_matmul: cannot multiply \"%s\" %s%s by \"%s\" %s%s",
                   n->in[0]->name, fl_shape_print(&n->in[0]->shape).chars,
                   fl_node_int(n, "transpose_x") ? " transposed" : "",
                   n->in[1]->name, fl_shape_print(&n->in[1]->shape).chars,
                   fl_node_int(n, "transpose_y") ? " transposed" : "");
}

/* The product of the last two dimensions, as both inputs have them. */
static fl_batch_matmul product_of(const fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape, *y = &n->in[1]->shape;
    int last = x->n_dim - 1;
    fl_batch_matmul c = {.count = 1,
                         .ta = fl_node_int(n, "transpose_x") != 0,
                         .tb = fl_node_int(n, "transpose_y") != 0};

    for (int i = 1; i < last - 1; i++)
        c.count *= x->dim[i];
    c.m = x->dim[c.ta ? last : last - 1];
    c.k = x->dim[c.ta ? last - 1 : last];
    c.n = y->dim[c.tb ? last - 1 : last];
    return c;
}

static fleet_status infer(fl_node *n)
{
    const fl_shape *x = &n->in[0]->shape, *y = &n->in[1]->shape;
    int last = x->n_dim - 1;
    fl_shape out = *x;
    fl_batch_matmul c;

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    FL_TRY(fl_want_dtype(n, 1, FLEET_FLOAT32));
    for (int i = 0; i < 2; i++)
        if (!fl_shape_batched(&n->in[i]->shape) || n->in[i]->shape.n_dim < 3)
            return fl_want_shape(n, i, "[-1,M,K] or more dimensions");
    if (x->n_dim != y->n_dim)
        return do_not_fit(n);
    for (int i = 0; i < last - 1; i++)
        if (x->dim[i] != y->dim[i])
            return do_not_fit(n);
    c = product_of(n);
    if (y->dim[c.tb ? last : last - 1] != c.k)
        return do_not_fit(n);
    out.dim[last - 1] = c.m;
    out.dim[last] = c.n;
    FL_TRY(fl_shape_check_result("batch_matmul", &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* --- lowering ------------------------------------------------------------- */

static void emit(fl_lowering *l, const fl_node *n, const fl_batch_matmul *c,
                 int out, int a, int b)
{
    FL_EMIT(l, &kernel, n, fl_config(l, c, sizeof *c), FL_W(out), FL_R(a),
            FL_R(b));
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    fl_batch_matmul c = product_of(n);

    emit(l, n, &c, fl_value_of(l, n->out[0]), fl_value_of(l, n->in[0]),
         fl_value_of(l, n->in[1]));
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    fl_batch_matmul c = product_of(n), d = {.count = c.count};
    int g = fl_gradient_of(l, n->out[0]), to;
    int x = fl_value_of(l, n->in[0]), y = fl_value_of(l, n->in[1]);

    if ((to = fl_gradient_to(l, n->in[0])) >= 0) {
        if (c.ta) { /* [k, m]: Y g' */
            d.m = c.k, d.k = c.n, d.n = c.m, d.ta = c.tb, d.tb = true;
            emit(l, n, &d, to, y, g);
        } else { /* [m, k]: g Y' */
            d.m = c.m, d.k = c.n, d.n = c.k, d.ta = false, d.tb = !c.tb;
            emit(l, n, &d, to, g, y);
        }
    }
    if ((to = fl_gradient_to(l, n->in[1])) >= 0) {
        if (c.tb) { /* [n, k]: g' X */
            d.m = c.n, d.k = c.m, d.n = c.k, d.ta = true, d.tb = c.ta;
            emit(l, n, &d, to, g, x);
        } else { /* [k, n]: X' g */
            d.m = c.k, d.k = c.m, d.n = c.n, d.ta = !c.ta, d.tb = false;
            emit(l, n, &d, to, x, g);
        }
    }
    return FLEET_OK;
}

const fl_op fl_op_batch_matmul = {
    .name = "batch_matmul",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .attrs = "transpose_x:i transpose_y:i",
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_batch_matmul(fleet_program *p, fleet_var *x, fleet_var *y,
                              int transpose_x, int transpose_y)
{
    fl_attr attr[] = {FL_ATTR_INT("transpose_x", transpose_x != 0),
                      FL_ATTR_INT("transpose_y", transpose_y != 0)};

    return fl_build_of_two(p, &fl_op_batch_matmul, x, y, attr, 2);
}
