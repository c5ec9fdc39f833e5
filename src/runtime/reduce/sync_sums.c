/* sync_sums.c - a step of the engine comm in the middle of forward or
 * backward. */
#include "runtime/reduce/sync_sums.h"

#include <string.h>

#include "runtime/plan/agree.h"
#include "runtime/reduce/all_reduce_steps.h"

enum { THE_UPDATE, DATA };

typedef struct sum_config {
    const fl_store *store;
    fl_wire_type type;
} sum_config;

/* An object has bytes, another value numbers. */
static fleet_status sum_run(const fl_instance *in, const fl_range *r)
{
    const sum_config *c = in->step->config;
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const fl_arg *a = &in->arg[DATA];
    size_t bytes = (size_t)(a->rows * a->cols) * fleet_dtype_size(a->dtype);
    size_t size = c->type == FL_WIRE_F64 ? sizeof(double) : sizeof(float);
    fl_comm *p = c->store->agree->comm;
    void *x = fl_ptr(in, DATA);

    (void)r;
    if (now->joins)
        memset(x, 0, bytes);
    return p->methods->all_reduce(p, FL_ALL_SUM, c->type, x, x,
                                  (int64_t)(bytes / size), NULL);
}

static const fl_kernel kernel_sum = {
    .name = "sync.sum",
    .split = FL_SPLIT_PARTS,
    .n_part = 1,
    .run = sum_run,
    .meets = true,
};

bool fl_has_sync_sums(const fl_lowering *l)
{
    return l->program->training.sync_batch_norm && l->plan->training &&
           l->plan->store->agree;
}

/* The works give all steps that meet other ranks one order. */
void fl_emit_sync_sum(fl_lowering *l, int value, fl_wire_type type)
{
    const sum_config c = {l->plan->store, type};

    l->plan->syncs = true;
    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_sum, NULL, fl_config(l, &c, sizeof c),
            FL_R(fl_update_value(l)), FL_RW(value), FL_RW(fl_works_value(l)));
    l->engine = FL_ENGINE_COMPUTE;
}
