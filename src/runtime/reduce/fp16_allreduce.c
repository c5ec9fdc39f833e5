/* fp16_allreduce.c - gradients that travel as float16: half as many bytes, and
 * 11 bits of each number. What a rank has is rounded, and so is their sum.
 */
#include "runtime/reduce/fp16_allreduce.h"

#include "base/error.h"
#include "runtime/plan/gradients.h"
#include "runtime/reduce/all_reduce_steps.h"

/* Where a bucket's sum is, to name whose gradient it is. */
typedef struct half_config {
    const fl_store *store;
    const fl_flat *group;
    int64_t offset;
    bool scaled; /* what is not finite skips the update */
} half_config;

enum { THE_UPDATE, GRADIENT, HALF };

static int64_t length(const fl_instance *in)
{
    return in->arg[GRADIENT].rows * in->arg[GRADIENT].cols;
}

static fleet_status by_blocks(fl_instance *in)
{
    in->n_part = (int)((length(in) + FL_BLOCK - 1) / FL_BLOCK);
    return FLEET_OK;
}

/* The block's first element; how many it has in *n. */
static int64_t block_of(const fl_instance *in, const fl_range *r, int64_t *n)
{
    int64_t first = r->begin * FL_BLOCK, left = length(in) - first;

    *n = left < FL_BLOCK ? left : FL_BLOCK;
    return first;
}

static const fl_update_now *now_of(const fl_instance *in)
{
    return fl_ptr(in, THE_UPDATE);
}

static fleet_status pack_run(const fl_instance *in, const fl_range *r)
{
    int64_t n, first = block_of(in, r, &n);

    if (!now_of(in)->alone && now_of(in)->leaves)
        fl_simd_best()->to_half((uint16_t *)fl_ptr(in, HALF) + first,
                                (const float *)fl_ptr(in, GRADIENT) + first, n);
    return FLEET_OK;
}

static const fl_kernel kernel_pack = {
    .name = "half.pack",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
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

static fleet_status check(const half_config *c, const uint16_t *h,
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
    int64_t n, first = block_of(in, r, &n);
    const uint16_t *h = (const uint16_t *)fl_ptr(in, HALF) + first;
    const half_config *c = in->step->config;

    if (now_of(in)->alone)
        return FLEET_OK;
    if (!c->scaled)
        FL_TRY(check(c, h, first, n));
    fl_simd_best()->from_half((float *)fl_ptr(in, GRADIENT) + first, h, n);
    return FLEET_OK;
}

static const fl_kernel kernel_unpack = {
    .name = "half.unpack",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = unpack_run,
    .on_host = true,
};

/* Where ranks reduce without a copy, if there is such a place. */
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

    return g->gradient ? fl_plan_value(l->plan, &like)
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
