/* cublasLt.cpp - see cublasLt.h. */
#include "cublasLt.h"

#include <algorithm>
#include <new>
#include <vector>

#include "runtime/simd/half_float.h"
#include "control.h"

struct fl_emu_lt {
    int nothing;
};
struct fl_emu_lt_desc {
    int ta, tb, epilogue;
    void *bias; /* of D's type */
    unsigned char *aux;
    int64_t ld_aux;
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
};

static bool relu_keeps_nan;

void fl_emu_set_relu_keeps_nan(bool keeps)
{
    relu_keeps_nan = keeps;
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    default:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
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
    return make(h, fl_emu_lt());
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return drop(h);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d,
                                        cublasComputeType_t, cudaDataType_t)
{
    return make(d,
                fl_emu_lt_desc{CUBLAS_OP_N, CUBLAS_OP_N,
                               CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0});
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
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return put(&d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return put(&d->ld_aux, value, bytes);
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
    return make(p, fl_emu_lt_preference{0, {256, 256, 256, 256}});
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
    return put(&p->align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
               value, bytes);
}

/* --- the product ---------------------------------------------------------- */

/* Do the matrices fit, as the real library would demand? */
static bool fits(const fl_emu_lt_desc *d, const fl_emu_lt_layout *a,
                 const fl_emu_lt_layout *b, const fl_emu_lt_layout *out)
{
    int64_t m = d->ta ? a->cols : a->rows, ka = d->ta ? a->rows : a->cols;
    int64_t n = d->tb ? b->rows : b->cols, kb = d->tb ? b->cols : b->rows;
    bool has_aux = d->epilogue >= CUBLASLT_EPILOGUE_RELU_AUX_BIAS &&
                   d->epilogue <= CUBLASLT_EPILOGUE_DRELU_BGRAD;

    return a->batch == b->batch && a->batch == out->batch && m == out->rows &&
           n == out->cols && ka == kb && a->type == b->type &&
           (out->type == a->type || out->type == CUDA_R_32F) &&
           (!has_aux || (d->ld_aux % 128 == 0 && d->ld_aux >= m));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int wanted,
    cublasLtMatmulHeuristicResult_t *result, int *found)
{
    *found = 0;
    if (wanted < 1 || !fits(d, a, b, out))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = cublasLtMatmulHeuristicResult_t();
    result->workspaceSize = 256; /* so that somebody has to provide it */
    for (int i = 0; i < 4; i++)
        result->algo.data[i] = p->align[i];

    *found = 1;
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

static float relu(float x)
{
    return x > 0 || (relu_keeps_nan && x != x) ? x : 0.0f;
}

/* What becomes of the sum at (row, col). */
static float finish(const fl_emu_lt_desc *d, cudaDataType_t type, float x,
                    int64_t row, int64_t col)
{
    int64_t bit = col * d->ld_aux + row;
    unsigned char mask = (unsigned char)(1u << bit % 8);

    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return x + load(d->bias, type, row);
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        return relu(x + load(d->bias, type, row));
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
        x = relu(x + load(d->bias, type, row));
        d->aux[bit / 8] =
            (unsigned char)((d->aux[bit / 8] & ~mask) | (x > 0 ? mask : 0));
        return x;
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
        return d->aux[bit / 8] & mask ? x : 0.0f;
    default:
        return x;
    }
}

/* bias = the sum of A's, or of the result's, columns. */
static void sum_into_bias(const fl_emu_lt_desc *d, cudaDataType_t type,
                          const void *x, const fl_emu_lt_layout *l, int t,
                          int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;

        for (int64_t j = 0; j < cols; j++)
            sum += element(x, l, t, i, j);
        store(d->bias, type, i, sum);
    }
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

static void multiply(const fl_emu_lt_desc *d, const void *x,
                     const fl_emu_lt_layout *la, const void *y,
                     const fl_emu_lt_layout *lb, void *z,
                     const fl_emu_lt_layout *lout)
{
    int64_t k = d->ta ? la->rows : la->cols, m = lout->rows;
    const std::vector<float> a = as_floats(x, la, d->ta, m, k);
    std::vector<float> sum(static_cast<std::size_t>(m));

    for (int64_t j = 0; j < lout->cols; j++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t l = 0; l < k; l++)
            add_times(sum.data(), a.data() + l * m, element(y, lb, d->tb, l, j),
                      m);
        for (int64_t i = 0; i < m; i++)
            store(
                z, lout->type, j * lout->ld + i,
                finish(d, lout->type, sum[static_cast<std::size_t>(i)], i, j));
    }
    if (d->epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_into_bias(d, lout->type, x, la, d->ta, lout->rows, k);
    if (d->epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD)
        sum_into_bias(d, lout->type, z, lout, 0, lout->rows, lout->cols);
}

/* Where matrix i of a batch lies. */
template <class T>
static T *of_batch(T *x, const fl_emu_lt_layout &l, int64_t i)
{
    int64_t size = l.type == CUDA_R_32F ? 4 : 2;

    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(x) +
                                 (uintptr_t)(i * l.offset * size));
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
    if (!fits(d, la, lb, lout) || *static_cast<const float *>(alpha) != 1.0f ||
        *static_cast<const float *>(beta) != 0.0f || !workspace ||
        workspace_bytes < 256 || !is_aligned(a, algo->data[0]) ||
        !is_aligned(b, algo->data[1]) || !is_aligned(c, algo->data[2]) ||
        !is_aligned(out, algo->data[3]))
        return CUBLAS_STATUS_INVALID_VALUE;
    fl_emu_queue(stream, [=, desc = *d, a_is = *la, b_is = *lb,
                          out_is = *lout] {
        for (int64_t i = 0; i < out_is.batch; i++)
            multiply(&desc, of_batch(a, a_is, i), &a_is, of_batch(b, b_is, i),
                     &b_is, of_batch(out, out_is, i), &out_is);
    });
    return CUBLAS_STATUS_SUCCESS;
}
