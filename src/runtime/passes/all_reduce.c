/* all_reduce.c - what ranks of a collective job do together in an update: add up
 * their gradients.
 *
 * A rank whose pass is over goes on with the updates of the others, as its
 * weights are to be theirs: it then gives gradients of -0.0, the number that
 * changes no sum, not even a zero's sign.
 */
#include <string.h>

#include "base/error.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/pass.h"
#include "runtime/passes/all_reduce_gpu.h"
#include "runtime/device/trace.h"
#include "runtime/passes/update.h"

/* --- all_reduce ---------------------------------------------------------- */

enum { THE_UPDATE, DATA, WORKS };

typedef struct reduce_config {
    const fl_store *store;
    fl_gpu *gpu; /* in whose memory; NULL: in the host's */
    fl_wire_type type;
    bool dgc;
    int number; /* of those that leave */
} reduce_config;

static void fill_f32(void *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = -0.0f;
}

static void fill_f16(void *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)data)[i] = 0x8000;
}

const fl_agree *fl_all_reduce_agree(const fl_instance *in)
{
    return ((const reduce_config *)in->step->config)->store->agree;
}

static fleet_status sum_up_data(const fl_instance *in, fl_comm *p,
                                fl_work **work)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const reduce_config *c = in->step->config;
    bool half = c->type == FL_WIRE_F16;
    int64_t n = in->arg[DATA].rows * in->arg[DATA].cols / (half ? 2 : 1);
    void *data = fl_ptr(in, DATA);
    const fl_reduced there = {data, n, c->type, now->joins};

    if (c->gpu)
        FL_TRY(fl_reduced_follows(&there, c->gpu, p));
    else if (now->joins)
        (half ? fill_f16 : fill_f32)(data, n);
    return p->methods->all_reduce(p, FL_ALL_SUM, c->type, data, data, n, work);
}

fleet_status fl_all_reduce_by(const fl_instance *in, fl_comm *p)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const reduce_config *c = in->step->config;

    if (now->alone || (c->dgc && now->density > 0))
        return FLEET_OK;
    return sum_up_data(in, p, NULL);
}

static fleet_status reduce_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    return fl_all_reduce_by(in, fl_all_reduce_agree(in)->comm);
}

const fl_kernel fl_kernel_all_reduce = {
    .name = "all_reduce",
    .split = FL_SPLIT_PARTS,
    .run = reduce_run,
    .reduces = 1u << DATA,
};

void fl_emit_all_reduce(fl_lowering *l, int value, fl_wire_type type, bool dgc)
{
    const reduce_config c = {.store = l->plan->store,
                             .gpu = fl_comm_gpu_of_plan(l->plan),
                             .type = type,
                             .dgc = dgc};

    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &fl_kernel_all_reduce, NULL, fl_config(l, &c, sizeof c),
            FL_R(l->plan->update), FL_RW(value));
    l->engine = FL_ENGINE_COMPUTE;
}

/* --- begun and waited for ------------------------------------------------ */

static fleet_status begin_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const reduce_config *c = in->step->config;
    fl_work **work = (fl_work **)fl_ptr(in, WORKS) + c->number;

    (void)r;
    if (now->alone || !now->leaves)
        return FLEET_OK;
    fl_trace_begin(c->store->context->trace, "all_reduce", c->number,
                   in->arg[DATA].rows * in->arg[DATA].cols *
                       (int64_t)fleet_dtype_size(in->arg[DATA].dtype));
    return sum_up_data(in, c->store->agree->comm, work);
}

static fleet_status wait_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const reduce_config *c = in->step->config;
    fl_comm *p = c->store->agree->comm;
    fl_work **work = (fl_work **)fl_ptr(in, WORKS) + c->number;

    (void)r;
    if (now->alone)
        return FLEET_OK;
    FL_TRY(p->methods->wait(p, work));
    fl_trace_end(c->store->context->trace, "all_reduce", c->number);
    return FLEET_OK;
}

static const fl_kernel kernel_begin = {
    .name = "all_reduce.begin",
    .split = FL_SPLIT_PARTS,
    .run = begin_run,
    .reduces = 1u << DATA,
};

static const fl_kernel kernel_wait = {
    .name = "all_reduce.wait",
    .split = FL_SPLIT_PARTS,
    .run = wait_run,
    .reduces = 1u << DATA,
};

/* All steps change the works: so they have one order, on all ranks. */
void fl_emit_leave(fl_lowering *l, int value, fl_wire_type type)
{
    fl_plan *plan = l->plan;
    const reduce_config c = {.store = plan->store,
                             .gpu = fl_comm_gpu_of_plan(plan),
                             .type = type,
                             .number = plan->n_work++};
    const void *config = fl_config(l, &c, sizeof c);

    l->engine = FL_ENGINE_COMM;
    l->phase = FL_REDUCE_BEGIN;
    FL_EMIT(l, &kernel_begin, NULL, config, FL_R(plan->update), FL_RW(value),
            FL_RW(plan->works));
    l->phase = FL_UPDATE;
    FL_EMIT(l, &kernel_wait, NULL, config, FL_R(plan->update), FL_RW(value),
            FL_RW(plan->works));
    l->engine = FL_ENGINE_COMPUTE;
}

static bool is_dgc(const fl_lowering *l, const fl_dense *d, int64_t offset)
{
    const fl_map *params = &l->plan->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && p->offset == offset)
            return fl_dgc_takes(l, p);
    }
    return false;
}

static void emit_reduce(fl_lowering *l, const fl_dense *d, int64_t offset,
                        int64_t n)
{
    const fl_training *t = &l->program->training;
    bool dgc = is_dgc(l, d, offset);
    int data;

    if (t->half && !dgc) {
        fl_emit_half_all_reduce(l, d, offset, n);
        return;
    }
    data = fl_stretch(l, d->gradient, "bucket", offset, n);
    if (dgc || t->group > 1) /* waits at every level */
        fl_emit_all_reduce(l, data, FL_WIRE_F32, dgc);
    else
        fl_emit_leave(l, data, FL_WIRE_F32);
    if (dgc)
        fl_emit_dgc(l, d, offset, n);
}

/* Neighbours in a group that are reduced in one call: whole parameters, in the
 * order in which their gradients are ready. */
typedef struct bucket {
    int64_t offset, n;
    bool dgc; /* of one parameter */
    bool last;
} bucket;

/* The last one is for the gradients that come last, and is waited for. */
static bool is_full(const fl_lowering *l, const bucket *b, int64_t left)
{
    const fl_training *t = &l->program->training;

    return b->dgc || b->n >= t->bucket || (!b->last && left <= t->last_bucket);
}

/* But for the padding between the two. */
static bool follows(const bucket *b, const fl_param *p)
{
    return p->offset - (b->offset + b->n) < 16;
}

static int64_t floats_of(const fl_lowering *l, const fl_dense *d)
{
    const fl_map *params = &l->plan->store->params;
    int64_t n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && fl_is_updated_here(l, p))
            n += p->n;
    }
    return n;
}

void fl_each_bucket(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit)
{
    const fl_map *params = &l->plan->store->params;
    int64_t left = floats_of(l, d);
    bucket b = {0};

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat != d->flat || !fl_is_updated_here(l, p))
            continue;
        if (b.n > 0 &&
            (is_full(l, &b, left) || !follows(&b, p) || fl_dgc_takes(l, p))) {
            emit(l, d, b.offset, b.n);
            b.n = 0;
        }
        if (b.n == 0)
            b = (bucket){.offset = p->offset,
                         .dgc = fl_dgc_takes(l, p),
                         .last = left <= l->program->training.last_bucket};
        b.n = p->offset + p->n - b.offset;
        left -= p->n;
    }
    if (b.n > 0)
        emit(l, d, b.offset, b.n);
}

void fl_each_pushed(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit)
{
    const fl_map *params = &l->plan->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && fl_is_pushed(l, p))
            emit(l, d, p->offset, p->n);
    }
}

/* Sums of a merge group are moved to where ranks reduce without a copy. */
static fleet_status move_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, 0);

    (void)r;
    if (now->leaves)
        memcpy(fl_ptr(in, 1), fl_ptr(in, 2),
               (size_t)(in->arg[1].rows * in->arg[1].cols) * sizeof(float));
    return FLEET_OK;
}

static const fl_kernel kernel_move = {
    .name = "merge.move",
    .split = FL_SPLIT_PARTS,
    .run = move_run,
};

static void emit_move(fl_lowering *l, const fl_dense *d, int64_t offset,
                      int64_t n)
{
    FL_EMIT(l, &kernel_move, NULL, NULL, FL_R(l->plan->update),
            FL_W(fl_stretch(l, d->gradient, "bucket", offset, n)),
            FL_R(fl_stretch(l, d->one, "merged", offset, n)));
}

static void reduce_group(fl_lowering *l, fl_dense *d)
{
    const fl_training *t = &l->program->training;

    if (t->merge_steps > 1 && d->flat->gradient && !t->half && !t->dgc.on &&
        t->local.steps == 0) {
        d->one = d->gradient;
        d->gradient = fl_flat_gradient(l, d->flat, "gradients", true);
        l->phase = FL_REDUCE_BEGIN;
        fl_each_bucket(l, d, emit_move);
        fl_each_pushed(l, d, emit_move);
    }
    l->phase = FL_UPDATE;
    fl_each_bucket(l, d, emit_reduce);
}

/* Steps since `first` that leave come before those that wait. */
static void put_leaving_first(fl_plan *plan, size_t first)
{
    for (size_t i = first; i < plan->n_step; i++) {
        fl_step *s = plan->step[i];

        if (s->phase != FL_REDUCE_BEGIN)
            continue;
        memmove(plan->step + first + 1, plan->step + first,
                (i - first) * sizeof *plan->step);
        plan->step[first++] = s;
    }
}

fleet_status fl_pass_all_reduce(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    size_t first = plan->n_step;

    if (!plan->training || !plan->store->agree)
        return FLEET_OK;
    if (l->program->training.dgc.on && plan->store->optimizer->clip_norm > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.dgc: no rank knows the norm of all gradients "
                       "for the clip by global norm");
    fl_update_value(l);
    plan->works =
        fl_object(l, "works", (plan->store->params.n + 1) * sizeof(fl_work *));
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            reduce_group(l, &plan->dense[i]);
            *applied = true;
        }
    put_leaving_first(plan, first);
    return l->status;
}
