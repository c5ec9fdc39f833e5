/* gemm_kernels.cu - see gemm_kernels.h. A block has a tile of the product; a
 * thread has TILE / TILE_ROWS of its elements. */
#include "runtime/device/cuda/gemm_kernels.h"

#include "runtime/device/cuda/half_float_cuda.h"
#include "runtime/device/cuda/warp_rows.h"

enum { TILE = 32, TILE_ROWS = 8, EACH = TILE / TILE_ROWS };

/* What f gives for zeros of both types. */
template <class F> static fleet_status by_types(const fl_gemm_spec *s, F f)
{
    return fl_by_dtype(s->in, [=](auto in) {
        return fl_by_dtype(s->out, [=](auto out) { return f(in, out); });
    });
}

/* --- the product ---------------------------------------------------------- */

template <class I, class O> struct product {
    const I *a, *b;
    O *c;
    const O *bias; /* NULL: none */
    fl_gemm_spec s;
};

/* After the sum: a relu leaves NaN. */
template <class O>
__device__ static float finish_sum(float x, const O *bias, int64_t col,
                                   bool relu)
{
    if (bias)
        x += fl_load(bias[col]);
    return relu && !(x > 0 || x != x) ? 0.0f : x;
}

/* Elements of a and b of one step along k; 0 outside. */
template <class I, class O>
__device__ static void load_tiles(const product<I, O> &p, const I *a,
                                  const I *b, int64_t row, int64_t col,
                                  int64_t k, float (*of_a)[TILE + 1],
                                  float (*of_b)[TILE + 1])
{
    const fl_gemm_spec &s = p.s;
    int64_t x = threadIdx.x;

    for (int y = (int)threadIdx.y; y < TILE; y += TILE_ROWS) {
        int64_t ar = row + (s.ta ? x : y), ak = k + (s.ta ? y : x);
        int64_t bc = col + (s.tb ? y : x), bk = k + (s.tb ? x : y);
        float va = 0, vb = 0;

        if (ar < s.m && ak < s.k)
            va = fl_load(a[s.ta ? ak * s.lda + ar : ar * s.lda + ak]);
        if (bc < s.n && bk < s.k)
            vb = fl_load(b[s.tb ? bc * s.ldb + bk : bk * s.ldb + bc]);
        of_a[s.ta ? x : y][s.ta ? y : x] = va;
        of_b[s.tb ? x : y][s.tb ? y : x] = vb;
    }
}

/* The tile at (row, col) of one matrix of the batch. */
template <class I, class O>
__device__ static void multiply_tile(const product<I, O> &p, const I *a,
                                     const I *b, O *c, int64_t row, int64_t col)
{
    __shared__ float of_a[TILE][TILE + 1], of_b[TILE][TILE + 1];
    const fl_gemm_spec &s = p.s;
    float sum[EACH] = {};

    for (int64_t k = 0; k < s.k; k += TILE) {
        int64_t left = s.k - k < TILE ? s.k - k : (int64_t)TILE;

        load_tiles(p, a, b, row, col, k, of_a, of_b);
        __syncthreads();
        for (int l = 0; l < left; l++)
            for (int i = 0; i < EACH; i++)
                sum[i] += of_a[(int)threadIdx.y + i * TILE_ROWS][l] *
                          of_b[l][threadIdx.x];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++) {
        int64_t r = row + threadIdx.y + i * TILE_ROWS, at = col + threadIdx.x;

        if (r < s.m && at < s.n)
            fl_store(&c[r * s.ldc + at],
                     finish_sum(sum[i], p.bias, at,
                                s.epilogue == FL_GEMM_BIAS_RELU));
    }
}

template <class I, class O>
__global__ static void multiply_tiles(product<I, O> p)
{
    const fl_gemm_spec &s = p.s;
    int64_t size_a = (s.ta ? s.k : s.m) * s.lda;
    int64_t size_b = (s.tb ? s.n : s.k) * s.ldb;

    for (int64_t i = blockIdx.z; i == 0 || i < s.batch; i += gridDim.z)
        for (int64_t col = (int64_t)blockIdx.y * TILE; col < s.n;
             col += (int64_t)gridDim.y * TILE)
            multiply_tile(p, p.a + i * size_a, p.b + i * size_b,
                          p.c + i * s.m * s.ldc, (int64_t)blockIdx.x * TILE,
                          col);
}

static unsigned tiles_of(int64_t n, int64_t most)
{
    int64_t tiles = (n + TILE - 1) / TILE;

    return (unsigned)(tiles < most ? tiles : most);
}

static bool has_bias(const fl_gemm_spec *s)
{
    return s->epilogue == FL_GEMM_BIAS || s->epilogue == FL_GEMM_BIAS_RELU;
}

fleet_status fl_cuda_multiply(fl_queue *q, const fl_gemm_spec *s,
                              const fl_gemm_data *data)
{
    enum { MOST = 32768 };
    int64_t times = s->batch < 1 ? 1 : s->batch;
    dim3 grid(tiles_of(s->m, INT32_MAX), tiles_of(s->n, MOST),
              times < MOST ? (unsigned)times : (unsigned)MOST);

    return by_types(s, [=](auto in, auto out) {
        using I = decltype(in);
        using O = decltype(out);
        auto *kernel = multiply_tiles<I, O>;
        product<I, O> p = {
            static_cast<const I *>(data->a), static_cast<const I *>(data->b),
            static_cast<O *>(data->c),
            has_bias(s) ? static_cast<const O *>(data->bias) : nullptr, *s};

        return FL_LAUNCH(kernel, grid, dim3(TILE, TILE_ROWS), 0, q, p);
    });
}

/* --- what a plain product lacks ------------------------------------------- */

template <class O>
__global__ static void fill_with_bias(O *c, const O *bias, int64_t m, int64_t n,
                                      int64_t ld)
{
    FL_EACH(i, m * n)
    {
        int64_t row = fl_quotient(i, n), col = i - row * n;

        c[row * ld + col] = bias[col];
    }
}

fleet_status fl_cuda_fill_with_bias(fl_queue *q, const fl_gemm_spec *s,
                                    const fl_gemm_data *data)
{
    return fl_by_dtype(s->out, [=](auto out) {
        using O = decltype(out);

        return FL_LAUNCH_EACH(
            fill_with_bias<O>, s->m * s->n, q, static_cast<O *>(data->c),
            static_cast<const O *>(data->bias), s->m, s->n, s->ldc);
    });
}

template <class O>
__global__ static void relu(O *c, int64_t m, int64_t n, int64_t ld)
{
    FL_EACH(i, m * n)
    {
        int64_t row = fl_quotient(i, n);
        O *at = c + row * ld + i - row * n;

        fl_store(at, finish_sum<O>(fl_load(*at), nullptr, 0, true));
    }
}

enum { AT_ONCE = 4 };

__global__ static void relu_packs(float *c, int64_t m, int64_t packs,
                                  int64_t ld)
{
    FL_EACH(i, m * packs)
    {
        int64_t row = fl_quotient(i, packs);
        fl_pack<AT_ONCE> *at = reinterpret_cast<fl_pack<AT_ONCE> *>(
            c + row * ld + (i - row * packs) * AT_ONCE);
        fl_pack<AT_ONCE> x = *at;

        for (int k = 0; k < AT_ONCE; k++)
            x.x[k] = finish_sum<float>(x.x[k], nullptr, 0, true);
        *at = x;
    }
}

fleet_status fl_cuda_relu(fl_queue *q, const fl_gemm_spec *s, void *c)
{
    if (s->out == FLEET_FLOAT32 && s->n % AT_ONCE == 0 &&
        fl_fits_pack<AT_ONCE>(c, s->ldc))
        return FL_LAUNCH_EACH(relu_packs, s->m * (s->n / AT_ONCE), q,
                              static_cast<float *>(c), s->m, s->n / AT_ONCE,
                              s->ldc);
    return fl_by_dtype(s->out, [=](auto out) {
        using O = decltype(out);

        return FL_LAUNCH_EACH(relu<O>, s->m * s->n, q, static_cast<O *>(c),
                              s->m, s->n, s->ldc);
    });
}

template <class O>
__global__ static void find_hidden(const O *c, int64_t m, int64_t n, int64_t ld,
                                   int *hidden)
{
    FL_EACH(i, m * n)
    {
        int64_t row = fl_quotient(i, n);
        float x = fl_load(c[row * ld + i - row * n]);

        if (x == x)
            atomicExch(hidden, 1);
    }
}

fleet_status fl_cuda_find_hidden_nan(fl_queue *q, const fl_gemm_spec *s,
                                     const void *c, int *hidden)
{
    return fl_by_dtype(s->out, [=](auto out) {
        using O = decltype(out);

        return FL_LAUNCH_EACH(find_hidden<O>, s->m * s->n, q,
                              static_cast<const O *>(c), s->m, s->n, s->ldc,
                              hidden);
    });
}
