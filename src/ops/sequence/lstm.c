/* lstm.c - long short-term memory over sequences, as PyTorch and cuDNN have it,
 * all steps in one kernel, with weights of its updates.
 *
 *   s = h W + b                        [4 H]: s_i, s_f, s_g, s_o
 *   i, f, o = sigmoid(x_ + s_)         g = tanh(x_g + s_g)
 *   c' = c + a (f c + i g - c)         h' = h + a (o tanh(f c + i g) - h)
 *
 * What a slice does by itself, and what sums over the batch, is as in gru.c.
 */
#include "ops/sequence/lstm.h"

#include <string.h>

#include "ops/sequence/recurrent.h"
#include "runtime/simd/simd.h"

enum { GATES = 4, KEPT = 6, CELL = 5 }; /* of a unit: in x, in gates; where */

/* --- forward -------------------------------------------------------------- */

/* Where a row has its numbers of a step. */
typedef struct lstm_at {
    float *out, *gates;
    const float *x, *weight; /* NULL: 1 */
} lstm_at;

static lstm_at step_of(const fl_instance *in, const fl_range *r, int64_t t)
{
    const fl_recurrent *c = in->step->config;
    int64_t u = c->units;

    return (lstm_at){
        .out = fl_rows_f32(in, F_OUT, r) + t * u,
        .gates = fl_rows_f32(in, F_GATES, r) + t * KEPT * u,
        .x = fl_rows_f32(in, F_X, r) + t * GATES * u,
        .weight =
            in->arg[F_WEIGHTS].base ? fl_rows_f32(in, F_WEIGHTS, r) + t : NULL,
    };
}

static void next_row(lstm_at *p, const fl_recurrent *c)
{
    int64_t n = c->len * c->units;

    p->out += n;
    p->gates += KEPT * n;
    p->x += GATES * n;
    p->weight = p->weight ? p->weight + c->len : NULL;
}

/* s: h W + b of the row. */
static void step_row(const lstm_at *p, int64_t t, int64_t u, const float *s)
{
    const fl_activation_simd *act = fl_simd_best()->activation;
    float *i = p->gates, *f = i + u, *g = f + u, *o = g + u, *tc = o + u;
    float *cell = tc + u;
    float weight = p->weight ? *p->weight : 1.0f;

    for (int64_t j = 0; j < GATES * u; j++)
        i[j] = p->x[j] + s[j];
    act[FLEET_SIGMOID].forward(i, i, 0, 2 * u);
    act[FLEET_TANH].forward(g, g, 0, u);
    act[FLEET_SIGMOID].forward(o, o, 0, u);
    for (int64_t j = 0; j < u; j++) {
        float before = t > 0 ? cell[j - KEPT * u] : 0.0f;

        tc[j] = f[j] * before + i[j] * g[j];
        cell[j] = fl_lstm_updated(before, tc[j], weight);
    }
    act[FLEET_TANH].forward(tc, tc, 0, u);
    for (int64_t j = 0; j < u; j++)
        p->out[j] =
            fl_lstm_updated(t > 0 ? p->out[j - u] : 0.0f, o[j] * tc[j], weight);
}

static fleet_status forward_prepare(fl_instance *in)
{
    return fl_recurrent_prepare(in, GATES);
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_recurrent *c = in->step->config;
    const fl_recurrent_state *state = in->state;
    int64_t u = c->units, n = fl_range_rows(in, F_OUT, r);
    const float *b = fl_ptr(in, F_B);
    float *s = fl_recurrent_scratch(in, r);

    for (int64_t i = 0; i < n; i++)
        memcpy(s + i * GATES * u, b, (size_t)(GATES * u) * sizeof *s);
    for (int64_t t = 0; t < c->len; t++) {
        lstm_at p = step_of(in, r, t);

        if (t > 0)
            FL_TRY(fl_matmul_run(state->matmul, r->thread, p.out - u,
                                 fl_ptr(in, F_W), b, s, r->scratch));
        for (int64_t i = 0; i < n; i++, next_row(&p, c))
            step_row(&p, t, u, s + i * GATES * u);
    }
    return FLEET_OK;
}

static const fl_kernel kernel = {
    .name = "lstm",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(fl_recurrent_state),
    .prepare = forward_prepare,
    .finish = fl_recurrent_finish,
    .run = forward_run,
};

/* --- backward ------------------------------------------------------------- */

/* A row; dh, dc: what comes from the steps behind, which become what goes to
 * the step before, but for the product's share. */
static void grad_row(const fl_recurrent_row *p, int64_t u, int64_t t, float *dh,
                     float *dc)
{
    float weight = p->weight ? *p->weight : 1.0f, sum = 0.0f;
    const float *kept = p->gates, *cell = kept + (CELL - KEPT) * u;

    for (int64_t j = 0; j < u; j++) {
        fl_lstm_gates g = {kept[j], kept[u + j], kept[2 * u + j],
                           kept[3 * u + j], kept[4 * u + j]};
        fl_lstm_slopes d;

        p->last[j] = t > 0 ? p->out[j - u] : 0.0f;
        d = fl_lstm_gradient(&g, p->last[j], t > 0 ? cell[j] : 0.0f, weight,
                             p->g[j] + dh[j], dc[j]);
        p->dx[j] = p->ds[j] = d.i;
        p->dx[u + j] = p->ds[u + j] = d.f;
        p->dx[2 * u + j] = p->ds[2 * u + j] = d.g;
        p->dx[3 * u + j] = p->ds[3 * u + j] = d.o;
        dh[j] = d.state;
        dc[j] = d.cell;
        sum += d.weight;
    }
    if (p->da)
        *p->da = sum;
}

/* Behind the product's: gradients of state and cell, and what is added. */
static fleet_status grad_prepare(fl_instance *in)
{
    const fl_recurrent *c = in->step->config;

    return fl_recurrent_prepare_grad(in, GATES, 3 * c->units);
}

static fleet_status grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_recurrent *c = in->step->config;
    const fl_recurrent_state *state = in->state;
    int64_t n = fl_range_rows(in, D_G, r), u = c->units;
    float *dh = fl_recurrent_scratch(in, r), *dc = dh + n * u;
    float *more = dc + n * u;

    memset(dh, 0, (size_t)(2 * n * u) * sizeof *dh);
    for (int64_t t = c->len - 1; t >= 0; t--) {
        fl_recurrent_row p = fl_recurrent_row_of(in, r, t, GATES, KEPT);

        for (int64_t i = 0; i < n;
             i++, fl_recurrent_row_next(&p, c, GATES, KEPT))
            grad_row(&p, u, t, dh + i * u, dc + i * u);
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
    .name = "lstm.grad",
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

const fl_op fl_op_lstm = {
    .name = "lstm",
    .n_out = 1,
    .least_in = 3,
    .most_in = 4, /* the last: weights of updates */
    .infer = infer,
    .forward = forward,
    .gradient = gradient,
};

fleet_var *fleet_lstm(fleet_program *p, fleet_var *x, int64_t units,
                      fleet_var *weights, const fleet_lstm_options *options)
{
    return fl_recurrent_build(p, &fl_op_lstm, GATES, x, units, weights,
                              options);
}
