/* fc.cu - the CUDA half of fc_kernels.c: products with the bias and the relu in
 * them. Other activations are kernels of their own.
 *
 * Of half operands sums are of float, and so is all that is not a product. A
 * bias has to be of the product's type: it is cast for each.
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
                             int c, int a, int b, const void *bias)
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

/* --- fc.dw: dW <- x, g ---------------------------------------------------- */

enum { W_DW, W_X, W_G };

static fleet_status dw_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_fc_config *c = config_of(s);
    fl_gemm_spec spec = spec_of(s, W_DW, W_X, W_G);

    spec.m = c->k;
    spec.n = c->n;
    spec.k = fl_step_rows(s, W_X);
    spec.ta = true;
    return make(d, q, s, spec);
}

static fleet_status dw(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return multiply(d, q, s, W_DW, W_X, W_G, nullptr);
}

/* --- fc.db: db <- g ------------------------------------------------------- */

/* A block has TILE columns of up to BLOCK_ROWS rows; blocks of the same columns
 * each leave their sums, and the last of them to come adds these up, in the
 * order of the rows. */
enum { BLOCK_ROWS = 64, MOST_PARTS = 64 };

static int64_t rows_of_part(int64_t rows)
{
    int64_t n = (rows + MOST_PARTS - 1) / MOST_PARTS;

    return n > BLOCK_ROWS ? n : (int64_t)BLOCK_ROWS;
}

static unsigned parts_of(int64_t rows)
{
    int64_t each = rows_of_part(rows);

    return (unsigned)((rows + each - 1) / each);
}

static unsigned tiles_of(int64_t cols)
{
    return (unsigned)((cols + TILE - 1) / TILE);
}

/* How many blocks of each tile have come; device memory, 0 between launches. */
struct arrivals {
    unsigned *n;
};

static arrivals *arrivals_of(const fl_device_step *s)
{
    return static_cast<arrivals *>(s->state);
}

static fleet_status db_prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    int64_t n = config_of(s)->n;
    unsigned parts = parts_of(fl_step_rows(s, 1));
    void *made;

    if (parts == 1)
        return FLEET_OK;
    s->scratch_size = (size_t)n * parts * sizeof(float);
    FL_TRY(d->methods->alloc(d, q, tiles_of(n) * sizeof(unsigned), &made));
    arrivals_of(s)->n = static_cast<unsigned *>(made);
    return d->methods->fill(d, q, made, 0, tiles_of(n) * sizeof(unsigned));
}

static void db_finish(fl_device *d, fl_device_step *s)
{
    d->methods->free(d, nullptr, arrivals_of(s)->n);
    arrivals_of(s)->n = nullptr;
}

/* The sum of rows [first, last) of x in the column of each threadIdx.x; threads
 * with threadIdx.y 0 get it. */
template <class T>
__device__ static float sum_rows(const T *x, int64_t first, int64_t last,
                                 int64_t col, int64_t cols, int64_t ld)
{
    __shared__ float part[TILE_ROWS][TILE];
    float sum = 0.0f;

    for (int64_t r = first + threadIdx.y; r < last && col < cols;
         r += TILE_ROWS)
        sum += fl_load(x[r * ld + col]);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; threadIdx.y == 0 && i < TILE_ROWS; i++)
        sum += part[i][threadIdx.x];
    __syncthreads();
    return sum;
}

/* Is it the last block of its tile? Then what all blocks left can be read. */
__device__ static bool comes_last(unsigned *arrived)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(arrived, 1u) == gridDim.y - 1;
        if (last)
            *arrived = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

template <class T>
__global__ static void sum_columns(float *db, float *left, unsigned *arrived,
                                   const T *g, int64_t rows, int64_t each,
                                   int64_t cols, int64_t ld)
{
    int64_t col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    int64_t first = (int64_t)blockIdx.y * each;
    int64_t last = first + each < rows ? first + each : rows;
    bool writes = threadIdx.y == 0 && col < cols;
    float sum = sum_rows(g, first, last, col, cols, ld);

    if (gridDim.y > 1) {
        if (writes)
            left[(int64_t)blockIdx.y * cols + col] = sum;
        if (!comes_last(&arrived[blockIdx.x]))
            return;
        sum = sum_rows(static_cast<const float *>(left), 0, gridDim.y, col,
                       cols, cols);
    }
    if (writes)
        db[col] = sum;
}

static fleet_status db(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = config_of(s)->n, rows = fl_step_rows(s, 1);
    dim3 grid(tiles_of(n), parts_of(rows));

    return fl_by_type(s, 1, [=](auto x) {
        using T = decltype(x);
        return FL_LAUNCH(sum_columns<T>, grid, dim3(TILE, TILE_ROWS), 0, q,
                         fl_step_f32(s, 0), static_cast<float *>(s->scratch),
                         arrivals_of(s)->n, fl_step_ptr<T>(s, 1), rows,
                         rows_of_part(rows), n, s->arg[1].ld);
    });
}

#define DB(dtype)                                                              \
    FL_KERNEL_OF_WITH(dtype, "fc.db", sizeof(arrivals), db_prepare, db_finish, \
                      db)
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
