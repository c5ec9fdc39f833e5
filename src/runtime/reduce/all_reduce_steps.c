/* all_reduce_steps.c - the steps in which ranks add up what their plans hold in
 * the same place: at once, or begun early and waited for.
 *
 * A rank that has joined, as its pass is over, takes part in the updates of the
 * other ranks, since its weights are to be the same as theirs: it gives
 * gradients of -0.0, the number that changes no sum, not even a zero's sign.
 */
#include "runtime/reduce/all_reduce_steps.h"

#include "base/error.h"
#include "runtime/device/trace.h"
#include "runtime/reduce/all_reduce_gpu.h"

int fl_works_value(fl_lowering *l)
{
    fl_plan *plan = l->plan;

    if (plan->works < 0)
        plan->works = fl_object(
            l, "works", (plan->store->params.n + 1) * sizeof(fl_work *));
    return plan->works;
}

/* --- all_reduce ---------------------------------------------------------- */

enum { THE_UPDATE, DATA, WORKS };

typedef struct reduce_config {
    const fl_store *store;
    fl_gpu *gpu; /* in whose memory; NULL: in the host's */
    fl_wire_type type;
    bool dgc;
    int number; /* which work it is, if it is begun early */
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
    const fl_reduced on_gpu = {data, n, c->type, now->joins};

    if (c->gpu)
        FL_TRY(fl_reduced_follows(&on_gpu, c->gpu, p));
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

/* --- all_reduce.begin, all_reduce.wait ----------------------------------- */

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
void fl_emit_all_reduce_async(fl_lowering *l, int value, fl_wire_type type)
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

/* --- share.squares ------------------------------------------------------- */

typedef struct squares {
    const fl_store *store;
    int begin, end; /* this rank's */
} squares;

/* The sum of one number and zeros is that number, in any order. */
static fleet_status squares_run(const fl_instance *in, const fl_range *r)
{
    const squares *c = in->step->config;
    fl_comm *p = c->store->agree->comm;
    int64_t n = in->arg[0].rows * in->arg[0].cols / (int64_t)sizeof(double);
    double *x = fl_ptr(in, 0);

    (void)r;
    for (int64_t i = 0; i < n; i++)
        if (i < c->begin || i >= c->end)
            x[i] = 0;
    return p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F64, x, x, n, NULL);
}

static const fl_kernel kernel_squares = {
    .name = "share.squares",
    .split = FL_SPLIT_PARTS,
    .run = squares_run,
};

void fl_emit_share_squares(fl_lowering *l, int value, int begin, int end)
{
    const squares c = {l->plan->store, begin, end};

    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_squares, NULL, fl_config(l, &c, sizeof c), FL_RW(value));
    l->engine = FL_ENGINE_COMPUTE;
}

/* --- share.norms ---------------------------------------------------------- */

enum { MINE, WHOLE };

static fleet_status norms_run(const fl_instance *in, const fl_range *r)
{
    const squares *c = in->step->config;
    fl_comm *p = c->store->agree->comm;

    (void)r;
    return p->methods->all_reduce(
        p, FL_ALL_SUM, FL_WIRE_F64, fl_ptr(in, MINE), fl_ptr(in, WHOLE),
        in->arg[MINE].rows * in->arg[MINE].cols / (int64_t)sizeof(double),
        NULL);
}

static const fl_kernel kernel_norms = {
    .name = "share.norms",
    .split = FL_SPLIT_PARTS,
    .run = norms_run,
};

void fl_emit_share_norms(fl_lowering *l, int mine, int whole)
{
    const squares c = {.store = l->plan->store};

    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_norms, NULL, fl_config(l, &c, sizeof c), FL_R(mine),
            FL_W(whole));
    l->engine = FL_ENGINE_COMPUTE;
}
