/* fc.cu - the CUDA half of fc_kernels.c: products by cuBLASLt with the bias,
 * the relu and the bias's gradient fused into them.
 *
 * A relu that is fused may make 0 of NaN; where it does (fl_cuda_try_relus) it
 * is a kernel of its own. Other activations are always that.
 *
 * Of half operands sums are of float, and so is all that is not a product. A
 * bias has to be of the product's type: it is cast for each.
 *
 * Besides the steps that a layer has on CPUs there is a step that a pass for
 * devices can make of them:
 *
 *   fc.dw.db    dW, db <- x, g
 */
#include <fleet/nn.h>

#include "ops/fc_kernels.h"
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

/* Of operands of the types of `in` and `out`. All are aligned to the largest
 * power of two, up to 256, that divides their addresses. */
static fleet_status make(fl_device *d, fl_device_step *s, fl_gemm_spec spec,
                         int in, int out)
{
    uintptr_t all = 256;

    for (int i = 0; i < s->n_arg; i++)
        all |= reinterpret_cast<uintptr_t>(s->arg[i].data);
    spec.align = (uint32_t)(all & (~all + 1));
    spec.in = s->arg[in].dtype;
    spec.out = s->arg[out].dtype;
    return d->methods->gemm_create(d, &spec, &gemm_of(s)->gemm);
}

static fleet_status multiply(fl_device *d, fl_queue *q, const fl_device_step *s,
                             const fl_gemm_data &data)
{
    return d->methods->gemm_run(d, q, gemm_of(s)->gemm, &data);
}

/* --- fc.mask: g <- out ---------------------------------------------------- */

static fleet_status mask(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return fl_cuda_activation_mask(q, s, 0, 1, &config_of(s)->activation);
}

/* --- fc.forward: out <- x, W, b ------------------------------------------- */

enum { F_OUT, F_X, F_W, F_B };

/* What the product does by itself. */
static bool fuses(const fl_device *d, const fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);

    return c->activation.kind == FLEET_LINEAR ||
           (c->activation.kind == FLEET_RELU && c->bias &&
            fl_cuda_of(d)
                ->keeps_nan.of[s->arg[F_X].dtype][s->arg[F_OUT].dtype]);
}

static fleet_status forward_prepare(fl_device *d, fl_queue *, fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    fl_epilogue e = !c->bias ? FL_GEMM_PLAIN
                    : fuses(d, s) && c->activation.kind == FLEET_RELU
                        ? FL_GEMM_BIAS_RELU
                        : FL_GEMM_BIAS;

    if (c->bias && fl_step_is_half(s, F_OUT))
        s->scratch_size = (size_t)c->n * sizeof(uint16_t);
    return make(d, s,
                {fl_step_rows(s, F_X), c->n, c->k, false, false, s->arg[F_X].ld,
                 s->arg[F_W].ld, s->arg[F_OUT].ld, e, 0, 0, FLEET_FLOAT32,
                 FLEET_FLOAT32, 0},
                F_X, F_OUT);
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
    FL_TRY(multiply(d, q, s,
                    {s->arg[F_X].data, s->arg[F_W].data, s->arg[F_OUT].data,
                     bias, nullptr}));
    return fuses(d, s)
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

static fleet_status dx_prepare(fl_device *d, fl_queue *, fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);

    return make(d, s,
                {fl_step_rows(s, X_G), c->k, c->n, false, !c->packed,
                 s->arg[X_G].ld, s->arg[X_W].ld, s->arg[X_DX].ld, FL_GEMM_PLAIN,
                 0, 0, FLEET_FLOAT32, FLEET_FLOAT32, 0},
                X_G, X_DX);
}

static fleet_status dx(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(d, q, s,
                    {s->arg[X_G].data, s->arg[X_W].data, s->arg[X_DX].data,
                     nullptr, nullptr});
}

/* --- fc.dw, fc.dw.db: dW [, db] <- x, g ----------------------------------- */

static fleet_status dw_make(fl_device *d, fl_device_step *s, int x,
                            fl_epilogue e)
{
    const fl_fc_config *c = config_of(s);

    return make(d, s,
                {c->k, c->n, fl_step_rows(s, x), true, false, s->arg[x].ld,
                 s->arg[x + 1].ld, s->arg[0].ld, e, 0, 0, FLEET_FLOAT32,
                 FLEET_FLOAT32, 0},
                x, 0);
}

static fleet_status dw_prepare(fl_device *d, fl_queue *, fl_device_step *s)
{
    return dw_make(d, s, 1, FL_GEMM_PLAIN);
}

static fleet_status dw_db_prepare(fl_device *d, fl_queue *, fl_device_step *s)
{
    return dw_make(d, s, 2, FL_GEMM_BGRAD);
}

static fleet_status dw(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(
        d, q, s,
        {s->arg[1].data, s->arg[2].data, s->arg[0].data, nullptr, nullptr});
}

static fleet_status dw_db(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(d, q, s,
                    {s->arg[2].data, s->arg[3].data, s->arg[0].data,
                     s->arg[1].data, nullptr});
}

/* --- fc.db: db <- g; a block has TILE columns ----------------------------- */

template <class T>
__global__ static void sum_columns(float *db, const T *g, int64_t rows,
                                   int64_t cols, int64_t ld)
{
    __shared__ float part[TILE_ROWS][TILE];
    int64_t col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;

    for (int64_t r = threadIdx.y; r < rows && col < cols; r += TILE_ROWS)
        sum += fl_load(g[r * ld + col]);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols)
        return;
    for (int i = 1; i < TILE_ROWS; i++)
        sum += part[i][threadIdx.x];
    db[col] = sum;
}

static fleet_status db(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = config_of(s)->n;

    return fl_by_type(s, 1, [=](auto x) {
        using T = decltype(x);
        return FL_LAUNCH(sum_columns<T>, (unsigned)((n + TILE - 1) / TILE),
                         dim3(TILE, TILE_ROWS), 0, q, fl_step_f32(s, 0),
                         fl_step_ptr<T>(s, 1), fl_step_rows(s, 1), n,
                         s->arg[1].ld);
    });
}

#define PRODUCT_OF(dtype, name, prepare, run)                                  \
    FL_KERNEL_OF_WITH(dtype, name, sizeof(gemm_of_step), prepare, finish, run)
#define PRODUCT(name, prepare, run)                                            \
    PRODUCT_OF(FLEET_FLOAT32, name, prepare, run)

/* What pass amp may make half. */
#define HALF(dtype)                                                            \
    PRODUCT_OF(dtype, "fc.forward", forward_prepare, forward),                 \
        FL_KERNEL_OF(dtype, "fc.mask", mask),                                  \
        PRODUCT_OF(dtype, "fc.dx", dx_prepare, dx),                            \
        PRODUCT_OF(dtype, "fc.dw", dw_prepare, dw),                            \
        FL_KERNEL_OF(dtype, "fc.db", db)

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
    PRODUCT("fc.dw.db", dw_db_prepare, dw_db),
    FL_KERNEL("fc.db", db),
    HALF(FLEET_BFLOAT16),
    HALF(FLEET_FLOAT16),
    FL_KERNEL_END,
};
