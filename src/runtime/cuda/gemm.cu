/* gemm.cu - matrix products by cuBLASLt, the only user of <cublasLt.h> besides
 * the header that holds its handle.
 *
 * cuBLASLt's matrices are column-major. A row-major c = a . b is, read that
 * way, c' = b' . a': so b is its A, a its B, and n is the number of rows.
 */
#include <cstring>

#include "runtime/cuda/cuda.h"

struct fl_gemm {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's A and B */
    cublasLtMatmulAlgo_t algo;
    fl_epilogue epilogue;
    void *workspace;
    size_t workspace_bytes;
};

enum { MOST_WORKSPACE = 32 << 20 };

static cublasLtEpilogue_t epilogue_of(fl_epilogue e)
{
    static const cublasLtEpilogue_t all[] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU,     CUBLASLT_EPILOGUE_DRELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA};

    return all[e];
}

template <class T>
static fleet_status set(fl_gemm *g, cublasLtMatmulDescAttributes_t attr,
                        const T &value)
{
    return fl_cuda_check_lt(
        cublasLtMatmulDescSetAttribute(g->desc, attr, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

static fleet_status make_desc(const fl_cuda *c, const fl_gemm_spec *s,
                              fl_gemm *g)
{
    cublasOperation_t ta = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;

    FL_CUDA_TRY(fl_cuda_check_lt(
        cublasLtMatmulDescCreate(&g->desc,
                                 c->strict_fp32 ? CUBLAS_COMPUTE_32F
                                                : CUBLAS_COMPUTE_32F_FAST_TF32,
                                 CUDA_R_32F),
        "cublasLtMatmulDescCreate"));
    FL_CUDA_TRY(set(g, CUBLASLT_MATMUL_DESC_TRANSA, ta));
    FL_CUDA_TRY(set(g, CUBLASLT_MATMUL_DESC_TRANSB, tb));
    if (s->ld_aux > 0)
        FL_CUDA_TRY(set(g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s->ld_aux));
    return set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s->epilogue));
}

/* A row-major matrix of so many rows and columns. */
static fleet_status make_layout(cublasLtMatrixLayout_t *l, int64_t rows,
                                int64_t cols, int64_t ld)
{
    return fl_cuda_check_lt(cublasLtMatrixLayoutCreate(l, CUDA_R_32F,
                                                       (uint64_t)cols,
                                                       (uint64_t)rows, ld),
                            "cublasLtMatrixLayoutCreate");
}

static fleet_status make_layouts(const fl_gemm_spec *s, fl_gemm *g)
{
    FL_CUDA_TRY(
        make_layout(&g->a, s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->ldb));
    FL_CUDA_TRY(
        make_layout(&g->b, s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->lda));
    return make_layout(&g->c, s->m, s->n, s->ldc);
}

/* What a choice may rest on: matrices are taken to be aligned to 256 bytes
 * unless somebody says how they are. */
static cublasStatus_t say_limits(cublasLtMatmulPreference_t preference,
                                 const fl_gemm_spec *s)
{
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t align = s->align ? s->align : (uint32_t)sizeof(float);
    size_t most = MOST_WORKSPACE;
    cublasStatus_t e = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
        sizeof most);

    for (int i = 0; i < 4 && e == CUBLAS_STATUS_SUCCESS; i++)
        e = cublasLtMatmulPreferenceSetAttribute(preference, sides[i], &align,
                                                 sizeof align);
    return e;
}

/* The best guess of cuBLASLt's. */
static fleet_status choose(const fl_cuda *c, const fl_gemm_spec *s, fl_gemm *g)
{
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);

    if (e == CUBLAS_STATUS_SUCCESS)
        e = say_limits(preference, s);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulAlgoGetHeuristic(c->lt, g->desc, g->a, g->b, g->c,
                                           g->c, preference, 1, &best, &found);
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    if (e != CUBLAS_STATUS_SUCCESS || found == 0)
        return fl_cuda_fail(FLEET_EUNSUPPORTED,
                            "cuBLASLt: no way to multiply [%lld,%lld] by "
                            "[%lld,%lld] with epilogue %d (%s)",
                            (long long)s->m, (long long)s->k, (long long)s->k,
                            (long long)s->n, (int)s->epilogue,
                            cublasLtGetStatusString(e));
    g->algo = best.algo;
    g->workspace_bytes = best.workspaceSize;
    return FLEET_OK;
}

static fleet_status make_workspace(fl_gemm *g)
{
    if (g->workspace_bytes == 0)
        return FLEET_OK;
    return fl_cuda_check(cudaMalloc(&g->workspace, g->workspace_bytes),
                         "workspace of a product");
}

fleet_status fl_cuda_gemm_create(fl_device *d, const fl_gemm_spec *spec,
                                 fl_gemm **gemm)
{
    const fl_cuda *c = fl_cuda_of(d);
    fl_gemm *g = static_cast<fl_gemm *>(fl_cuda_new(sizeof *g));
    fleet_status status;

    *gemm = nullptr;
    if (!g)
        return FLEET_ENOMEM;
    g->epilogue = spec->epilogue;
    status = fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice");
    if (status == FLEET_OK)
        status = make_desc(c, spec, g);
    if (status == FLEET_OK)
        status = make_layouts(spec, g);
    if (status == FLEET_OK)
        status = choose(c, spec, g);
    if (status == FLEET_OK)
        status = make_workspace(g);
    if (status == FLEET_OK)
        *gemm = g;
    else
        fl_cuda_gemm_destroy(d, g);
    return status;
}

void fl_cuda_gemm_destroy(fl_device *d, fl_gemm *g)
{
    if (!g || cudaSetDevice(d->ordinal) != cudaSuccess)
        return;
    if (g->desc)
        cublasLtMatmulDescDestroy(g->desc);
    if (g->a)
        cublasLtMatrixLayoutDestroy(g->a);
    if (g->b)
        cublasLtMatrixLayoutDestroy(g->b);
    if (g->c)
        cublasLtMatrixLayoutDestroy(g->c);
    cudaFree(g->workspace);
    fl_cuda_delete(g);
}

/* The pointers of an epilogue belong to a description, which is copied when a
 * product is queued. */
static fleet_status point(const fl_gemm *g, const fl_gemm_data *data)
{
    fl_gemm *at = const_cast<fl_gemm *>(g);

    if (g->epilogue != FL_GEMM_PLAIN && g->epilogue != FL_GEMM_DRELU)
        FL_CUDA_TRY(set(at, CUBLASLT_MATMUL_DESC_BIAS_POINTER, data->bias));
    if (g->epilogue == FL_GEMM_BIAS_RELU_AUX || g->epilogue == FL_GEMM_DRELU ||
        g->epilogue == FL_GEMM_DRELU_BGRAD)
        FL_CUDA_TRY(
            set(at, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, data->aux));
    return FLEET_OK;
}

fleet_status fl_cuda_gemm_run(fl_device *d, fl_stream *q, const fl_gemm *g,
                              const fl_gemm_data *data)
{
    const float one = 1.0f, zero = 0.0f;

    FL_CUDA_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    FL_CUDA_TRY(point(g, data));
    return fl_cuda_check_lt(
        cublasLtMatmul(fl_cuda_of(d)->lt, g->desc, &one, data->b, g->a, data->a,
                       g->b, &zero, data->c, g->c, data->c, g->c, &g->algo,
                       g->workspace, g->workspace_bytes, fl_cuda_stream(q)),
        "cublasLtMatmul");
}

/* --- relu of NaN ------------------------------------------------------------
 */

enum { SIDE = 16, CELLS = SIDE * SIDE };

/* a . b + bias through the relu; a has a NaN. */
static fleet_status run_relu(fl_cuda *c, fl_stream *q, float *cells, void *on)
{
    fl_gemm_spec spec = {
        SIDE, SIDE, SIDE, false, false, SIDE, SIDE, SIDE, FL_GEMM_BIAS_RELU,
        0,    16};
    float *a = static_cast<float *>(on);
    fl_gemm_data data = {a, a + CELLS, a + 2 * CELLS, a + 3 * CELLS, nullptr};
    const fl_device_class *m = c->base.methods;
    fl_gemm *g;
    fleet_status status;

    FL_CUDA_TRY(fl_cuda_gemm_create(&c->base, &spec, &g));
    status =
        m->copy(&c->base, q, a, cells, 4 * CELLS * sizeof *cells, FL_TO_DEVICE);
    if (status == FLEET_OK)
        status = fl_cuda_gemm_run(&c->base, q, g, &data);
    if (status == FLEET_OK)
        status = m->copy(&c->base, q, cells, data.c, CELLS * sizeof *cells,
                         FL_TO_HOST);
    if (status == FLEET_OK)
        status = m->stream_wait(&c->base, q, 60000);
    fl_cuda_gemm_destroy(&c->base, g);
    return status;
}

fleet_status fl_cuda_try_relu(fl_cuda *c)
{
    const fl_device_class *m = c->base.methods;
    float cells[4 * CELLS] = {0};
    fl_stream *q = nullptr;
    void *on = nullptr;
    fleet_status status;

    memset(&cells[0], 0xff, sizeof cells[0]); /* a NaN */
    FL_CUDA_TRY(m->stream_create(&c->base, &q));
    status = m->alloc(&c->base, q, sizeof cells, &on);
    if (status == FLEET_OK)
        status = run_relu(c, q, cells, on);
    c->relu_keeps_nan = status == FLEET_OK && cells[0] != cells[0];
    m->free(&c->base, q, on);
    m->stream_destroy(&c->base, q);
    return status;
}
