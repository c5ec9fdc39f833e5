/* gru.c - a gated recurrent unit (Cho et al. 2014) over sequences, as PyTorch
 * and cuDNN have it, all steps in one kernel; with weights of its updates it is
 * DIEN's AUGRU (Zhou et al. 2019).
 *
 *   s = h W + b                        [3 H]: s_r, s_z, s_n
 *   r = sigmoid(x_r + s_r)             z = sigmoid(x_z + s_z)
 *   n = tanh(x_n + r s_n)              h' = h + a (1 - z) (n - h)
 *
 * A step whose weight a is 0 leaves the state as it is: a mask is such weights.
 * Samples do not depend on each other, so that a slice goes through all steps
 * by itself, forward and backward; dW and db sum over the batch, in the kernels
 * of fc.
 */
#include "ops/sequence/gru.h"

#include <string.h>

#include "ops/sequence/recurrent.h"
#include "runtime/simd/simd.h"

enum { GATES = 3, KEPT = 4 }; /* of a unit: in x, in gates */

/* --- forward -------------------------------------------------------------- */

/* Step t of n rows; s: h W + b of each. */
static void forward_step(const fl_instance *in, const fl_range *r, int64_t t,
                         float *s)
{
    const fl_activation_simd *act = fl_simd_best()->activation;
    const fl_recurrent *c = in->step->config;
    int64_t u = c->units, n = fl_range_rows(in, F_OUT, r);
    const float *x = fl_rows_f32(in, F_X, r) + t * GATES * u;
    float *out = fl_rows_f32(in, F_OUT, r) + t * u;
    float *gates = fl_rows_f32(in, F_GATES, r) + t * KEPT * u;
    const float *a =
        in->arg[F_WEIGHTS].base ? fl_rows_f32(in, F_WEIGHTS, r) + t : NULL;

    for (int64_t i = 0; i < n; i++) {
        float weight = a ? a[i * c->len] : 1.0f;

        for (int64_t j = 0; j < 2 * u; j++)
            gates[j] = x[j] + s[j];
        act[FLEET_SIGMOID].forward(gates, gates, 0, 2 * u);
        for (int64_t j = 0; j < u; j++)
            gates[2 * u + j] = x[2 * u + j] + gates[j] * s[2 * u + j];
        act[FLEET_TANH].forward(gates + 2 * u, gates + 2 * u, 0, u);
        memcpy(gates + 3 * u, s + 2 * u, (size_t)u * sizeof *gates);
        for (int64_t j = 0; j < u; j++) {
            fl_gru_gates g = {gates[j], gates[u + j], gates[2 * u + j], 0};
            float before = t > 0 ? out[j - u] : 0.0f;

            out[j] = before + fl_gru_taken(&g, weight) * (g.n - before);
        }
        x += c->len * GATES * u;
        out += c->len * u;
        gates += c->len * KEPT * u;
        s += 3 * u;
    }
}

static fleet_status forward_prepare(fl_instance *in)
{
    return fl_recurrent_prepare(in, GATES);
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_recurrent *c = in->step->config;
    const fl_recurrent_state *state = in->state;
    const float *b = fl_ptr(in, F_B);
    float *s = fl_recurrent_scratch(in, r);

    for (int64_t i = 0; i < fl_range_rows(in, F_OUT, r); i++)
        memcpy(s + i * 3 * c->units, b, (size_t)(3 * c->units) * sizeof *s);
    for (int64_t t = 0; t < c->len; t++) {
        if (t > 0)
            FL_TRY(fl_matmul_run(state->matmul, r->thread,
                                 fl_rows_f32(in, F_OUT, r) + (t - 1) * c->units,
                                 fl_ptr(in, F_W), b, s, r->scratch));
        forward_step(in, r, t, s);
    }
    return FLEET_OK;
}

static const fl_kernel kernel = {
    .name = "gru",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(fl_recurrent_state),
    .prepare = forward_prepare,
    .finish = fl_recurrent_finish,
    .run = forward_run,
};

/* --- backward ------------------------------------------------------------- */

/* A row; dh: what comes from the steps behind, which becomes what goes to the
 * step before, but for the product's share. */
static void grad_row(const fl_recurrent_row *p, const fl_recurrent *c,
                     int64_t t, float *dh)
{
    int64_t u = c->units;
    float weight = p->weight ? *p->weight : 1.0f, sum = 0.0f;

    for (int64_t j = 0; j < u; j++) {
        fl_gru_gates g = {p->gates[j], p->gates[u + j], p->gates[2 * u + j],
                          p->gates[3 * u + j]};
        fl_gru_slopes d;

        p->last[j] = t > 0 ? p->out[j - u] : 0.0f;
        d = fl_gru_gradient(&g, p->last[j], weight, p->g[j] + dh[j]);
        p->dx[j] = p->ds[j] = d.xr;
        p->dx[u + j] = p->ds[u + j] = d.xz;
        p->dx[2 * u + j] = d.xn;
        p->ds[2 * u + j] = d.state;
        dh[j] = d.before;
        sum += d.weight;
    }
    if (p->da)
        *p->da = sum;
}

/* Behind the product's: the gradient of the state, and what is added. */
static fleet_status grad_prepare(fl_instance *in)
{
    const fl_recurrent *c = in->step->config;

    return fl_recurrent_prepare_grad(in, GATES, 2 * c->units);
}

static fleet_status grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_recurrent *c = in->step->config;
    const fl_recurrent_state *state = in->state;
    int64_t n = fl_range_rows(in, D_G, r), u = c->units;
    float *dh = fl_recurrent_scratch(in, r);
    float *more = dh + fl_recurrent_slice(in, D_G) * u;

    memset(dh, 0, (size_t)(n * u) * sizeof *dh);
    for (int64_t t = c->len - 1; t >= 0; t--) {
        fl_recurrent_row p = fl_recurrent_row_of(in, r, t, GATES, KEPT);

        for (int64_t i = 0; i < n;
             i++, fl_recurrent_row_next(&p, c, GATES, KEPT))
            grad_row(&p, c, t, dh + i * u);
        if (t == 0)
            break;
        FL_TRY(fl_matmul_run(state->matmul, r->thread,
                             fl_rows_f32(in, D_STATE, r) + t * GATES * u,
                             fl_ptr(in, D_W), NULL, more, r->scratch));
        fl_simd_best()->add(dh, dh, more, n * u);
    }
    return FLEET_OK;
}

static const fl_kernel kernel_grad = {
    .name = "gru.grad",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(fl_recurrent_state),
    .prepare = grad_prepare,
    .finish = fl_recurrent_finish,
    .run = grad_run,
};

/* --- the operator --------------------------------------------------------- */

static fleet_status infer(fl_node *n)
{
    return fl_recurrent_infer(n, GATES);
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    fl_recurrent_forward(l, n, GATES, KEPT, &kernel);
    return FLEET_OK;
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    fl_recurrent_gradient(l, n, GATES, &kernel_grad);
    return FLEET_OK;
}

const fl_op fl_op_gru = {
    .name = "gru",
    .n_out = 1,
    .least_in = 3,
    .most_in = 4, /* the last: weights of updates */
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_gru(fleet_program *p, fleet_var *x, int64_t units,
                     fleet_var *weights, const fleet_gru_options *options)
{
    return fl_recurrent_build(p, &fl_op_gru, GATES, x, units, weights, options);
}
