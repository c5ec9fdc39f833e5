/* gemm.cu - matrix products by cuBLASLt, the only user of <cublasLt.h> besides
 * the header that holds its handle.
 *
 * A product is computed in the first of four ways that this GPU, its cuBLASLt
 * and the operands allow, and in the next one if cuBLASLt refuses it later:
 *
 *   FUSED   one call of cuBLASLt, with the bias and the relu
 *   BIASED  one with the bias, then a kernel for the relu
 *   FILLED  a kernel that fills c with the bias, cuBLASLt's product, which is
 *           added to that, and a kernel for the relu
 *   OWN     a kernel of our own (gemm_kernels.cu), which needs no cuBLASLt
 *
 * Of a product with a bias gradient FUSED is one call, with the sums of b's
 * rows; FILLED is the plain product, and OWN our own, each with a kernel for
 * the sums behind it.
 *
 * cuBLASLt's matrices are column-major. A row-major c = a . b is, read that
 * way, c' = b' . a': so b is its A, a its B, and n is the number of rows.
 */
#include <cstring>

#include "runtime/device/cuda/column_sums.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/gemm_kernels.h"

enum way { FUSED, BIASED, FILLED, OWN };

struct fl_gemm {
    fl_gemm_spec spec;
    way by;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's A and B */
    cublasLtMatmulAlgo_t algo;
    void *workspace;
    size_t workspace_bytes;
    fl_column_sums sums; /* for a bias gradient that is not fused */
};

enum { MOST_WORKSPACE = 32 << 20, CANDIDATES = 8, WAIT_MS = 60000 };

static cudaDataType_t type_of(fleet_dtype dtype)
{
    return dtype == FLEET_BFLOAT16  ? CUDA_R_16BF
           : dtype == FLEET_FLOAT16 ? CUDA_R_16F
                                    : CUDA_R_32F;
}

static bool is_narrow(fleet_dtype dtype)
{
    return type_of(dtype) != CUDA_R_32F;
}

static size_t size_of(fleet_dtype dtype)
{
    return is_narrow(dtype) ? 2 : sizeof(float);
}

static bool has_relu(const fl_gemm *g)
{
    return g->spec.epilogue == FL_GEMM_BIAS_RELU;
}

static bool has_bias_gradient(const fl_gemm *g)
{
    return g->spec.epilogue == FL_GEMM_BIAS_GRADIENT;
}

/* Does c have the bias before the product is added to it? */
static bool is_filled(const fl_gemm *g)
{
    return g->by == FILLED && !has_bias_gradient(g);
}

/* What of it is a part of cuBLASLt's product. Our b is its A. */
static cublasLtEpilogue_t epilogue_of(const fl_gemm *g)
{
    return g->by == FILLED || g->spec.epilogue == FL_GEMM_PLAIN
               ? CUBLASLT_EPILOGUE_DEFAULT
           : has_bias_gradient(g)          ? CUBLASLT_EPILOGUE_BGRADA
           : g->by == FUSED && has_relu(g) ? CUBLASLT_EPILOGUE_RELU_BIAS
                                           : CUBLASLT_EPILOGUE_BIAS;
}

static way next_way(const fl_gemm *g)
{
    if (g->spec.epilogue == FL_GEMM_PLAIN || g->by == FILLED)
        return OWN;
    return g->by == FUSED && has_relu(g) ? BIASED : FILLED;
}

/* --- what is asked of cuBLASLt -------------------------------------------- */

template <class T>
static cublasStatus_t set(fl_gemm *g, cublasLtMatmulDescAttributes_t attr,
                          const T &value)
{
    return cublasLtMatmulDescSetAttribute(g->desc, attr, &value, sizeof value);
}

static uint32_t alignment(uint32_t said, fleet_dtype dtype)
{
    return said ? said : (uint32_t)size_of(dtype);
}

/* The heuristic reads the alignment of a bias from its pointer: until there is
 * one, that is an address of the same alignment, which is never read. */
static cublasStatus_t set_epilogue(fl_gemm *g)
{
    const fl_gemm_spec *s = &g->spec;
    const void *bias = reinterpret_cast<const void *>(
        (uintptr_t)alignment(s->align_bias, s->out));
    cublasLtEpilogue_t e = epilogue_of(g);
    cublasStatus_t status = set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, e);

    if (status == CUBLAS_STATUS_SUCCESS && e != CUBLASLT_EPILOGUE_DEFAULT)
        status = set(g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    return status;
}

static cublasStatus_t make_desc(const fl_cuda *c, fl_gemm *g)
{
    const fl_gemm_spec *s = &g->spec;
    cublasOperation_t ta = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasLtMatmulDescCreate(
        &g->desc,
        c->strict_fp32 || is_narrow(s->in) ? CUBLAS_COMPUTE_32F
                                           : CUBLAS_COMPUTE_32F_FAST_TF32,
        CUDA_R_32F);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(g, CUBLASLT_MATMUL_DESC_TRANSA, ta);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(g, CUBLASLT_MATMUL_DESC_TRANSB, tb);
    return status;
}

/* The layout of a row-major matrix, or of many that are `size` apart. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *l, fleet_dtype dtype,
                                  int64_t rows, int64_t cols, int64_t ld,
                                  int64_t batch)
{
    const int32_t times = (int32_t)batch;
    const int64_t size = rows * ld;
    cublasStatus_t status = cublasLtMatrixLayoutCreate(
        l, type_of(dtype), (uint64_t)cols, (uint64_t)rows, ld);

    if (status == CUBLAS_STATUS_SUCCESS && batch > 0)
        status = cublasLtMatrixLayoutSetAttribute(
            *l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &times, sizeof times);
    if (status == CUBLAS_STATUS_SUCCESS && batch > 0)
        status = cublasLtMatrixLayoutSetAttribute(
            *l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &size,
            sizeof size);
    return status;
}

static cublasStatus_t make_layouts(fl_gemm *g)
{
    const fl_gemm_spec *s = &g->spec;
    cublasStatus_t status = make_layout(&g->a, s->in, s->tb ? s->n : s->k,
                                        s->tb ? s->k : s->n, s->ldb, s->batch);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(&g->b, s->in, s->ta ? s->k : s->m,
                             s->ta ? s->m : s->k, s->lda, s->batch);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(&g->c, s->out, s->m, s->n, s->ldc, s->batch);
    return status;
}

/* What a choice may rest on: cuBLASLt takes matrices to be aligned to 256 bytes
 * unless it is told their alignment. */
static cublasStatus_t say_limits(cublasLtMatmulPreference_t preference,
                                 const fl_gemm_spec *s)
{
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t align[] = {
        alignment(s->align_b, s->in), alignment(s->align_a, s->in),
        alignment(s->align_c, s->out), alignment(s->align_c, s->out)};
    /* sums of parts of a sum: not rounded to a narrow type in between */
    const uint32_t schemes = is_narrow(s->out)
                                 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                 : CUBLASLT_REDUCTION_SCHEME_MASK;
    size_t most = MOST_WORKSPACE;
    cublasStatus_t e = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
        sizeof most);

    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
            sizeof schemes);
    for (int i = 0; i < 4 && e == CUBLAS_STATUS_SUCCESS; i++)
        e = cublasLtMatmulPreferenceSetAttribute(preference, sides[i],
                                                 &align[i], sizeof align[i]);
    return e;
}

/* cuBLASLt's best guesses, the best first; how many. */
static int ask_heuristic(const fl_cuda *c, const fl_gemm *g,
                         cublasLtMatmulHeuristicResult_t *guess)
{
    cublasLtMatmulPreference_t preference = nullptr;
    int found = 0;
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);

    if (e == CUBLAS_STATUS_SUCCESS)
        e = say_limits(preference, &g->spec);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulAlgoGetHeuristic(c->lt, g->desc, g->a, g->b, g->c,
                                           g->c, preference, CANDIDATES, guess,
                                           &found);
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return e == CUBLAS_STATUS_SUCCESS ? found : 0;
}

/* --- the workspace -------------------------------------------------------- */

/* All products of a GPU are on one queue, so that one workspace serves for all.
 * A smaller one that was made before stays for products that have its address.
 * Without memory for it there is no product: an algorithm that needs less has
 * other bits, which must not depend on what else is in the GPU's memory.
 */
static fleet_status need_workspace(fl_cuda *c, size_t bytes)
{
    size_t size = 1 << 20;
    void *made;

    if (bytes <= c->workspace_bytes)
        return FLEET_OK;
    while (size < bytes)
        size *= 2;
    FL_TRY(fl_cuda_check(fl_cuda_alloc_now(c, size, &made),
                         "cuda: a workspace for products"));
    c->workspace[c->n_workspace++] = made;
    c->workspace_bytes = size;
    return FLEET_OK;
}

/* --- a call of cuBLASLt --------------------------------------------------- */

/* The pointer of a bias belongs to the description, which is copied when a
 * product is queued. */
static cublasStatus_t launch(const fl_cuda *c, fl_queue *q, fl_gemm *g,
                             const fl_gemm_data *data)
{
    const float one = 1.0f, old = is_filled(g) ? 1.0f : 0.0f;
    const void *bias = data->bias;

    if (epilogue_of(g) != CUBLASLT_EPILOGUE_DEFAULT) {
        cublasStatus_t e = set(g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);

        if (e != CUBLAS_STATUS_SUCCESS)
            return e;
    }
    return cublasLtMatmul(c->lt, g->desc, &one, data->b, g->a, data->a, g->b,
                          &old, data->c, g->c, data->c, g->c, &g->algo,
                          g->workspace, g->workspace_bytes, fl_cuda_stream(q));
}

/* --- relu of NaN ---------------------------------------------------------- */

/* A relu that makes 0 of NaN would hide it from the check of the loss, and
 * spoil the weights. Whether one does is a matter of each of cuBLASLt's
 * kernels: the one that was chosen is tried, with operands that are NaN all
 * over, which all ones are in every type. */
static fleet_status try_nan(fl_cuda *c, fl_queue *q, fl_gemm *g, char *on,
                            size_t in, size_t out, bool *keeps)
{
    fl_device *d = &c->base;
    const fl_device_class *m = d->methods;
    fl_gemm_data data = {on, on, on + in, on};
    int *hidden = reinterpret_cast<int *>(on + in + out), seen = 1;

    FL_TRY(m->fill(d, q, on, 0xff, in));
    FL_TRY(m->fill(d, q, on + in, 0, out + sizeof *hidden));
    if (launch(c, q, g, &data) != CUBLAS_STATUS_SUCCESS) {
        cudaGetLastError();
        return FLEET_OK;
    }
    FL_TRY(fl_cuda_find_hidden_nan(q, &g->spec, data.c, hidden));
    FL_TRY(m->stream_wait(d, q, WAIT_MS)); /* the copy has no deadline */
    FL_TRY(m->copy(d, q, &seen, hidden, sizeof seen, FL_TO_HOST));
    FL_TRY(m->stream_wait(d, q, WAIT_MS));
    *keeps = seen == 0;
    return FLEET_OK;
}

static size_t padded_room(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static fleet_status try_in_memory(fl_cuda *c, fl_queue *q, fl_gemm *g,
                                  bool *keeps)
{
    const fl_gemm_spec *s = &g->spec;
    fl_device *d = &c->base;
    int64_t a = (s->ta ? s->k : s->m) * s->lda;
    int64_t b = (s->tb ? s->n : s->k) * s->ldb;
    size_t in = padded_room((size_t)(a > b ? a : b) * sizeof(float));
    size_t out = padded_room((size_t)(s->m * s->ldc) * sizeof(float));
    fleet_status status;
    void *on;

    if (in < (size_t)s->n * sizeof(float))
        in = padded_room((size_t)s->n * sizeof(float));
    FL_TRY(d->methods->alloc(d, q, in + out + sizeof(int), &on));
    status = try_nan(c, q, g, static_cast<char *>(on), in, out, keeps);
    d->methods->free(d, q, on);
    return status;
}

/* What was found out about a kernel of cuBLASLt's is kept. */
static fleet_status keeps_nan(fl_cuda *c, fl_queue *q, fl_gemm *g, bool *keeps)
{
    *keeps = false;
    for (int i = 0; i < c->n_tried; i++) {
        const fl_relu_checked *t = &c->tried[i];

        if (t->in == g->spec.in && t->out == g->spec.out &&
            memcmp(&t->algo, &g->algo, sizeof t->algo) == 0) {
            *keeps = t->keeps_nan;
            return FLEET_OK;
        }
    }
    FL_TRY(try_in_memory(c, q, g, keeps));
    if (c->n_tried < FL_MOST_TRIED)
        c->tried[c->n_tried++] = {g->algo, g->spec.in, g->spec.out, *keeps};
    return FLEET_OK;
}

/* --- the choice ----------------------------------------------------------- */

/* May this guess be used? Then it is the product's algorithm. */
static fleet_status take_guess(fl_cuda *c, fl_gemm *g,
                               const cublasLtMatmulHeuristicResult_t *guess,
                               bool *good)
{
    cublasLtMatmulHeuristicResult_t checked;

    *good = guess->state == CUBLAS_STATUS_SUCCESS &&
            cublasLtMatmulAlgoCheck(c->lt, g->desc, g->a, g->b, g->c, g->c,
                                    &guess->algo,
                                    &checked) == CUBLAS_STATUS_SUCCESS &&
            checked.workspaceSize <= MOST_WORKSPACE;
    if (!*good)
        return FLEET_OK;
    FL_TRY(need_workspace(c, checked.workspaceSize));
    g->algo = guess->algo;
    g->workspace_bytes = checked.workspaceSize;
    g->workspace =
        g->workspace_bytes > 0 ? c->workspace[c->n_workspace - 1] : nullptr;
    return FLEET_OK;
}

/* Guesses of which a fused relu's may be: a later one is slower than the first
 * by more than a kernel for the relu takes. */
enum { FUSED_GUESSES = 2 };

/* The first guess that can be used; none: the next way. */
static fleet_status choose(fl_cuda *c, fl_queue *q, fl_gemm *g)
{
    cublasLtMatmulHeuristicResult_t guess[CANDIDATES];
    int n = set_epilogue(g) == CUBLAS_STATUS_SUCCESS
                ? ask_heuristic(c, g, guess)
                : 0;

    bool relu = g->by == FUSED && has_relu(g);

    for (int i = 0; i < n && (!relu || i < FUSED_GUESSES); i++) {
        bool good;

        FL_TRY(take_guess(c, g, &guess[i], &good));
        if (good && relu)
            FL_TRY(keeps_nan(c, q, g, &good));
        if (good)
            return FLEET_OK;
    }
    g->by = next_way(g);
    return g->by == OWN ? FLEET_OK : choose(c, q, g);
}

static fleet_status check_spec(const fl_gemm_spec *s)
{
    if (s->epilogue == FL_GEMM_BIAS_GRADIENT && is_narrow(s->out))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "cuda: no gradient of a bias of %s; expected float32",
                       s->out == FLEET_BFLOAT16 ? "bfloat16" : "float16");
    if (s->m > 0 && s->n > 0 && s->k > 0 && s->lda >= (s->ta ? s->m : s->k) &&
        s->ldb >= (s->tb ? s->k : s->n) && s->ldc >= s->n && s->batch >= 0 &&
        s->batch <= INT32_MAX &&
        (s->batch == 0 || s->epilogue == FL_GEMM_PLAIN))
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "cuda: no product of [%lld,%lld] and [%lld,%lld] with rows "
                   "that lie %lld and %lld apart, to %lld apart, %lld times",
                   (long long)s->m, (long long)s->k, (long long)s->k,
                   (long long)s->n, (long long)s->lda, (long long)s->ldb,
                   (long long)s->ldc, (long long)s->batch);
}

/* What the way that was chosen needs besides cuBLASLt's. */
static fleet_status make_sums(fl_device *d, fl_queue *q, fl_gemm *g)
{
    return has_bias_gradient(g) && g->by != FUSED
               ? fl_column_sums_prepare(d, q, g->spec.k, g->spec.n, &g->sums)
               : FLEET_OK;
}

fleet_status fl_cuda_gemm_create(fl_device *d, fl_queue *q,
                                 const fl_gemm_spec *spec, fl_gemm **gemm)
{
    fl_cuda *c = fl_cuda_of(d);
    fleet_status status = FLEET_OK;
    fl_gemm *g;

    *gemm = nullptr;
    FL_TRY(check_spec(spec));
    FL_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    g = static_cast<fl_gemm *>(fl_alloc(sizeof *g));
    if (!g)
        return FLEET_ENOMEM;
    g->spec = *spec;
    if (!c->lt || make_desc(c, g) != CUBLAS_STATUS_SUCCESS ||
        make_layouts(g) != CUBLAS_STATUS_SUCCESS)
        g->by = OWN;
    else
        status = choose(c, q, g);
    if (status == FLEET_OK)
        status = make_sums(d, q, g);
    if (status == FLEET_OK)
        *gemm = g;
    else
        fl_cuda_gemm_destroy(d, g);
    return status;
}

const char *fl_cuda_gemm_way(const fl_gemm *g)
{
    static const char *const word[] = {"fused", "biased", "filled", "own"};

    return word[g->by];
}

/* Descriptions are the host's memory: this waits for no GPU. */
void fl_cuda_gemm_destroy(fl_device *d, fl_gemm *g)
{
    if (!g)
        return;
    fl_column_sums_done(d, &g->sums);
    if (g->desc)
        cublasLtMatmulDescDestroy(g->desc);
    if (g->a)
        cublasLtMatrixLayoutDestroy(g->a);
    if (g->b)
        cublasLtMatrixLayoutDestroy(g->b);
    if (g->c)
        cublasLtMatrixLayoutDestroy(g->c);
    fl_free(g);
}

/* --- running -------------------------------------------------------------- */

/* What is left of it after cuBLASLt's product, or our own. */
static fleet_status end_product(fl_queue *q, const fl_gemm *g,
                                const fl_gemm_data *data)
{
    const fl_gemm_spec *s = &g->spec;

    if (has_bias_gradient(g) && g->by != FUSED)
        return fl_cuda_sum_columns(q, &g->sums, s->in, data->b, s->ldb, s->k,
                                   s->n, static_cast<float *>(data->bias));
    return has_relu(g) && (g->by == BIASED || g->by == FILLED)
               ? fl_cuda_relu(q, s, data->c)
               : FLEET_OK;
}

/* The heuristic has allowed what is refused now: it is computed in another way
 * from now on. What fails because the GPU does fails in that way, too. */
fleet_status fl_cuda_gemm_run(fl_device *d, fl_queue *q, fl_gemm *g,
                              const fl_gemm_data *data)
{
    fl_cuda *c = fl_cuda_of(d);

    FL_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    while (g->by != OWN) {
        if (is_filled(g))
            FL_TRY(fl_cuda_fill_with_bias(q, &g->spec, data));
        if (launch(c, q, g, data) == CUBLAS_STATUS_SUCCESS)
            return end_product(q, g, data);
        cudaGetLastError();
        g->by = next_way(g);
        if (g->by != OWN)
            FL_TRY(choose(c, q, g));
        FL_TRY(make_sums(d, q, g));
    }
    FL_TRY(fl_cuda_multiply(q, &g->spec, data));
    return end_product(q, g, data);
}
