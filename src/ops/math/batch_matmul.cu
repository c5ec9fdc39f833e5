/* batch_matmul.cu - the CUDA half of batch_matmul.c: one product of
 * many matrices. */
#include "ops/math/batch_matmul.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, A, B };

struct product {
    fl_gemm *gemm;
};

static fleet_status prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_batch_matmul *c = static_cast<const fl_batch_matmul *>(s->config);
    product *p = static_cast<product *>(s->state);
    fl_gemm_spec spec = {};
    uintptr_t size[] = {(uintptr_t)(c->m * c->n), (uintptr_t)(c->m * c->k),
                        (uintptr_t)(c->k * c->n)};
    uint32_t align[3];

    /* of each matrix of the batch */
    for (int i = 0; i < 3; i++)
        align[i] = fl_alignment_of(reinterpret_cast<uintptr_t>(s->arg[i].data) |
                                   size[i] * sizeof(float));
    spec.align_c = align[OUT];
    spec.align_a = align[A];
    spec.align_b = align[B];
    spec.batch = fl_step_rows(s, OUT) * c->count;
    spec.m = c->m;
    spec.n = c->n;
    spec.k = c->k;
    spec.ta = c->ta;
    spec.tb = c->tb;
    spec.lda = c->ta ? c->m : c->k;
    spec.ldb = c->tb ? c->k : c->n;
    spec.ldc = c->n;
    return d->methods->gemm_create(d, q, &spec, &p->gemm);
}

static void finish(fl_device *d, fl_device_step *s)
{
    product *p = static_cast<product *>(s->state);

    d->methods->gemm_destroy(d, p->gemm);
    p->gemm = nullptr;
}

static fleet_status run(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_gemm_data data = {s->arg[A].data, s->arg[B].data, s->arg[OUT].data,
                               nullptr};

    return d->methods->gemm_run(
        d, q, static_cast<const product *>(s->state)->gemm, &data);
}

extern const fl_device_kernel fl_cuda_batch_matmul[];
const fl_device_kernel fl_cuda_batch_matmul[] = {
    FL_KERNEL_WITH("batch_matmul", sizeof(product), prepare, finish, run),
    FL_KERNEL_END,
};
