/* dnnl.c - matrix products and convolutions by oneDNN 2.6 and 3.x: their
 * primitives, and the memory that each thread runs one with. */
#include "ops/dnnl.h"

#include <pthread.h>

#include <oneapi/dnnl/dnnl.h>

#include <fleet/nn.h>

#include "base/memory.h"
#include "base/thread.h"

/* libgomp's, which Debian's oneDNN runs on. This file declares them, because
 * <omp.h> is the compiler's own and clang has none without libomp. */
int omp_get_max_threads(void);
void omp_set_num_threads(int n);

enum { A, B, BIAS, C, SCRATCH, N_MEMORY };

/* oneDNN does not check all that it allocates: code for a product's kernels (of
 * which 2.5 MB were seen), what its gemm shares (6 MB, by the first that runs),
 * and a little for each run. */
enum {
    CREATE_BYTES = 6 << 20,
    FIRST_RUN_BYTES = 12 << 20,
    RUN_BYTES = 32 << 10
};

struct fl_matmul {
    dnnl_primitive_t primitive;
    const char *what; /* in messages */
    const int *arg;   /* what oneDNN calls A to C */
    size_t scratch;
    bool bias;
    int n_thread;
    struct lane {
        bool ran;
        dnnl_stream_t stream;
        dnnl_memory_t memory[N_MEMORY];
    } lane[];
};

/* --- what 2.x and 3.x call differently ----------------------------------- */

typedef dnnl_memory_desc_t desc;

/* A convolution as oneDNN has it: a dilation of 0 is none. */
typedef struct conv_args {
    desc x, w, y, bias;
    bool has_bias;
    dnnl_dims_t stride, dilation, padding;
} conv_args;

#if DNNL_VERSION_MAJOR >= 3

#define DESC_ARG(d)       (d)
#define DESC_WITH_STRIDES dnnl_memory_desc_create_with_strides

static void free_desc(desc d)
{
    dnnl_memory_desc_destroy(d);
}

static dnnl_status_t add_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg)
{
    return dnnl_post_ops_append_eltwise(ops, alg, 0.0f, 0.0f);
}

static dnnl_status_t make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                             desc *d, bool bias, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, d[A], d[B],
                                             bias ? d[BIAS] : NULL, d[C], attr);
}

static dnnl_status_t make_conv_pd(dnnl_primitive_desc_t *pd,
                                  dnnl_engine_t engine, fl_conv_kind kind,
                                  const conv_args *c,
                                  dnnl_primitive_desc_t forward,
                                  dnnl_primitive_attr_t attr)
{
    if (kind == FL_CONV_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, dnnl_convolution_direct, c->x,
            c->w, c->has_bias ? c->bias : NULL, c->y, c->stride, c->dilation,
            c->padding, c->padding, attr);
    if (kind == FL_CONV_DX)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, c->x, c->w, c->y, c->stride,
            c->dilation, c->padding, c->padding, forward, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, c->x, c->w, NULL, c->y, c->stride,
        c->dilation, c->padding, c->padding, forward, attr);
}

#else

#define DESC_ARG(d)       (&(d))
#define DESC_WITH_STRIDES dnnl_memory_desc_init_by_strides

static void free_desc(desc d)
{
    (void)d;
}

static dnnl_status_t add_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, alg, 0.0f, 0.0f);
}

static dnnl_status_t make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                             desc *d, bool bias, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    dnnl_status_t e =
        dnnl_matmul_desc_init(&op, &d[A], &d[B], bias ? &d[BIAS] : NULL, &d[C]);

    return e == dnnl_success
               ? dnnl_primitive_desc_create(pd, &op, attr, engine, NULL)
               : e;
}

static dnnl_status_t init_conv(dnnl_convolution_desc_t *op, fl_conv_kind kind,
                               const conv_args *c)
{
    if (kind == FL_CONV_FORWARD)
        return dnnl_dilated_convolution_forward_desc_init(
            op, dnnl_forward_training, dnnl_convolution_direct, &c->x, &c->w,
            c->has_bias ? &c->bias : NULL, &c->y, c->stride, c->dilation,
            c->padding, c->padding);
    if (kind == FL_CONV_DX)
        return dnnl_dilated_convolution_backward_data_desc_init(
            op, dnnl_convolution_direct, &c->x, &c->w, &c->y, c->stride,
            c->dilation, c->padding, c->padding);
    return dnnl_dilated_convolution_backward_weights_desc_init(
        op, dnnl_convolution_direct, &c->x, &c->w, NULL, &c->y, c->stride,
        c->dilation, c->padding, c->padding);
}

static dnnl_status_t make_conv_pd(dnnl_primitive_desc_t *pd,
                                  dnnl_engine_t engine, fl_conv_kind kind,
                                  const conv_args *c,
                                  dnnl_primitive_desc_t forward,
                                  dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t e = init_conv(&op, kind, c);

    return e == dnnl_success
               ? dnnl_primitive_desc_create(pd, &op, attr, engine, forward)
               : e;
}

#endif

/* Of a matrix. Sizes and strides have an element in front, which counts where
 * there are many matrices. */
static dnnl_status_t make_desc(desc *d, dnnl_dims_t size, dnnl_dims_t stride,
                               bool many, bool bf16)
{
    int skip = many ? 0 : 1;

    return DESC_WITH_STRIDES(d, 3 - skip, size + skip,
                             bf16 ? dnnl_bf16 : dnnl_f32, stride + skip);
}

/* --- the engine, once ---------------------------------------------------- */

static dnnl_engine_t engine; /* stateless on a CPU; kept for the process */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_engine(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

static fleet_status failed(dnnl_status_t e, const char *what)
{
    if (e == dnnl_out_of_memory)
        return fl_fail(FLEET_ENOMEM, "oneDNN %s: out of memory", what);
    return fl_fail(FLEET_EUNSUPPORTED, "oneDNN %s: status %d", what, (int)e);
}

#define DNNL_TRY(call)                                                         \
    do {                                                                       \
        dnnl_status_t e_ = (call);                                             \
        if (e_ != dnnl_success)                                                \
            return failed(e_, #call);                                          \
    } while (0)

/* --- making one ---------------------------------------------------------- */

/* dnnl_alg_kind_undef: oneDNN does not do it, or not as we want it. */
static dnnl_alg_kind_t alg_of(int activation)
{
    switch (activation) {
    case FLEET_TANH:
        return dnnl_eltwise_tanh;
    case FLEET_SIGMOID:
        return dnnl_eltwise_logistic;
    default:
        return dnnl_alg_kind_undef;
    }
}

bool fl_matmul_activates(int activation)
{
    return activation == FLEET_LINEAR ||
           alg_of(activation) != dnnl_alg_kind_undef;
}

static fleet_status make_descs(const fl_matmul_spec *s, desc *d)
{
    bool many = s->batch > 0;
    int64_t rows_a = s->ta ? s->k : s->m, rows_b = s->tb ? s->n : s->k;
    dnnl_dims_t a = {s->batch, s->m, s->k}, as = {rows_a * s->lda, s->lda, 1};
    dnnl_dims_t b = {s->batch, s->k, s->n}, bs = {rows_b * s->ldb, s->ldb, 1};
    dnnl_dims_t at = {rows_a * s->lda, 1, s->lda};
    dnnl_dims_t bt = {rows_b * s->ldb, 1, s->ldb};
    dnnl_dims_t c = {s->batch, s->m, s->n}, cs = {s->m * s->ldc, s->ldc, 1};
    dnnl_dims_t bias = {1, 1, s->n}, biass = {s->n, s->n, 1};

    DNNL_TRY(make_desc(&d[A], a, s->ta ? at : as, many, s->bf16));
    DNNL_TRY(make_desc(&d[B], b, s->tb ? bt : bs, many, s->bf16));
    DNNL_TRY(make_desc(&d[C], c, cs, many, s->bf16_out));
    DNNL_TRY(make_desc(&d[BIAS], bias, biass, many, false));
    return FLEET_OK;
}

static fleet_status add_activation(dnnl_primitive_attr_t attr, int activation)
{
    dnnl_post_ops_t ops;
    dnnl_status_t e;

    if (!fl_matmul_activates(activation))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "a product cannot apply activation %d", activation);
    if (activation == FLEET_LINEAR)
        return FLEET_OK;
    DNNL_TRY(dnnl_post_ops_create(&ops));
    e = add_eltwise(ops, alg_of(activation));
    if (e == dnnl_success)
        e = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return e == dnnl_success ? FLEET_OK : failed(e, "post-ops");
}

static fleet_status make_lane(fl_matmul *m, struct lane *lane, desc *d,
                              dnnl_primitive_desc_t pd)
{
    DNNL_TRY(
        dnnl_stream_create(&lane->stream, engine, dnnl_stream_default_flags));
    for (int i = A; i <= C; i++)
        if (i != BIAS || m->bias)
            DNNL_TRY(dnnl_memory_create(&lane->memory[i], DESC_ARG(d[i]),
                                        engine, DNNL_MEMORY_NONE));
    DNNL_TRY(dnnl_memory_create(
        &lane->memory[SCRATCH],
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), engine,
        DNNL_MEMORY_NONE));
    return FLEET_OK;
}

static fleet_status use_pd(fl_matmul *m, desc *d, dnnl_primitive_desc_t pd)
{
    dnnl_status_t e = dnnl_primitive_create(&m->primitive, pd);
    fleet_status status = FLEET_OK;

    if (e != dnnl_success)
        return failed(e, m->what);
    m->scratch = dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    for (int i = 0; status == FLEET_OK && i < m->n_thread; i++)
        status = make_lane(m, &m->lane[i], d, pd);
    return status;
}

/* What is made of a spec: sets d, which is freed, and makes a descriptor. */
typedef fleet_status make_desc_of(const void *spec, desc *d,
                                  dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *pd);

static fleet_status create(fl_matmul *m, make_desc_of *make, const void *spec)
{
    desc d[N_MEMORY] = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t e = dnnl_primitive_attr_create(&attr);
    fleet_status status = FLEET_OK;
    int host = omp_get_max_threads();

    omp_set_num_threads(1); /* a primitive keeps what it is made with */
    if (e == dnnl_success)
        e = dnnl_primitive_attr_set_scratchpad_mode(attr,
                                                    dnnl_scratchpad_mode_user);
    if (e != dnnl_success)
        status = failed(e, "attributes");
    if (status == FLEET_OK)
        status = make(spec, d, attr, &pd);
    if (status == FLEET_OK)
        status = use_pd(m, d, pd);
    omp_set_num_threads(host);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    for (int i = A; i <= C; i++)
        free_desc(d[i]);
    return status;
}

static fleet_status make_one(fl_matmul **matmul, const fl_matmul *like,
                             make_desc_of *make, const void *spec)
{
    fl_matmul *m;
    fleet_status status;

    FL_TRY(fl_thread_spare(CREATE_BYTES, "oneDNN"));
    pthread_once(&once, make_engine);
    if (!engine)
        return fl_fail(FLEET_EUNSUPPORTED, "oneDNN has no CPU engine");
    FL_TRY(
        FL_NEW(matmul, sizeof *m + (size_t)like->n_thread * sizeof m->lane[0]));
    m = *matmul;
    *m = *like;
    status = create(m, make, spec);
    if (status != FLEET_OK) {
        fl_matmul_destroy(m);
        *matmul = NULL;
    }
    return status;
}

static fleet_status desc_of_matmul(const void *spec, desc *d,
                                   dnnl_primitive_attr_t attr,
                                   dnnl_primitive_desc_t *pd)
{
    const fl_matmul_spec *s = spec;

    FL_TRY(make_descs(s, d));
    FL_TRY(add_activation(attr, s->activation));
    DNNL_TRY(make_pd(pd, engine, d, s->bias, attr));
    return FLEET_OK;
}

fleet_status fl_matmul_create(fl_matmul **matmul, const fl_matmul_spec *spec,
                              int n_thread)
{
    static const int arg[] = {
        [A] = DNNL_ARG_SRC, [B] = DNNL_ARG_WEIGHTS, [C] = DNNL_ARG_DST};

    return make_one(matmul,
                    &(fl_matmul){.what = "matmul",
                                 .arg = arg,
                                 .bias = spec->bias,
                                 .n_thread = n_thread},
                    desc_of_matmul, spec);
}

/* --- convolutions --------------------------------------------------------- */

typedef struct conv_spec {
    fl_conv_kind kind;
    const fl_conv_shape *shape;
    int64_t images;
    bool bias;
} conv_spec;

static dnnl_status_t make_dense(desc *d, const dnnl_dims_t size, int n)
{
    dnnl_dims_t stride = {0};

    for (int64_t i = n - 1, all = 1; i >= 0; all *= size[i--])
        stride[i] = all;
    return DESC_WITH_STRIDES(d, n, size, dnnl_f32, stride);
}

/* Where d has images, weights and results. */
static const struct {
    int x, w, y;
    int arg[N_MEMORY];
} conv_kinds[] = {
    [FL_CONV_FORWARD] =
        {A,
         B,
         C,
         {[A] = DNNL_ARG_SRC, [B] = DNNL_ARG_WEIGHTS, [C] = DNNL_ARG_DST}},
    [FL_CONV_DX] = {C,
                    B,
                    A,
                    {[A] = DNNL_ARG_DIFF_DST,
                     [B] = DNNL_ARG_WEIGHTS,
                     [C] = DNNL_ARG_DIFF_SRC}},
    [FL_CONV_DW] = {A,
                    C,
                    B,
                    {[A] = DNNL_ARG_SRC,
                     [B] = DNNL_ARG_DIFF_DST,
                     [C] = DNNL_ARG_DIFF_WEIGHTS}},
};

/* Weights have a dimension of groups in front, if there are several. */
static fleet_status make_conv_descs(const conv_spec *s, desc *d)
{
    const fl_conv_shape *c = s->shape;
    int skip = c->groups == 1;
    dnnl_dims_t x = {s->images, c->in, c->x[0], c->x[1]};
    dnnl_dims_t y = {s->images, c->out, c->y[0], c->y[1]};
    dnnl_dims_t w = {c->groups, c->out / c->groups, c->in / c->groups,
                     c->kernel[0], c->kernel[1]};
    dnnl_dims_t bias = {c->out};

    DNNL_TRY(make_dense(&d[conv_kinds[s->kind].x], x, 4));
    DNNL_TRY(make_dense(&d[conv_kinds[s->kind].y], y, 4));
    DNNL_TRY(make_dense(&d[conv_kinds[s->kind].w], w + skip, 5 - skip));
    DNNL_TRY(make_dense(&d[BIAS], bias, 1));
    return FLEET_OK;
}

/* Of a gradient oneDNN wants to know the forward convolution, too. */
static fleet_status desc_of_conv(const void *spec, desc *d,
                                 dnnl_primitive_attr_t attr,
                                 dnnl_primitive_desc_t *pd)
{
    const conv_spec *s = spec;
    const fl_conv_shape *c = s->shape;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t e = dnnl_success;

    FL_TRY(make_conv_descs(s, d));
    conv_args a = {.x = d[conv_kinds[s->kind].x],
                   .w = d[conv_kinds[s->kind].w],
                   .y = d[conv_kinds[s->kind].y],
                   .bias = d[BIAS],
                   .has_bias = s->bias,
                   .stride = {c->stride[0], c->stride[1]},
                   .dilation = {c->dilation[0] - 1, c->dilation[1] - 1},
                   .padding = {c->padding[0], c->padding[1]}};

    if (s->kind != FL_CONV_FORWARD)
        e = make_conv_pd(&forward, engine, FL_CONV_FORWARD, &a, NULL, attr);
    if (e == dnnl_success)
        e = make_conv_pd(pd, engine, s->kind, &a, forward, attr);
    if (forward)
        dnnl_primitive_desc_destroy(forward);
    return e == dnnl_success ? FLEET_OK : failed(e, "convolution");
}

fleet_status fl_conv_create(fl_matmul **conv, fl_conv_kind kind,
                            const fl_conv_shape *shape, int64_t images,
                            bool bias, int n_thread)
{
    conv_spec spec = {kind, shape, images, bias};

    return make_one(conv,
                    &(fl_matmul){.what = "convolution",
                                 .arg = conv_kinds[kind].arg,
                                 .bias = bias,
                                 .n_thread = n_thread},
                    desc_of_conv, &spec);
}

/* --- running one ---------------------------------------------------------- */

void fl_matmul_destroy(fl_matmul *m)
{
    if (!m)
        return;
    for (int t = 0; t < m->n_thread; t++) {
        for (int i = 0; i < N_MEMORY; i++)
            if (m->lane[t].memory[i])
                dnnl_memory_destroy(m->lane[t].memory[i]);
        if (m->lane[t].stream)
            dnnl_stream_destroy(m->lane[t].stream);
    }
    if (m->primitive)
        dnnl_primitive_destroy(m->primitive);
    fl_free(m);
}

size_t fl_matmul_scratch(const fl_matmul *m)
{
    return m->scratch;
}

/* oneDNN takes pointers without const; it does not write to its sources. */
static void *writable(const void *p)
{
    union {
        const void *from;
        void *to;
    } u = {p};

    return u.to;
}

/* What all products share is made by the first that runs: where memory is
 * limited no other thread may take what was there for it. */
static dnnl_status_t run_first(const fl_matmul *m, struct lane *l,
                               const dnnl_exec_arg_t *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool is_limited = fl_memory_is_limited();
    dnnl_status_t e = dnnl_out_of_memory;

    if (is_limited)
        pthread_mutex_lock(&lock);
    if (fl_thread_spare(FIRST_RUN_BYTES, "oneDNN") == FLEET_OK)
        e = dnnl_primitive_execute(m->primitive, l->stream, m->bias ? 5 : 4,
                                   arg);
    if (is_limited)
        pthread_mutex_unlock(&lock);
    l->ran = e == dnnl_success;
    return e;
}

static dnnl_status_t run(const fl_matmul *m, struct lane *l,
                         const dnnl_exec_arg_t *arg)
{
    if (!l->ran)
        return run_first(m, l, arg);
    if (fl_memory_spare(RUN_BYTES, "oneDNN") != FLEET_OK)
        return dnnl_out_of_memory;
    return dnnl_primitive_execute(m->primitive, l->stream, m->bias ? 5 : 4,
                                  arg);
}

fleet_status fl_matmul_run(fl_matmul *m, int thread, const void *a,
                           const void *b, const float *bias, void *c,
                           void *scratch)
{
    struct lane *l = &m->lane[thread];
    dnnl_exec_arg_t arg[N_MEMORY] = {{m->arg[A], l->memory[A]},
                                     {m->arg[B], l->memory[B]},
                                     {m->arg[C], l->memory[C]},
                                     {DNNL_ARG_SCRATCHPAD, l->memory[SCRATCH]},
                                     {DNNL_ARG_BIAS, l->memory[BIAS]}};
    int host = omp_get_max_threads();
    dnnl_status_t e;

    dnnl_memory_set_data_handle(l->memory[A], writable(a));
    dnnl_memory_set_data_handle(l->memory[B], writable(b));
    dnnl_memory_set_data_handle(l->memory[C], c);
    dnnl_memory_set_data_handle(l->memory[SCRATCH], scratch);
    if (m->bias)
        dnnl_memory_set_data_handle(l->memory[BIAS], writable(bias));
    if (host != 1)
        omp_set_num_threads(1);
    e = run(m, l, arg);
    if (host != 1)
        omp_set_num_threads(host);
    return e == dnnl_success ? FLEET_OK : failed(e, m->what);
}
