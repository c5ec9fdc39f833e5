/* gemm.cu - matrix products by cuBLASLt, the only user of <cublasLt.h> besides
 * the header that holds its handle.
 *
 * cuBLASLt's matrices are column-major. A row-major c = a . b is, read that
 * way, c' = b' . a': so b is its A, a its B, and n is the number of rows.
 */
#include <cstring>

#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/gemm.h"

struct fl_gemm {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's A and B */
    cublasLtMatmulAlgo_t algo;
    fl_epilogue epilogue;
    void *workspace;
    size_t workspace_bytes;
};

enum { MOST_WORKSPACE = 32 << 20 };

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

static const cublasLtEpilogue_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,
    CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DRELU,     CUBLASLT_EPILOGUE_DRELU_BGRAD,
    CUBLASLT_EPILOGUE_BGRADA};

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

    FL_TRY(fl_cuda_check_lt(
        cublasLtMatmulDescCreate(&g->desc,
                                 c->strict_fp32 || is_narrow(s->in)
                                     ? CUBLAS_COMPUTE_32F
                                     : CUBLAS_COMPUTE_32F_FAST_TF32,
                                 CUDA_R_32F),
        "cublasLtMatmulDescCreate"));
    FL_TRY(set(g, CUBLASLT_MATMUL_DESC_TRANSA, ta));
    FL_TRY(set(g, CUBLASLT_MATMUL_DESC_TRANSB, tb));
    if (s->ld_aux > 0)
        FL_TRY(set(g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s->ld_aux));
    return set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[s->epilogue]);
}

/* The layout of a row-major matrix. */
static fleet_status make_layout(cublasLtMatrixLayout_t *l, fleet_dtype dtype,
                                int64_t rows, int64_t cols, int64_t ld)
{
    return fl_cuda_check_lt(cublasLtMatrixLayoutCreate(l, type_of(dtype),
                                                       (uint64_t)cols,
                                                       (uint64_t)rows, ld),
                            "cublasLtMatrixLayoutCreate");
}

template <class T>
static fleet_status set_layout(cublasLtMatrixLayout_t l,
                               cublasLtMatrixLayoutAttribute_t attr, T value)
{
    return fl_cuda_check_lt(
        cublasLtMatrixLayoutSetAttribute(l, attr, &value, sizeof value),
        "cublasLtMatrixLayoutSetAttribute");
}

/* One of many matrices that are `size` elements apart. */
static fleet_status repeat(cublasLtMatrixLayout_t l, int64_t times,
                           int64_t size)
{
    FL_TRY(set_layout(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (int32_t)times));
    return set_layout(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, size);
}

static fleet_status repeat_all(const fl_gemm_spec *s, fl_gemm *g)
{
    if (s->batch > INT32_MAX)
        return fl_fail(FLEET_EUNSUPPORTED, "a product of %lld matrices",
                       (long long)s->batch);
    FL_TRY(repeat(g->a, s->batch, (s->tb ? s->n : s->k) * s->ldb));
    FL_TRY(repeat(g->b, s->batch, (s->ta ? s->k : s->m) * s->lda));
    return repeat(g->c, s->batch, s->m * s->ldc);
}

static fleet_status make_layouts(const fl_gemm_spec *s, fl_gemm *g)
{
    FL_TRY(make_layout(&g->a, s->in, s->tb ? s->n : s->k, s->tb ? s->k : s->n,
                       s->ldb));
    FL_TRY(make_layout(&g->b, s->in, s->ta ? s->k : s->m, s->ta ? s->m : s->k,
                       s->lda));
    FL_TRY(make_layout(&g->c, s->out, s->m, s->n, s->ldc));
    return s->batch > 0 ? repeat_all(s, g) : FLEET_OK;
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
    uint32_t align = s->align           ? s->align
                     : is_narrow(s->in) ? 2u
                                        : (uint32_t)sizeof(float);
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
        return fl_fail(
            FLEET_EUNSUPPORTED,
            "cuBLASLt: no way to multiply [%lld,%lld] by "
            "[%lld,%lld] of %s with epilogue %d (%s)",
            (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n,
            is_narrow(s->in) ? s->in == FLEET_FLOAT16 ? "float16" : "bfloat16"
                             : "float32",
            (int)s->epilogue, cublasLtGetStatusString(e));
    g->algo = best.algo;
    g->workspace_bytes = best.workspaceSize;
    return FLEET_OK;
}

fleet_status fl_cuda_gemm_create(fl_device *d, const fl_gemm_spec *spec,
                                 fl_gemm **gemm)
{
    const fl_cuda *c = fl_cuda_of(d);
    fl_gemm *g = static_cast<fl_gemm *>(fl_alloc(sizeof *g));
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
    if (status == FLEET_OK && g->workspace_bytes > 0)
        status = fl_cuda_check(cudaMalloc(&g->workspace, g->workspace_bytes),
                               "workspace of a product");
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
    fl_free(g);
}

/* The pointers of an epilogue belong to a description, which is copied when a
 * product is queued. */
static fleet_status point(const fl_gemm *g, const fl_gemm_data *data)
{
    fl_gemm *at = const_cast<fl_gemm *>(g);

    if (g->epilogue != FL_GEMM_PLAIN && g->epilogue != FL_GEMM_DRELU)
        FL_TRY(set(at, CUBLASLT_MATMUL_DESC_BIAS_POINTER, data->bias));
    if (g->epilogue == FL_GEMM_BIAS_RELU_AUX || g->epilogue == FL_GEMM_DRELU ||
        g->epilogue == FL_GEMM_DRELU_BGRAD)
        FL_TRY(set(at, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, data->aux));
    return FLEET_OK;
}

fleet_status fl_cuda_gemm_run(fl_device *d, fl_queue *q, const fl_gemm *g,
                              const fl_gemm_data *data)
{
    const float one = 1.0f, zero = 0.0f;

    FL_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    FL_TRY(point(g, data));
    return fl_cuda_check_lt(
        cublasLtMatmul(fl_cuda_of(d)->lt, g->desc, &one, data->b, g->a, data->a,
                       g->b, &zero, data->c, g->c, data->c, g->c, &g->algo,
                       g->workspace, g->workspace_bytes, fl_cuda_stream(q)),
        "cublasLtMatmul");
}

/* --- relu of NaN ---------------------------------------------------------- */

enum { SIDE = 16, CELLS = SIDE * SIDE };

/* All ones are a NaN of every type. */
struct relu_try {
    fl_cuda *c;
    fl_queue *q;
    unsigned char *on; /* a, which begins with a NaN, b, the bias, and c */
    fleet_dtype in, out;
};

enum { ROOM = CELLS * sizeof(float) };

static fleet_status run_relu(const relu_try &t, unsigned char *first)
{
    fl_gemm_spec spec = {
        SIDE, SIDE, SIDE, false, false, SIDE, SIDE, SIDE, FL_GEMM_BIAS_RELU,
        0,    16,   t.in, t.out, 0};
    fl_gemm_data data = {t.on, t.on + ROOM, t.on + 3 * ROOM, t.on + 2 * ROOM,
                         nullptr};
    fl_device *d = &t.c->base;
    const fl_device_class *m = d->methods;
    fl_gemm *g;
    fleet_status status;

    FL_TRY(fl_cuda_gemm_create(d, &spec, &g));
    status = m->fill(d, t.q, t.on, 0, 4 * ROOM);
    if (status == FLEET_OK)
        status = m->fill(d, t.q, t.on, 0xff, sizeof(float));
    if (status == FLEET_OK)
        status = fl_cuda_gemm_run(d, t.q, g, &data);
    if (status == FLEET_OK)
        status = m->copy(d, t.q, first, data.c, sizeof(float), FL_TO_HOST);
    if (status == FLEET_OK)
        status = m->stream_wait(d, t.q, 60000);
    fl_cuda_gemm_destroy(d, g);
    return status;
}

static bool is_nan(const unsigned char *x, fleet_dtype dtype)
{
    uint16_t half;
    float f;

    memcpy(&f, x, sizeof f);
    memcpy(&half, x, sizeof half);
    return dtype == FLEET_BFLOAT16  ? (half & 0x7fff) > 0x7f80
           : dtype == FLEET_FLOAT16 ? (half & 0x7fff) > 0x7c00
                                    : f != f;
}

static fleet_status try_each(const relu_try &all)
{
    static const fleet_dtype types[][2] = {{FLEET_FLOAT32, FLEET_FLOAT32},
                                           {FLEET_BFLOAT16, FLEET_BFLOAT16},
                                           {FLEET_BFLOAT16, FLEET_FLOAT32},
                                           {FLEET_FLOAT16, FLEET_FLOAT16},
                                           {FLEET_FLOAT16, FLEET_FLOAT32}};
    unsigned char first[sizeof(float)];

    for (const fleet_dtype *type : types) {
        relu_try one = {all.c, all.q, all.on, type[0], type[1]};

        FL_TRY(run_relu(one, first));
        all.c->keeps_nan.of[type[0]][type[1]] = is_nan(first, type[1]);
    }
    return FLEET_OK;
}

fleet_status fl_cuda_try_relus(fl_cuda *c)
{
    const fl_device_class *m = c->base.methods;
    fl_queue *q = nullptr;
    void *on = nullptr;
    fleet_status status;

    FL_TRY(m->stream_create(&c->base, &q));
    status = m->alloc(&c->base, q, 4 * ROOM, &on);
    if (status == FLEET_OK)
        status = try_each({c, q, static_cast<unsigned char *>(on),
                           FLEET_FLOAT32, FLEET_FLOAT32});
    m->free(&c->base, q, on);
    m->stream_destroy(&c->base, q);
    return status;
}
