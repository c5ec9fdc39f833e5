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

#include <fleet/sequence.h>

#include "base/memory.h"
#include "ops/dnnl.h"
#include "ops/fc_kernels.h"
#include "ops/ops.h"
#include "runtime/graph/program.h"
#include "runtime/simd/simd.h"

enum { X, W, B, WEIGHTS };

/* --- forward -------------------------------------------------------------- */

enum { F_OUT, F_GATES, F_X, F_W, F_B, F_WEIGHTS };

typedef struct gru_state {
    fl_matmul *matmul;
    size_t product; /* bytes of the product's own scratch */
} gru_state;

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t slice_rows(const fl_instance *in, int i)
{
    return in->slice * in->arg[i].factor;
}

static void gru_finish(fl_instance *in)
{
    fl_matmul_destroy(((gru_state *)in->state)->matmul);
}

/* A product of a slice's states, which lie a sample apart, and the scratch:
 * oneDNN's, then `room` floats for each row. */
static fleet_status prepare(fl_instance *in, int like,
                            const fl_matmul_spec *spec, int64_t room)
{
    gru_state *s = in->state;

    FL_TRY(fl_matmul_create(&s->matmul, spec, in->n_thread));
    s->product = padded(fl_matmul_scratch(s->matmul));
    in->scratch_size =
        s->product + (size_t)(slice_rows(in, like) * room) * sizeof(float);
    return FLEET_OK;
}

static fleet_status forward_prepare(fl_instance *in)
{
    const fl_gru *c = in->step->config;

    return prepare(in, F_OUT,
                   &(fl_matmul_spec){.m = slice_rows(in, F_OUT),
                                     .n = 3 * c->units,
                                     .k = c->units,
                                     .bias = true,
                                     .lda = c->len * c->units,
                                     .ldb = 3 * c->units,
                                     .ldc = 3 * c->units},
                   3 * c->units);
}

/* Step t of n rows; s: h W + b of each. */
static void forward_step(const fl_instance *in, const fl_range *r, int64_t t,
                         float *s)
{
    const fl_activation_simd *act = fl_simd_best()->activation;
    const fl_gru *c = in->step->config;
    int64_t u = c->units, n = fl_range_rows(in, F_OUT, r);
    const float *x = fl_rows_f32(in, F_X, r) + t * 3 * u;
    float *out = fl_rows_f32(in, F_OUT, r) + t * u;
    float *gates = fl_rows_f32(in, F_GATES, r) + t * 4 * u;
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
        x += c->len * 3 * u;
        out += c->len * u;
        gates += c->len * 4 * u;
        s += 3 * u;
    }
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_gru *c = in->step->config;
    const gru_state *state = in->state;
    const float *b = fl_ptr(in, F_B);
    float *s = (float *)(void *)((char *)r->scratch + state->product);

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
    .state_size = sizeof(gru_state),
    .prepare = forward_prepare,
    .finish = gru_finish,
    .run = forward_run,
};

/* --- backward ------------------------------------------------------------- */

enum {
    D_X,
    D_STATE,
    D_LAST,
    D_WEIGHTS, /* absent: not wanted */
    D_G,
    D_OUT,
    D_GATES,
    D_W,
    D_OF_WEIGHTS
};

static fleet_status grad_prepare(fl_instance *in)
{
    const fl_gru *c = in->step->config;

    return prepare(in, D_G,
                   &(fl_matmul_spec){.m = slice_rows(in, D_G),
                                     .n = c->units,
                                     .k = 3 * c->units,
                                     .tb = true,
                                     .lda = c->len * 3 * c->units,
                                     .ldb = 3 * c->units,
                                     .ldc = c->units},
                   2 * c->units);
}

/* Where a row has its numbers of step t. */
typedef struct step_at {
    float *dx, *ds, *last, *da;
    const float *g, *out, *gates, *a;
} step_at;

static step_at step_of(const fl_instance *in, const fl_range *r, int64_t t)
{
    const fl_gru *c = in->step->config;
    int64_t u = c->units;

    return (step_at){
        .dx = fl_rows_f32(in, D_X, r) + t * 3 * u,
        .ds = fl_rows_f32(in, D_STATE, r) + t * 3 * u,
        .last = fl_rows_f32(in, D_LAST, r) + t * u,
        .da =
            in->arg[D_WEIGHTS].base ? fl_rows_f32(in, D_WEIGHTS, r) + t : NULL,
        .g = fl_rows_f32(in, D_G, r) + t * u,
        .out = fl_rows_f32(in, D_OUT, r) + t * u,
        .gates = fl_rows_f32(in, D_GATES, r) + t * 4 * u,
        .a = in->arg[D_OF_WEIGHTS].base ? fl_rows_f32(in, D_OF_WEIGHTS, r) + t
                                        : NULL,
    };
}

static void next_row(step_at *p, const fl_gru *c)
{
    int64_t n = c->len * c->units;

    p->dx += 3 * n;
    p->ds += 3 * n;
    p->last += n;
    p->g += n;
    p->out += n;
    p->gates += 4 * n;
    p->a = p->a ? p->a + c->len : NULL;
    p->da = p->da ? p->da + c->len : NULL;
}

/* A row; dh: what comes from the steps behind, which becomes what goes to the
 * step before, but for the product's share. */
static void grad_row(const step_at *p, const fl_gru *c, int64_t t, float *dh)
{
    int64_t u = c->units;
    float weight = p->a ? *p->a : 1.0f, sum = 0.0f;

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

static fleet_status grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_gru *c = in->step->config;
    const gru_state *state = in->state;
    int64_t n = fl_range_rows(in, D_G, r), u = c->units;
    float *dh = (float *)(void *)((char *)r->scratch + state->product);
    float *more = dh + slice_rows(in, D_G) * u;

    memset(dh, 0, (size_t)(n * u) * sizeof *dh);
    for (int64_t t = c->len - 1; t >= 0; t--) {
        step_at p = step_of(in, r, t);

        for (int64_t i = 0; i < n; i++, next_row(&p, c))
            grad_row(&p, c, t, dh + i * u);
        if (t == 0)
            break;
        FL_TRY(fl_matmul_run(state->matmul, r->thread,
                             fl_rows_f32(in, D_STATE, r) + t * 3 * u,
                             fl_ptr(in, D_W), NULL, more, r->scratch));
        fl_simd_best()->add(dh, dh, more, n * u);
    }
    return FLEET_OK;
}

static const fl_kernel kernel_grad = {
    .name = "gru.grad",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(gru_state),
    .prepare = grad_prepare,
    .finish = gru_finish,
    .run = grad_run,
};

/* --- the operator --------------------------------------------------------- */

static const fleet_var *weights_of(const fl_node *n)
{
    return fl_input_of(n, WEIGHTS);
}

static int64_t units_of(const fl_node *n)
{
    return n->in[X]->shape.dim[2] / 3;
}

static fleet_status do_not_fit(const fl_node *n, int i, const char *what)
{
    return fl_fail(FLEET_ESHAPE,
                   "gru: \"%s\" has shape %s; expected %s for "
                   "\"%s\" %s",
                   n->in[i]->name, fl_shape_print(&n->in[i]->shape).chars, what,
                   n->in[X]->name, fl_shape_print(&n->in[X]->shape).chars);
}

static fleet_status infer(fl_node *n)
{
    const fl_shape *x = &n->in[X]->shape, *w = &n->in[W]->shape,
                   *b = &n->in[B]->shape;
    fl_shape out = *x;

    for (int i = X; i <= WEIGHTS; i++)
        if (i < WEIGHTS || weights_of(n))
            FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
    if (x->n_dim != 3 || !fl_shape_batched(x) || x->dim[2] % 3 != 0)
        return fl_want_shape(n, X, "[-1,T,3 H]");
    out.dim[2] = units_of(n);
    if (w->n_dim != 2 || w->dim[0] != out.dim[2] || w->dim[1] != x->dim[2])
        return do_not_fit(n, W, "[H,3 H]");
    if (b->n_dim != 1 || b->dim[0] != x->dim[2])
        return do_not_fit(n, B, "[3 H]");
    if (weights_of(n)) {
        const fl_shape *a = &weights_of(n)->shape;

        if (a->n_dim != 2 || a->dim[0] != x->dim[0] || a->dim[1] != x->dim[1])
            return do_not_fit(n, WEIGHTS, "[-1,T]");
    }
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* A value for each step of each sample. */
static int temp_of(fl_lowering *l, const fl_node *n, const char *name,
                   int64_t cols)
{
    fl_shape shape = n->out[0]->shape;

    shape.dim[2] = cols;
    return fl_temp(l, name, FLEET_FLOAT32, &shape);
}

static const void *config_of(fl_lowering *l, const fl_node *n)
{
    fl_gru c = {n->in[X]->shape.dim[1], units_of(n)};

    return fl_config(l, &c, sizeof c);
}

static int value_of_weights(fl_lowering *l, const fl_node *n)
{
    return fl_value_of(l, weights_of(n));
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    int gates = temp_of(l, n, "gates", 4 * units_of(n));

    FL_EMIT(l, &kernel, n, config_of(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_W(gates), FL_R(fl_value_of(l, n->in[X])),
            FL_R(fl_value_of(l, n->in[W])), FL_R(fl_value_of(l, n->in[B])),
            FL_R(value_of_weights(l, n)));
    l->node[n->id].saved = gates;
    return FLEET_OK;
}

/* Its rows are the steps of all samples. */
static int as_rows(fl_lowering *l, const fl_node *n, const char *name,
                   int64_t cols)
{
    fl_shape shape =
        fl_shape_2(n->out[0]->shape.dim[0] * n->out[0]->shape.dim[1], cols);

    return fl_temp(l, name, FLEET_FLOAT32, &shape);
}

/* Sums over the batch, of states and the gradients of what is made of them. */
static void emit_sums(fl_lowering *l, const fl_node *n, int last, int state)
{
    int64_t u = units_of(n);
    fl_fc_config c = {.k = u, .n = 3 * u, .bias = true};
    const void *config = fl_config(l, &c, sizeof c);
    bool small = c.n <= FL_SMALL_N;
    int to;

    if ((to = fl_gradient_to(l, n->in[W])) >= 0)
        FL_EMIT(l, small ? &fl_kernel_fc_small_dw : &fl_kernel_fc_dw, n, config,
                FL_W(to), FL_R(last), FL_R(state));
    if ((to = fl_gradient_to(l, n->in[B])) >= 0)
        FL_EMIT(l, &fl_kernel_fc_db, n, config, FL_W(to), FL_R(state));
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    int64_t u = units_of(n);
    int g = fl_gradient_of(l, n->out[0]);
    int dx = fl_gradient_to(l, n->in[X]);
    int da = fl_gradient_to(l, weights_of(n));
    int state = as_rows(l, n, "state gradient", 3 * u);
    int last = as_rows(l, n, "state before", u);

    if (dx < 0)
        dx = temp_of(l, n, "not wanted", 3 * u);
    FL_EMIT(l, &kernel_grad, n, config_of(l, n), FL_W(dx), FL_W(state),
            FL_W(last), FL_W(da), FL_R(g), FL_R(fl_value_of(l, n->out[0])),
            FL_R(l->node[n->id].saved), FL_R(fl_value_of(l, n->in[W])),
            FL_R(value_of_weights(l, n)));
    emit_sums(l, n, last, state);
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

/* --- the builder ---------------------------------------------------------- */

static fleet_var *add_gru(fleet_program *p, fleet_var *x, int64_t units,
                          fleet_var *weights, const fleet_gru_options *o,
                          const char *name)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_initializer xavier = {FLEET_INIT_XAVIER_UNIFORM, 0, 0};
    fl_shape w = fl_shape_2(units, 3 * units), b = fl_shape_1(3 * units);
    fleet_fc_options input = {.name = fl_arena_format(&p->arena, "%s.x", name),
                              .weight = o->input,
                              .bias = o->input_bias,
                              .num_flatten_dims = 2};
    const char *state = fl_arena_format(&p->arena, "%s.h", name);
    fleet_var *in[4] = {NULL, NULL, NULL, weights};

    if (!input.name || !state)
        return fl_program_failed(p, FLEET_ENOMEM);
    in[X] = fleet_fc(p, x, 3 * units, &input);
    in[W] = fl_program_param(p, state, "w", &w, &o->state, xavier);
    in[B] = fl_program_param(p, state, "b", &b, &o->state_bias, zero);
    return fl_program_add(p, &fl_op_gru, in, weights ? 4 : 3, NULL, 0);
}

fleet_var *fleet_gru(fleet_program *p, fleet_var *x, int64_t units,
                     fleet_var *weights, const fleet_gru_options *options)
{
    static const fleet_gru_options defaults;
    const fleet_gru_options *o = options ? options : &defaults;
    const char *name;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (x->shape.n_dim != 3 || x->ragged)
        return fl_program_failed(
            p,
            fl_fail(FLEET_ESHAPE, "gru: \"%s\" has shape %s; expected [-1,T,D]",
                    x->name, fl_shape_print(&x->shape).chars));
    if (units < 1 || units > (1 << 20))
        return fl_program_failed(p, fl_fail(FLEET_ESHAPE,
                                            "gru: cannot have %lld units",
                                            (long long)units));
    name = o->name ? o->name : fl_program_name(p, "gru");
    return name ? add_gru(p, x, units, weights, o, name)
                : fl_program_failed(p, FLEET_ENOMEM);
}
