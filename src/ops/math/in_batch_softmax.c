/* in_batch_softmax.c - softmax cross-entropy of a sample's own item against all
 * items of its batch (Yi et al. 2019).
 *
 *   s_ij = scale u_i v_j - log q_j, for all j but other samples of i's item
 *   p_i  = softmax(s_i)            loss_i = -log p_ii
 *   ds_ij = g_i (p_ij - [i = j])
 *   du_i = scale sum_j ds_ij v_j   dv_j = scale sum_i ds_ij u_i
 *
 * A part has some rows of what it writes, and adds up in the order of the
 * batch, so that bits do not depend on the parts.
 */
#include "ops/math/in_batch_softmax.h"

#include <math.h>
#include <string.h>

#include <fleet/sequence.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"
#include "runtime/simd/simd.h"

enum { USERS, ITEMS, IDS, LOG_Q };

/* --- parts ---------------------------------------------------------------- */

typedef struct rows {
    int64_t begin, end;
} rows;

static fleet_status parts_prepare(fl_instance *in)
{
    enum { ROWS = 16, MOST = 64 };
    int64_t n = (in->batch + ROWS - 1) / ROWS;

    in->n_part = (int)(n < 1 ? 1 : n < MOST ? n : MOST);
    return FLEET_OK;
}

static rows rows_of(const fl_instance *in, const fl_range *r)
{
    return (rows){r->batch * r->begin / in->n_part,
                  r->batch * (r->begin + 1) / in->n_part};
}

/* --- in_batch.items ------------------------------------------------------- */

static fleet_status items_run(const fl_instance *in, const fl_range *r)
{
    const fl_in_batch *c = in->step->config;

    fl_simd_best()->transpose(fl_ptr(in, 0), c->most, fl_ptr(in, 1), c->dim,
                              r->batch, c->dim);
    return FLEET_OK;
}

static const fl_kernel items = {.name = "in_batch.items",
                                .split = FL_SPLIT_PARTS,
                                .n_part = 1,
                                .run = items_run};

/* --- in_batch_softmax ----------------------------------------------------- */

enum { F_LOSS, F_P, F_USERS, F_ITEMS, F_IDS, F_LOG_Q };

/* Is item j another sample's, and the same as i's? */
static bool is_hit(const int64_t *ids, int64_t i, int64_t j)
{
    return ids && i != j && ids[i] == ids[j];
}

/* All scores of a sample. */
static void score_row(const fl_instance *in, int64_t row, int64_t batch,
                      float *s)
{
    const fl_simd *simd = fl_simd_best();
    const fl_in_batch *c = in->step->config;
    const float *u = (const float *)fl_ptr(in, F_USERS) + row * c->dim;
    const float *v = fl_ptr(in, F_ITEMS);
    const float *log_q =
        in->arg[F_LOG_Q].base ? (const float *)fl_ptr(in, F_LOG_Q) : NULL;

    memset(s, 0, (size_t)batch * sizeof *s);
    for (int64_t d = 0; d < c->dim; d++)
        simd->add_scaled(s, v + d * c->most, c->scale * u[d], 0.0f, batch);
    for (int64_t j = 0; log_q && j < batch; j++)
        s[j] -= log_q[j];
}

/* Scores become probabilities; the ones that count side by side, then each to
 * its place. Returns the loss, which is taken from the scores and so does not
 * cancel. */
static float softmax_row(float *s, const int64_t *ids, int64_t row, int64_t n)
{
    float own = s[row], most = own, sum = 0.0f;
    int64_t kept = 0;

    for (int64_t j = 0; j < n; j++)
        if (!is_hit(ids, row, j))
            s[kept++] = s[j];
    for (int64_t j = 0; j < kept; j++)
        most = s[j] > most ? s[j] : most;
    for (int64_t j = 0; j < kept; j++)
        sum += expf(s[j] - most);
    fl_simd_best()->softmax(s, s, kept);
    for (int64_t j = n; ids && j-- > 0;)
        s[j] = is_hit(ids, row, j) ? 0.0f : s[--kept];
    return logf(sum) - (own - most);
}

static fleet_status softmax_run(const fl_instance *in, const fl_range *r)
{
    const fl_in_batch *c = in->step->config;
    const int64_t *ids =
        in->arg[F_IDS].base ? (const int64_t *)fl_ptr(in, F_IDS) : NULL;
    float *loss = fl_ptr(in, F_LOSS), *p = fl_ptr(in, F_P);
    rows of = rows_of(in, r);

    for (int64_t i = of.begin; i < of.end; i++) {
        score_row(in, i, r->batch, p + i * c->most);
        loss[i] = softmax_row(p + i * c->most, ids, i, r->batch);
    }
    return FLEET_OK;
}

static const fl_kernel softmax = {.name = "in_batch_softmax",
                                  .split = FL_SPLIT_PARTS,
                                  .prepare = parts_prepare,
                                  .run = softmax_run};

/* --- gradients ------------------------------------------------------------ */

enum { D_OUT, D_G, D_P, D_OTHER };

/* The gradient of score (i, j). */
static float slope(const fl_instance *in, int64_t i, int64_t j)
{
    const fl_in_batch *c = in->step->config;
    const float *g = fl_ptr(in, D_G), *p = fl_ptr(in, D_P);

    return c->scale * g[i] * (p[i * c->most + j] - (i == j ? 1.0f : 0.0f));
}

/* Row i of the result is the sum over all items, or users, j of their slope
 * with it, which is at (i, j), or at (j, i). */
static fleet_status gradient_run(const fl_instance *in, const fl_range *r,
                                 bool of_items)
{
    const fl_simd *simd = fl_simd_best();
    const fl_in_batch *c = in->step->config;
    const float *other = fl_ptr(in, D_OTHER);
    rows of = rows_of(in, r);

    for (int64_t i = of.begin; i < of.end; i++) {
        float *out = (float *)fl_ptr(in, D_OUT) + i * c->dim;

        memset(out, 0, (size_t)c->dim * sizeof *out);
        for (int64_t j = 0; j < r->batch; j++)
            simd->add_scaled(out, other + j * c->dim,
                             of_items ? slope(in, j, i) : slope(in, i, j), 0.0f,
                             c->dim);
    }
    return FLEET_OK;
}

static fleet_status users_grad_run(const fl_instance *in, const fl_range *r)
{
    return gradient_run(in, r, false);
}

static fleet_status items_grad_run(const fl_instance *in, const fl_range *r)
{
    return gradient_run(in, r, true);
}

static const fl_kernel users_grad = {.name = "in_batch_softmax.users",
                                     .split = FL_SPLIT_PARTS,
                                     .prepare = parts_prepare,
                                     .run = users_grad_run};
static const fl_kernel items_grad = {.name = "in_batch_softmax.items",
                                     .split = FL_SPLIT_PARTS,
                                     .prepare = parts_prepare,
                                     .run = items_grad_run};

/* --- the operator --------------------------------------------------------- */

static fleet_status infer(fl_node *n)
{
    const fl_shape *u = &n->in[USERS]->shape, *v = &n->in[ITEMS]->shape;
    double scale = fl_node_float(n, "scale");
    fl_shape out = fl_shape_2(-1, 1);

    for (int i = USERS; i <= ITEMS; i++) {
        FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
        if (n->in[i]->shape.n_dim != 2 || n->in[i]->shape.dim[0] != -1)
            return fl_want_shape(n, i, "[-1,D]");
    }
    if (!fl_shape_equal(u, v))
        return fl_fail(FLEET_ESHAPE,
                       "in_batch_softmax: users \"%s\" %s and items \"%s\" %s "
                       "have vectors of different sizes",
                       n->in[USERS]->name, fl_shape_print(u).chars,
                       n->in[ITEMS]->name, fl_shape_print(v).chars);
    for (int i = IDS; i <= LOG_Q; i++) {
        if (!fl_input_of(n, i))
            continue;
        FL_TRY(fl_want_dtype(n, i, i == IDS ? FLEET_INT64 : FLEET_FLOAT32));
        if (!fl_shape_equal(&n->in[i]->shape, &out))
            return fl_want_shape(n, i, "[-1,1]");
    }
    if (!(scale > 0) || !isfinite((float)scale))
        return fl_fail(FLEET_EINVAL,
                       "in_batch_softmax: temperature %g is not a finite "
                       "number above 0",
                       1 / scale);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static const void *config_of(fl_lowering *l, const fl_node *n)
{
    fl_in_batch c = {.dim = n->in[USERS]->shape.dim[1],
                     .most = l->plan->batch,
                     .scale = (float)fl_node_float(n, "scale")};

    return fl_config(l, &c, sizeof c);
}

static int value_of(fl_lowering *l, const fl_node *n, int i)
{
    return fl_input_of(n, i) ? fl_value_of(l, fl_input_of(n, i)) : -1;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n);
    int64_t most = l->plan->batch;
    fl_shape p_shape = fl_shape_2(-1, most),
             v_shape = fl_shape_2(n->in[USERS]->shape.dim[1], most);
    int p = fl_temp(l, "probabilities", FLEET_FLOAT32, &p_shape);
    int v = fl_temp(l, "items", FLEET_FLOAT32, &v_shape);

    FL_EMIT(l, &items, n, c, FL_W(v), FL_R(value_of(l, n, ITEMS)));
    FL_EMIT(l, &softmax, n, c, FL_W(fl_value_of(l, n->out[0])), FL_W(p),
            FL_R(value_of(l, n, USERS)), FL_R(v), FL_R(value_of(l, n, IDS)),
            FL_R(value_of(l, n, LOG_Q)));
    l->node[n->id].saved = p;
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const void *c = config_of(l, n);
    int g = fl_gradient_of(l, n->out[0]), p = l->node[n->id].saved;
    int users = fl_gradient_to(l, n->in[USERS]), to;

    if (users >= 0)
        FL_EMIT(l, &users_grad, n, c, FL_W(users), FL_R(g), FL_R(p),
                FL_R(value_of(l, n, ITEMS)));
    to = fl_gradient_to(l, n->in[ITEMS]);
    if (to >= 0)
        FL_EMIT(l, &items_grad, n, c, FL_W(to), FL_R(g), FL_R(p),
                FL_R(value_of(l, n, USERS)));
    return FLEET_OK;
}

const fl_op fl_op_in_batch_softmax = {
    .name = "in_batch_softmax",
    .n_out = 1,
    .least_in = 2,
    .most_in = 4, /* the last: ids, log q */
    .attrs = "scale:f",
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_in_batch_softmax(fleet_program *p, fleet_var *users,
                                  fleet_var *items_of,
                                  const fleet_in_batch_options *options)
{
    static const fleet_in_batch_options defaults;
    const fleet_in_batch_options *o = options ? options : &defaults;
    fleet_var *in[] = {users, items_of, o->item_ids, o->log_q};
    double scale = o->temperature == 0 ? 1 : 1 / (double)o->temperature;

    if (!fl_builder_ready(p, users) || !fl_builder_ready(p, items_of))
        return NULL;
    return fl_program_add(p, &fl_op_in_batch_softmax, in,
                          o->log_q      ? 4
                          : o->item_ids ? 3
                                        : 2,
                          &FL_ATTR_FLOAT("scale", scale), 1);
}
