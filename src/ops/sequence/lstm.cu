/* lstm.cu - the CUDA half of lstm.c: for each step a product of all samples'
 * states, then a thread for each unit. */
#include "ops/sequence/lstm.h"

#include "ops/sequence/recurrent_cuda.h"

enum { GATES = 4, KEPT = 6, CELL = 5 }; /* of a unit: in x, in gates; where */

/* --- lstm: out, gates <- x, W, b, updates --------------------------------- */

enum { F_OUT, F_GATES, F_X, F_W, F_B, F_WEIGHTS };

static fleet_status forward_prepare(fl_device *d, fl_queue *q,
                                    fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    fl_gemm_spec spec = {};

    spec.m = fl_step_rows(s, F_OUT);
    spec.n = GATES * c->units;
    spec.k = c->units;
    spec.lda = c->len * c->units;
    spec.ldb = spec.ldc = GATES * c->units;
    spec.epilogue = FL_GEMM_BIAS;
    s->scratch_size = (size_t)(spec.m * spec.n) * sizeof(float);
    return d->methods->gemm_create(d, q, &spec, &fl_recurrent_gemm_of(s)->gemm);
}

struct lstm_args {
    float *out, *gates;
    const float *x, *s, *b, *weights;
    int64_t n, t;
    fl_recurrent c;
};

/* At the first step the state's part is b. */
__global__ static void forward_step(lstm_args a)
{
    FL_EACH(at, a.n * a.c.units)
    {
        int64_t row = at / a.c.units, j = at % a.c.units, u = a.c.units;
        int64_t step = row * a.c.len + a.t;
        const float *x = a.x + step * GATES * u + j;
        const float *s = a.t > 0 ? a.s + row * GATES * u + j : a.b + j;
        float *gates = a.gates + step * KEPT * u + j;
        float *out = a.out + step * u + j;
        float weight = a.weights ? a.weights[step] : 1.0f;
        float cell = a.t > 0 ? gates[(CELL - KEPT) * u] : 0.0f;
        float i = fl_recurrent_sigmoid(x[0] + s[0]);
        float f = fl_recurrent_sigmoid(x[u] + s[u]);
        float g = tanhf(x[2 * u] + s[2 * u]);
        float o = fl_recurrent_sigmoid(x[3 * u] + s[3 * u]);
        float tanh_cell = tanhf(f * cell + i * g);

        gates[0] = i;
        gates[u] = f;
        gates[2 * u] = g;
        gates[3 * u] = o;
        gates[4 * u] = tanh_cell;
        gates[CELL * u] = fl_lstm_updated(cell, f * cell + i * g, weight);
        *out = fl_lstm_updated(a.t > 0 ? out[-u] : 0.0f, o * tanh_cell, weight);
    }
}

static fleet_status forward(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    float *product = static_cast<float *>(s->scratch);
    lstm_args a = {fl_step_f32(s, F_OUT),
                   fl_step_f32(s, F_GATES),
                   fl_step_f32(s, F_X),
                   product,
                   fl_step_f32(s, F_B),
                   fl_step_f32(s, F_WEIGHTS),
                   fl_step_rows(s, F_OUT),
                   0,
                   *c};

    for (; a.t < c->len; a.t++) {
        if (a.t > 0)
            FL_TRY(fl_recurrent_run(d, q, s, a.out + (a.t - 1) * c->units,
                                    fl_step_f32(s, F_W), a.b, product));
        FL_TRY(FL_LAUNCH_EACH(forward_step, a.n * c->units, q, a));
    }
    return FLEET_OK;
}

/* --- lstm.grad: dx, dh, last, d updates <- g, out, gates, W, updates ------ */

enum {
    D_X,
    D_STATE,
    D_LAST,
    D_WEIGHTS,
    D_G,
    D_OUT,
    D_GATES,
    D_W,
    D_OF_WEIGHTS
};

/* The scratch: gradients of state and cell, and the product that is added. */
static fleet_status grad_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    fl_gemm_spec spec = {};

    spec.m = fl_step_rows(s, D_G);
    spec.n = c->units;
    spec.k = GATES * c->units;
    spec.tb = true;
    spec.lda = c->len * GATES * c->units;
    spec.ldb = GATES * c->units;
    spec.ldc = c->units;
    s->scratch_size = (size_t)(3 * spec.m * spec.n) * sizeof(float);
    return d->methods->gemm_create(d, q, &spec, &fl_recurrent_gemm_of(s)->gemm);
}

struct lstm_grad_args {
    float *dx, *ds, *last, *da, *dh, *dc;
    const float *more, *g, *out, *gates, *weights;
    int64_t n, t;
    fl_recurrent c;
};

__device__ static float grad_unit(const lstm_grad_args &a, int64_t row,
                                  int64_t j)
{
    int64_t u = a.c.units, step = row * a.c.len + a.t, at = row * u + j;
    bool is_end = a.t == a.c.len - 1;
    const float *kept = a.gates + step * KEPT * u + j;
    fl_lstm_gates gates = {kept[0], kept[u], kept[2 * u], kept[3 * u],
                           kept[4 * u]};
    float before = a.t > 0 ? a.out[(step - 1) * u + j] : 0.0f;
    fl_lstm_slopes d = fl_lstm_gradient(
        &gates, before, a.t > 0 ? kept[(CELL - KEPT) * u] : 0.0f,
        a.weights ? a.weights[step] : 1.0f,
        a.g[step * u + j] + (is_end ? 0.0f : a.dh[at] + a.more[at]),
        is_end ? 0.0f : a.dc[at]);
    float *dx = a.dx + step * GATES * u + j, *ds = a.ds + step * GATES * u + j;

    a.last[step * u + j] = before;
    dx[0] = ds[0] = d.i;
    dx[u] = ds[u] = d.f;
    dx[2 * u] = ds[2 * u] = d.g;
    dx[3 * u] = ds[3 * u] = d.o;
    a.dh[at] = d.state;
    a.dc[at] = d.cell;
    return d.weight;
}

/* A warp has a row, so that the sum over units has one order. */
__global__ static void grad_step(lstm_grad_args a)
{
    FL_EACH_ROW(row, a.n)
    {
        float sum = 0.0f;

        for (int64_t j = threadIdx.x % FL_WARP; j < a.c.units; j += FL_WARP)
            sum += grad_unit(a, row, j);
        sum = fl_warp_sum(sum);
        if (a.da && threadIdx.x % FL_WARP == 0)
            a.da[row * a.c.len + a.t] = sum;
    }
}

static fleet_status grad(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    int64_t n = fl_step_rows(s, D_G);
    float *dh = static_cast<float *>(s->scratch), *dc = dh + n * c->units;
    float *more = dc + n * c->units;
    lstm_grad_args a = {fl_step_f32(s, D_X),
                        fl_step_f32(s, D_STATE),
                        fl_step_f32(s, D_LAST),
                        fl_step_f32(s, D_WEIGHTS),
                        dh,
                        dc,
                        more,
                        fl_step_f32(s, D_G),
                        fl_step_f32(s, D_OUT),
                        fl_step_f32(s, D_GATES),
                        fl_step_f32(s, D_OF_WEIGHTS),
                        n,
                        c->len - 1,
                        *c};

    for (; a.t >= 0; a.t--) {
        FL_TRY(FL_LAUNCH(grad_step, fl_row_blocks(n), FL_THREADS, 0, q, a));
        if (a.t > 0)
            FL_TRY(fl_recurrent_run(d, q, s, a.ds + a.t * GATES * c->units,
                                    fl_step_f32(s, D_W), nullptr, more));
    }
    return FLEET_OK;
}

extern const fl_device_kernel fl_cuda_lstm[];
const fl_device_kernel fl_cuda_lstm[] = {
    FL_KERNEL_WITH("lstm", sizeof(fl_recurrent_gemm), forward_prepare,
                   fl_recurrent_finish, forward),
    FL_KERNEL_WITH("lstm.grad", sizeof(fl_recurrent_gemm), grad_prepare,
                   fl_recurrent_finish, grad),
    FL_KERNEL_END,
};
