/* fc.cu - the CUDA half of fc_kernels.c: products with the bias and the relu in
 * them. Other activations are kernels of their own.
 *
 * Of half operands sums are of float, and so is all that is not a product. A
 * bias has to be of the product's type: it is cast for each.
 */
#include <fleet/nn.h>

#include "ops/fc_kernels.h"
#include "runtime/device/cuda/column_sums.h"
#include "runtime/device/cuda/half_float_cuda.h"

static const fl_fc_config *config_of(const fl_device_step *s)
{
    return static_cast<const fl_fc_config *>(s->config);
}

struct gemm_of_step {
    fl_gemm *gemm;
};

static gemm_of_step *gemm_of(const fl_device_step *s)
{
    return static_cast<gemm_of_step *>(s->state);
}

static void finish(fl_device *d, fl_device_step *s)
{
    d->methods->gemm_destroy(d, gemm_of(s)->gemm);
    gemm_of(s)->gemm = nullptr;
}

/* c[m, n] of the operands c, a and b. */
static fl_gemm_spec spec_of(const fl_device_step *s, int c, int a, int b)
{
    fl_gemm_spec spec = {};

    spec.lda = s->arg[a].ld;
    spec.ldb = s->arg[b].ld;
    spec.ldc = s->arg[c].ld;
    spec.align_a = fl_step_alignment(s, a);
    spec.align_b = fl_step_alignment(s, b);
    spec.align_c = fl_step_alignment(s, c);
    spec.in = s->arg[a].dtype;
    spec.out = s->arg[c].dtype;
    return spec;
}

static fleet_status make(fl_device *d, fl_queue *q, const fl_device_step *s,
                         const fl_gemm_spec &spec)
{
    return d->methods->gemm_create(d, q, &spec, &gemm_of(s)->gemm);
}

static fleet_status multiply(fl_device *d, fl_queue *q, const fl_device_step *s,
                             int c, int a, int b, void *bias)
{
    const fl_gemm_data data = {s->arg[a].data, s->arg[b].data, s->arg[c].data,
                               bias};

    return d->methods->gemm_run(d, q, gemm_of(s)->gemm, &data);
}

/* --- fc.mask: g <- out ---------------------------------------------------- */

static fleet_status mask(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return fl_cuda_activation_mask(q, s, 0, 1, &config_of(s)->activation);
}

/* --- fc.forward: out <- x, W, b ------------------------------------------- */

enum { F_OUT, F_X, F_W, F_B };

/* Is the activation a part of the product? */
static bool fuses(const fl_fc_config *c)
{
    return c->activation.kind == FLEET_LINEAR ||
           (c->activation.kind == FLEET_RELU && c->bias);
}

static fleet_status forward_prepare(fl_device *d, fl_queue *q,
                                    fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    fl_gemm_spec spec = spec_of(s, F_OUT, F_X, F_W);

    spec.m = fl_step_rows(s, F_X);
    spec.n = c->n;
    spec.k = c->k;
    if (c->bias) {
        bool is_cast = fl_step_is_half(s, F_OUT);

        spec.epilogue =
            c->activation.kind == FLEET_RELU ? FL_GEMM_BIAS_RELU : FL_GEMM_BIAS;
        spec.align_bias = is_cast ? 256 : fl_step_alignment(s, F_B);
        s->scratch_size = is_cast ? (size_t)c->n * sizeof(uint16_t) : 0;
    }
    return make(d, q, s, spec);
}

template <class T>
__global__ static void cast_bias(T *to, const float *b, int64_t n)
{
    FL_EACH(i, n)
    fl_store(&to[i], b[i]);
}

/* The bias, of out's type. */
static fleet_status bias_of(fl_queue *q, const fl_device_step *s, void **bias)
{
    int64_t n = config_of(s)->n;

    *bias = config_of(s)->bias ? s->arg[F_B].data : nullptr;
    if (!*bias || !fl_step_is_half(s, F_OUT))
        return FLEET_OK;
    *bias = s->scratch;
    return fl_by_type(s, F_OUT, [=](auto x) {
        using T = decltype(x);
        return FL_LAUNCH_EACH(cast_bias<T>, n, q, static_cast<T *>(s->scratch),
                              fl_step_f32(s, F_B), n);
    });
}

static fleet_status forward(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    void *bias;

    FL_TRY(bias_of(q, s, &bias));
    FL_TRY(multiply(d, q, s, F_OUT, F_X, F_W, bias));
    return fuses(config_of(s))
               ? FLEET_OK
               : fl_cuda_activate(q, s, F_OUT, &config_of(s)->activation);
}

/* --- fc.pack, fc.dx: wt <- W; dx <- g, W or wt ---------------------------- */

enum { TILE = 32, TILE_ROWS = 8 };

/* A tile goes through shared memory, so that both sides are read and written
 * along rows. */
__global__ static void transpose_tiles(float *out, int64_t ldo, const float *x,
                                       int64_t ldx, int64_t rows, int64_t cols)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t col = (int64_t)blockIdx.x * TILE, row = (int64_t)blockIdx.y * TILE;

    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS)
        if (row + i < rows && col + threadIdx.x < cols)
            tile[i][threadIdx.x] = x[(row + i) * ldx + col + threadIdx.x];
    __syncthreads();
    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS)
        if (col + i < cols && row + threadIdx.x < rows)
            out[(col + i) * ldo + row + threadIdx.x] = tile[threadIdx.x][i];
}

static fleet_status pack(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    dim3 grid((unsigned)((c->n + TILE - 1) / TILE),
              (unsigned)((c->k + TILE - 1) / TILE));

    return FL_LAUNCH(transpose_tiles, grid, dim3(TILE, TILE_ROWS), 0, q,
                     fl_step_f32(s, 0), s->arg[0].ld, fl_step_f32(s, 1),
                     s->arg[1].ld, c->k, c->n);
}

enum { X_DX, X_G, X_W };

static fleet_status dx_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    fl_gemm_spec spec = spec_of(s, X_DX, X_G, X_W);

    spec.m = fl_step_rows(s, X_G);
    spec.n = c->k;
    spec.k = c->n;
    spec.tb = !c->packed;
    return make(d, q, s, spec);
}

static fleet_status dx(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(d, q, s, X_DX, X_G, X_W, nullptr);
}

/* --- fc.dw: dW <- x, g [, db] --------------------------------------------- */

enum { W_DW, W_X, W_G, W_DB };

static bool has_db(const fl_device_step *s)
{
    return s->n_arg > W_DB && s->arg[W_DB].data;
}

static fleet_status dw_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    fl_gemm_spec spec = spec_of(s, W_DW, W_X, W_G);

    spec.m = c->k;
    spec.n = c->n;
    spec.k = fl_step_rows(s, W_X);
    spec.ta = true;
    if (has_db(s)) {
        spec.epilogue = FL_GEMM_BIAS_GRADIENT;
        spec.align_bias = fl_step_alignment(s, W_DB);
    }
    return make(d, q, s, spec);
}

static fleet_status dw(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(d, q, s, W_DW, W_X, W_G,
                    has_db(s) ? s->arg[W_DB].data : nullptr);
}

/* --- fc.db: db <- g ------------------------------------------------------- */

static fl_column_sums *sums_of(const fl_device_step *s)
{
    return static_cast<fl_column_sums *>(s->state);
}

static fleet_status db_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    return fl_column_sums_prepare(d, q, fl_step_rows(s, 1), config_of(s)->n,
                                  sums_of(s));
}

static void db_finish(fl_device *d, fl_device_step *s)
{
    fl_column_sums_done(d, sums_of(s));
}

static fleet_status db(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return fl_cuda_sum_columns(q, sums_of(s), s->arg[1].dtype, s->arg[1].data,
                               s->arg[1].ld, fl_step_rows(s, 1),
                               config_of(s)->n, fl_step_f32(s, 0));
}

#define DB(dtype)                                                              \
    FL_KERNEL_OF_WITH(dtype, "fc.db", sizeof(fl_column_sums), db_prepare,      \
                      db_finish, db)
#define PRODUCT_OF(dtype, name, prepare, run)                                  \
    FL_KERNEL_OF_WITH(dtype, name, sizeof(gemm_of_step), prepare, finish, run)
#define PRODUCT(name, prepare, run)                                            \
    PRODUCT_OF(FLEET_FLOAT32, name, prepare, run)

/* What pass amp may make half. */
#define HALF(dtype)                                                            \
    PRODUCT_OF(dtype, "fc.forward", forward_prepare, forward),                 \
        FL_KERNEL_OF(dtype, "fc.mask", mask),                                  \
        PRODUCT_OF(dtype, "fc.dx", dx_prepare, dx),                            \
        PRODUCT_OF(dtype, "fc.dw", dw_prepare, dw), DB(dtype)

extern const fl_device_kernel fl_cuda_fc[];
const fl_device_kernel fl_cuda_fc[] = {
    PRODUCT("fc.forward", forward_prepare, forward),
    PRODUCT("fc.small.forward", forward_prepare, forward),
    FL_KERNEL("fc.mask", mask),
    FL_KERNEL("fc.pack", pack),
    PRODUCT("fc.dx", dx_prepare, dx),
    PRODUCT("fc.small.dx", dx_prepare, dx),
    PRODUCT("fc.dw", dw_prepare, dw),
    PRODUCT("fc.small.dw", dw_prepare, dw),
    DB(FLEET_FLOAT32),
    HALF(FLEET_BFLOAT16),
    HALF(FLEET_FLOAT16),
    FL_KERNEL_END,
};
