/* fp16_allreduce.c - gradients that travel as float16: half as many bytes, and
 * 11 bits of each number. What a rank has is rounded, and so is their sum.
 */
#include "runtime/reduce/fp16_allreduce.h"

#include "base/error.h"
#include "runtime/plan/gradients.h"
#include "runtime/reduce/all_reduce_steps.h"
#include "runtime/simd/simd.h"

/* Where a bucket's sum is, to name whose gradient it is. */
typedef struct half_config {
    const fl_store *store;
    const fl_flat *group;
    int64_t offset;
    bool scaled; /* what is not finite skips the update */
} half_config;

enum { THE_UPDATE, GRADIENT, HALF };

static fleet_status split_gradient(fl_instance *in)
{
    int64_t n = in->arg[GRADIENT].rows * in->arg[GRADIENT].cols;

    in->n_part = (int)((n + FL_BLOCK - 1) / FL_BLOCK);
    return FLEET_OK;
}

static fleet_status pack_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    uint16_t *half = (uint16_t *)fl_ptr(in, HALF) + r->begin * FL_BLOCK;
    int64_t n;
    const float *g = fl_block_of(in, GRADIENT, r, &n);

    if (!now->alone && now->leaves)
        fl_simd_best()->to_half(half, g, n);
    return FLEET_OK;
}

static const fl_kernel kernel_pack = {
    .name = "half.pack",
    .split = FL_SPLIT_PARTS,
    .prepare = split_gradient,
    .run = pack_run,
    .on_host = true,
};

static const fl_param *param_at(const half_config *c, int64_t at)
{
    for (size_t i = 0; i < c->store->params.n; i++) {
        const fl_param *p = c->store->params.entry[i].value;

        if (p->flat == c->group && at >= p->offset && at < p->offset + p->n)
            return p;
    }
    return NULL; /* padding */
}

static fleet_status check_finite(const half_config *c, const uint16_t *h,
                                 int64_t first, int64_t n)
{
    const uint16_t not_finite = 0x7C00;
    uint16_t any = 0;

    for (int64_t i = 0; i < n; i++)
        any |= (h[i] & not_finite) == not_finite;
    for (int64_t i = 0; any && i < n; i++) {
        const fl_param *p = param_at(c, c->offset + first + i);

        if (p && (h[i] & not_finite) == not_finite)
            return fl_fail(FLEET_ENUMERIC,
                           "the gradient of \"%s\", summed over the ranks, is "
                           "not finite as float16, which ends at 65504: "
                           "strategy.fp16_allreduce",
                           p->name);
    }
    return FLEET_OK;
}

static fleet_status unpack_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const half_config *c = in->step->config;
    int64_t n, first = r->begin * FL_BLOCK;
    const uint16_t *half = (const uint16_t *)fl_ptr(in, HALF) + first;
    float *g = fl_block_of(in, GRADIENT, r, &n);

    if (now->alone)
        return FLEET_OK;
    if (!c->scaled)
        FL_TRY(check_finite(c, half, first, n));
    fl_simd_best()->from_half(g, half, n);
    return FLEET_OK;
}

static const fl_kernel kernel_unpack = {
    .name = "half.unpack",
    .split = FL_SPLIT_PARTS,
    .prepare = split_gradient,
    .run = unpack_run,
    .on_host = true,
};

/* In the memory where ranks reduce without a copy, if the group has it. */
static int half_value(fl_lowering *l, const fl_flat *g, int64_t offset,
                      int64_t n)
{
    const fl_shape shape = fl_shape_1(n * (int64_t)sizeof(uint16_t));
    fl_value like = {.name = "float16",
                     .kind = FL_VALUE_PERSISTENT,
                     .dtype = FLEET_UINT8,
                     .shape = shape,
                     .pointer = g->gradient ? g->gradient + offset : NULL,
                     .root = -1,
                     .ld = 1};

    return g->gradient ? fl_value_like(l, &like)
                       : fl_temp(l, like.name, like.dtype, &shape);
}

void fl_emit_fp16_all_reduce(fl_lowering *l, const fl_dense *d, int64_t offset,
                             int64_t n)
{
    const half_config c = {l->plan->store, d->flat, offset, fl_is_scaled(l)};
    int half = half_value(l, d->flat, offset, n);
    int gradient = fl_stretch(l, d->gradient, "bucket", offset, n);

    l->phase = FL_REDUCE_BEGIN;
    FL_EMIT(l, &kernel_pack, NULL, NULL, FL_R(l->plan->update), FL_R(gradient),
            FL_W(half));
    fl_emit_all_reduce_async(l, half, FL_WIRE_F16);
    FL_EMIT(l, &kernel_unpack, NULL, fl_config(l, &c, sizeof c),
            FL_R(l->plan->update), FL_W(gradient), FL_R(half));
}
