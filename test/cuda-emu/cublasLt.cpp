/* cublasLt.cpp - see cublasLt.h. */
#include "cublasLt.h"

#include <algorithm>
#include <new>
#include <vector>

#include "runtime/simd/half_float.h"
#include "control.h"
#include "inside.h"

struct fl_emu_lt {
    int nothing;
};
struct fl_emu_lt_desc {
    cublasComputeType_t compute;
    int ta, tb, epilogue;
    void *bias; /* of D's type */
};
struct fl_emu_lt_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
    int32_t batch;
    int64_t offset; /* from one matrix of a batch to the next */
};
/* Without a word about them matrices are taken to be aligned to 256 bytes. */
struct fl_emu_lt_preference {
    std::size_t workspace;
    uint32_t align[4]; /* of A, B, C, D */
    uint32_t schemes;  /* how parts of a sum may be added up */
};

static bool relu_keeps_nan, relu_by_algorithm, one_order;
static unsigned refused;

void fl_emu_set_relu_keeps_nan(bool keeps)
{
    relu_keeps_nan = keeps;
}

void fl_emu_set_one_order(bool one)
{
    one_order = one;
}

void fl_emu_set_relu_by_algorithm(bool by)
{
    relu_by_algorithm = by;
}

void fl_emu_refuse_products(unsigned which)
{
    refused = which;
}

/* --- descriptions --------------------------------------------------------- */

template <class T> static cublasStatus_t make(T **p, const T &value)
{
    *p = new (std::nothrow) T(value);
    return *p ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

template <class T> static cublasStatus_t drop(T *p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    if (refused & FL_EMU_NO_HANDLE)
        return CUBLAS_STATUS_ALLOC_FAILED;
    cublasStatus_t status = make(h, fl_emu_lt());
    fl_emu_keep(*h);
    return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    fl_emu_wait_for_device("cublasLtDestroy");
    fl_emu_forget(h);
    return drop(h);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return make(d, fl_emu_lt_desc{compute, CUBLAS_OP_N, CUBLAS_OP_N,
                                  CUBLASLT_EPILOGUE_DEFAULT, nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return drop(d);
}

template <class T>
static cublasStatus_t put(T *to, const void *value, std::size_t bytes)
{
    if (bytes != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
    const void *value, std::size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return put(&d->ta, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return put(&d->tb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return put(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return put(&d->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    return make(l,
                fl_emu_lt_layout{type, (int64_t)rows, (int64_t)cols, ld, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr,
    const void *value, std::size_t bytes)
{
    if (attr == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return put(&l->batch, value, bytes);
    return put(&l->offset, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return drop(l);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    return make(p, fl_emu_lt_preference{0,
                                        {256, 256, 256, 256},
                                        CUBLASLT_REDUCTION_SCHEME_MASK});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return drop(p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr,
    const void *value, std::size_t bytes)
{
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return put(&p->workspace, value, bytes);
    if (attr == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return put(&p->schemes, value, bytes);
    return put(&p->align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
               value, bytes);
}

/* --- the product ---------------------------------------------------------- */

/* One that is read, or one that is written: the gradient. */
static bool has_bias(const fl_emu_lt_desc *d)
{
    return d->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

static bool has_bias_gradient(const fl_emu_lt_desc *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

/* Do the matrices fit, as the real library would demand? */
static bool fits(const fl_emu_lt_desc *d, const fl_emu_lt_layout *a,
                 const fl_emu_lt_layout *b, const fl_emu_lt_layout *out)
{
    int64_t m = d->ta ? a->cols : a->rows, ka = d->ta ? a->rows : a->cols;
    int64_t n = d->tb ? b->rows : b->cols, kb = d->tb ? b->cols : b->rows;

    return a->batch == b->batch && a->batch == out->batch && m == out->rows &&
           n == out->cols && ka == kb && a->type == b->type &&
           (out->type == a->type || out->type == CUDA_R_32F) &&
           (d->compute == CUBLAS_COMPUTE_32F || a->type == CUDA_R_32F) &&
           !(has_bias(d) && out->batch > 1);
}

/* What an algorithm is for; it is kept in the numbers of one. */
enum {
    ALIGN_A,
    ALIGN_B,
    ALIGN_C,
    ALIGN_D,
    ALIGN_BIAS,
    NUMBER,
    EPILOGUE,
    ROUNDS /* parts of a sum to the type of the result, where that is allowed */
};
enum { N_ALGORITHM = 3 };

/* The first is the largest and the fastest, as it were; the last needs no
 * workspace. */
static const std::size_t workspace_of[N_ALGORITHM] = {3 << 19, 256, 0};

static unsigned long long divides(unsigned long long x)
{
    return x ? x & (~x + 1) : 256;
}

static unsigned long long least(unsigned long long a, unsigned long long b)
{
    return a < b ? a : b;
}

static unsigned long long size_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* Of addresses and of columns; all but the last algorithm make use of it. */
static unsigned long long align_of(uint32_t said, const fl_emu_lt_layout *l,
                                   int number)
{
    unsigned long long size = size_of(l->type);

    return number == N_ALGORITHM - 1
               ? size
               : least(said, divides((unsigned long long)l->ld * size));
}

static cublasLtMatmulHeuristicResult_t guess_of(int number,
                                                const fl_emu_lt_desc *d,
                                                const fl_emu_lt_layout *a,
                                                const fl_emu_lt_layout *b,
                                                const fl_emu_lt_layout *out,
                                                const fl_emu_lt_preference *p)
{
    cublasLtMatmulHeuristicResult_t r = cublasLtMatmulHeuristicResult_t();
    unsigned long long *of = r.algo.data;

    r.workspaceSize = workspace_of[number];
    of[ALIGN_A] = align_of(p->align[0], a, number);
    of[ALIGN_B] = align_of(p->align[1], b, number);
    of[ALIGN_C] = align_of(p->align[2], out, number);
    of[ALIGN_D] = align_of(p->align[3], out, number);
    of[ALIGN_BIAS] = divides(reinterpret_cast<uintptr_t>(d->bias));
    of[NUMBER] = (unsigned long long)number;
    of[EPILOGUE] = (unsigned long long)d->epilogue;
    of[ROUNDS] = p->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return r;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int wanted,
    cublasLtMatmulHeuristicResult_t *result, int *found)
{
    *found = 0;
    if (wanted < 1 || !fits(d, a, b, out) || refused & FL_EMU_NO_PRODUCT ||
        (refused & FL_EMU_NO_EPILOGUE && has_bias(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < N_ALGORITHM && *found < wanted; i++)
        if (workspace_of[i] <= p->workspace)
            result[(*found)++] = guess_of(i, d, a, b, out, p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    *result = cublasLtMatmulHeuristicResult_t();
    if (!fits(d, a, b, out) || (int)algo->data[EPILOGUE] != d->epilogue)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (refused & FL_EMU_NO_FIRST && algo->data[NUMBER] == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = workspace_of[algo->data[NUMBER]];
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_aligned(const void *p, unsigned long long align)
{
    return reinterpret_cast<uintptr_t>(p) % align == 0;
}

static float load(const void *x, cudaDataType_t type, int64_t i)
{
    switch (type) {
    case CUDA_R_16BF:
        return fl_from_bf16(static_cast<const uint16_t *>(x)[i]);
    case CUDA_R_16F:
        return fl_from_f16(static_cast<const uint16_t *>(x)[i]);
    default:
        return static_cast<const float *>(x)[i];
    }
}

static void store(void *x, cudaDataType_t type, int64_t i, float value)
{
    switch (type) {
    case CUDA_R_16BF:
        static_cast<uint16_t *>(x)[i] = fl_to_bf16(value);
        break;
    case CUDA_R_16F:
        static_cast<uint16_t *>(x)[i] = fl_to_f16(value);
        break;
    default:
        static_cast<float *>(x)[i] = value;
    }
}

static float element(const void *x, const fl_emu_lt_layout *l, int t,
                     int64_t row, int64_t col)
{
    return load(x, l->type, t ? row * l->ld + col : col * l->ld + row);
}

static float relu(float x, bool keeps_nan)
{
    return x > 0 || (keeps_nan && x != x) ? x : 0.0f;
}

/* What becomes of the sum at (row, col). */
static float finish(const fl_emu_lt_desc *d, cudaDataType_t type, float x,
                    int64_t row, bool keeps_nan)
{
    if (!has_bias(d) || has_bias_gradient(d))
        return x;

    x += load(d->bias, type, row);
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS ? x : relu(x, keeps_nan);
}

/* The matrix, column by column. */
static std::vector<float> as_floats(const void *x, const fl_emu_lt_layout *l,
                                    int t, int64_t rows, int64_t cols)
{
    std::vector<float> all;

    all.reserve(static_cast<std::size_t>(rows * cols));
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            all.push_back(element(x, l, t, i, j));
    return all;
}

static void add_times(float *sum, const float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i] * factor;
}

/* The sums of A's rows over k, of every eighth column each, then of these. */
static void sum_rows(const fl_emu_lt_desc *d, const float *a, int64_t m,
                     int64_t k, bool backwards, cudaDataType_t type)
{
    enum { PARTS = 8 };

    for (int64_t i = 0; i < m; i++) {
        float part[PARTS] = {0}, sum = 0;

        for (int64_t l = 0; l < k; l++)
            part[l % PARTS] += a[(backwards ? k - 1 - l : l) * m + i];
        for (float one : part)
            sum += one;
        store(d->bias, type, i, sum);
    }
}

static float rounded(cudaDataType_t type, float x)
{
    return type == CUDA_R_16BF  ? fl_from_bf16(fl_to_bf16(x))
           : type == CUDA_R_16F ? fl_from_f16(fl_to_f16(x))
                                : x;
}

/* Kernels for operands of which 16 bytes are loaded at once have another order
 * of sums than the others. */
static bool is_backwards(const cublasLtMatmulAlgo_t *algo)
{
    return !one_order && (algo->data[ALIGN_A] < 16 || algo->data[ALIGN_B] < 16);
}

static void multiply(const fl_emu_lt_desc *d, const cublasLtMatmulAlgo_t *algo,
                     const void *x, const fl_emu_lt_layout *la, const void *y,
                     const fl_emu_lt_layout *lb, void *z,
                     const fl_emu_lt_layout *lout, bool adds, bool keeps_nan)
{
    const bool backwards = is_backwards(algo), rounds = algo->data[ROUNDS] != 0;
    int64_t k = d->ta ? la->rows : la->cols, m = lout->rows;
    const std::vector<float> a = as_floats(x, la, d->ta, m, k);
    std::vector<float> sum(static_cast<std::size_t>(m));

    if (has_bias_gradient(d))
        sum_rows(d, a.data(), m, k, backwards, lout->type);
    for (int64_t j = 0; j < lout->cols; j++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t i = 0; i < k; i++) {
            int64_t l = backwards ? k - 1 - i : i;

            add_times(sum.data(), a.data() + l * m, element(y, lb, d->tb, l, j),
                      m);
            if (rounds && i == k / 2)
                for (float &s : sum)
                    s = rounded(lout->type, s);
        }
        for (int64_t i = 0; i < m; i++) {
            int64_t at = j * lout->ld + i;
            float own = sum[static_cast<std::size_t>(i)];

            if (adds) /* to what is there */
                own += load(z, lout->type, at);
            store(z, lout->type, at, finish(d, lout->type, own, i, keeps_nan));
        }
    }
}

/* Where matrix i of a batch lies. */
template <class T>
static T *of_batch(T *x, const fl_emu_lt_layout &l, int64_t i)
{
    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(x) +
                                 (uintptr_t)(i * l.offset) *
                                     (uintptr_t)size_of(l.type));
}

/* Is all as the algorithm was made for? */
static bool may_run(const fl_emu_lt_desc *d, const cublasLtMatmulAlgo_t *algo,
                    const void *const *of)
{
    const unsigned long long *is = algo->data;

    for (int i = ALIGN_A; i <= ALIGN_D; i++)
        if (!is_aligned(of[i], is[i]))
            return false;
    return (int)is[EPILOGUE] == d->epilogue &&
           (!has_bias(d) || (d->bias && is_aligned(d->bias, is[ALIGN_BIAS])));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                              const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t, void *out,
                              cublasLtMatrixLayout_t lout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              std::size_t workspace_bytes, cudaStream_t stream)
{
    const void *const of[] = {a, b, c, out};
    unsigned long long number = algo->data[NUMBER];
    bool keeps = relu_keeps_nan || (relu_by_algorithm && number > 0);
    float old = *static_cast<const float *>(beta);

    if (!fits(d, la, lb, lout) || *static_cast<const float *>(alpha) != 1.0f ||
        (old != 0.0f && (old != 1.0f || c != out)) ||
        workspace_bytes < workspace_of[number] ||
        !fl_emu_has(workspace, workspace_of[number]) || !may_run(d, algo, of))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (refused & FL_EMU_NO_RUN)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fl_emu_queue(stream, [=, desc = *d, a_is = *la, b_is = *lb, out_is = *lout,
                          how = *algo] {
        for (int64_t i = 0; i < out_is.batch; i++)
            multiply(&desc, &how, of_batch(a, a_is, i), &a_is,
                     of_batch(b, b_is, i), &b_is, of_batch(out, out_is, i),
                     &out_is, old != 0.0f, keeps);
    });
    return CUBLAS_STATUS_SUCCESS;
}
