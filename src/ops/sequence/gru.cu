/* gru.cu - the CUDA half of gru.c: for each step a product of all samples'
 * states, then a thread for each unit. */
#include "ops/sequence/gru.h"

#include "ops/sequence/recurrent_cuda.h"

/* --- gru: out, gates <- x, W, b, updates ---------------------------------- */

enum { F_OUT, F_GATES, F_X, F_W, F_B, F_WEIGHTS };

static fleet_status forward_prepare(fl_device *d, fl_queue *q,
                                    fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    fl_gemm_spec spec = {};

    spec.m = fl_step_rows(s, F_OUT);
    spec.n = 3 * c->units;
    spec.k = c->units;
    spec.lda = c->len * c->units;
    spec.ldb = spec.ldc = 3 * c->units;
    spec.epilogue = FL_GEMM_BIAS;
    s->scratch_size = (size_t)(spec.m * spec.n) * sizeof(float);
    return d->methods->gemm_create(d, q, &spec, &fl_recurrent_gemm_of(s)->gemm);
}

struct forward_args {
    float *out, *gates;
    const float *x, *s, *b, *weights;
    int64_t n, t;
    fl_recurrent c;
};

/* At the first step the state's part is b. */
__global__ static void forward_step(forward_args f)
{
    FL_EACH(i, f.n * f.c.units)
    {
        int64_t row = i / f.c.units, j = i % f.c.units, u = f.c.units;
        int64_t at = row * f.c.len + f.t;
        const float *x = f.x + at * 3 * u + j;
        const float *s = f.t > 0 ? f.s + row * 3 * u + j : f.b + j;
        float *gates = f.gates + at * 4 * u + j;
        float *out = f.out + at * u + j;
        float before = f.t > 0 ? out[-u] : 0.0f;
        fl_gru_gates g;

        g.r = fl_recurrent_sigmoid(x[0] + s[0]);
        g.z = fl_recurrent_sigmoid(x[u] + s[u]);
        g.state = s[2 * u];
        g.n = tanhf(x[2 * u] + g.r * g.state);
        gates[0] = g.r;
        gates[u] = g.z;
        gates[2 * u] = g.n;
        gates[3 * u] = g.state;
        *out = before + fl_gru_taken(&g, f.weights ? f.weights[at] : 1.0f) *
                            (g.n - before);
    }
}

static fleet_status forward(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    float *product = static_cast<float *>(s->scratch);
    forward_args f = {fl_step_f32(s, F_OUT),
                      fl_step_f32(s, F_GATES),
                      fl_step_f32(s, F_X),
                      product,
                      fl_step_f32(s, F_B),
                      fl_step_f32(s, F_WEIGHTS),
                      fl_step_rows(s, F_OUT),
                      0,
                      *c};

    for (; f.t < c->len; f.t++) {
        if (f.t > 0)
            FL_TRY(fl_recurrent_run(d, q, s, f.out + (f.t - 1) * c->units,
                                    fl_step_f32(s, F_W), f.b, product));
        FL_TRY(FL_LAUNCH_EACH(forward_step, f.n * c->units, q, f));
    }
    return FLEET_OK;
}

/* --- gru.grad: dx, dh, last, d updates <- g, out, gates, W, updates ------- */

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

/* The scratch: gradients of the state, and the product that is added. */
static fleet_status grad_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    fl_gemm_spec spec = {};

    spec.m = fl_step_rows(s, D_G);
    spec.n = c->units;
    spec.k = 3 * c->units;
    spec.tb = true;
    spec.lda = c->len * 3 * c->units;
    spec.ldb = 3 * c->units;
    spec.ldc = c->units;
    s->scratch_size = (size_t)(2 * spec.m * spec.n) * sizeof(float);
    return d->methods->gemm_create(d, q, &spec, &fl_recurrent_gemm_of(s)->gemm);
}

struct grad_args {
    float *dx, *ds, *last, *da, *dh;
    const float *more, *g, *out, *gates, *weights;
    int64_t n, t;
    fl_recurrent c;
};

/* A warp has a row, so that the sum over units has one order. */
__global__ static void grad_step(grad_args a)
{
    FL_EACH_ROW(row, a.n)
    {
        int64_t u = a.c.units, at = row * a.c.len + a.t;
        float weight = a.weights ? a.weights[at] : 1.0f, sum = 0.0f;
        bool is_end = a.t == a.c.len - 1;

        for (int64_t j = threadIdx.x % FL_WARP; j < u; j += FL_WARP) {
            const float *gates = a.gates + at * 4 * u + j;
            fl_gru_gates g = {gates[0], gates[u], gates[2 * u], gates[3 * u]};
            float before = a.t > 0 ? a.out[(at - 1) * u + j] : 0.0f;
            float dh = is_end ? 0.0f : a.dh[row * u + j] + a.more[row * u + j];
            fl_gru_slopes d =
                fl_gru_gradient(&g, before, weight, a.g[at * u + j] + dh);
            float *dx = a.dx + at * 3 * u + j, *ds = a.ds + at * 3 * u + j;

            a.last[at * u + j] = before;
            dx[0] = ds[0] = d.xr;
            dx[u] = ds[u] = d.xz;
            dx[2 * u] = d.xn;
            ds[2 * u] = d.state;
            a.dh[row * u + j] = d.before;
            sum += d.weight;
        }
        sum = fl_warp_sum(sum);
        if (a.da && threadIdx.x % FL_WARP == 0)
            a.da[at] = sum;
    }
}

static fleet_status grad(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_recurrent *c = fl_recurrent_of(s);
    int64_t n = fl_step_rows(s, D_G);
    float *dh = static_cast<float *>(s->scratch), *more = dh + n * c->units;
    grad_args a = {fl_step_f32(s, D_X),
                   fl_step_f32(s, D_STATE),
                   fl_step_f32(s, D_LAST),
                   fl_step_f32(s, D_WEIGHTS),
                   dh,
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
            FL_TRY(fl_recurrent_run(d, q, s, a.ds + a.t * 3 * c->units,
                                    fl_step_f32(s, D_W), nullptr, more));
    }
    return FLEET_OK;
}

extern const fl_device_kernel fl_cuda_gru[];
const fl_device_kernel fl_cuda_gru[] = {
    FL_KERNEL_WITH("gru", sizeof(fl_recurrent_gemm), forward_prepare,
                   fl_recurrent_finish, forward),
    FL_KERNEL_WITH("gru.grad", sizeof(fl_recurrent_gemm), grad_prepare,
                   fl_recurrent_finish, grad),
    FL_KERNEL_END,
};
