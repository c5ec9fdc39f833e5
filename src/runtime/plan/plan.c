/* plan.c - values and steps; see plan.h. */
#include "runtime/plan/plan.h"

#include "base/memory.h"
#include "runtime/device/gpu.h"

int64_t fl_slice_rows(int64_t batch)
{
    enum { GRAIN = 16, SMALL = 64, LARGE = 128 };
    int64_t half = (batch + 1) / 2;

    if (batch <= GRAIN)
        return batch;
    if (half <= SMALL)
        return (half + GRAIN - 1) / GRAIN * GRAIN;
    return batch <= 8 * SMALL ? SMALL : LARGE;
}

int fl_plan_value(fl_plan *plan, const fl_value *like)
{
    fl_value *v;

    if (fl_grow(&plan->value, &plan->value_capacity, plan->n_value + 1,
                sizeof *v) != FLEET_OK)
        return -1;
    v = &plan->value[plan->n_value];
    *v = *like;
    if (v->root < 0)
        v->root = (int)plan->n_value;
    return (int)plan->n_value++;
}

int fl_plan_root(const fl_plan *plan, int value)
{
    return plan->value[value].root;
}

int64_t fl_value_rows(const fl_plan *plan, const fl_value *v)
{
    int64_t padded = (plan->batch + plan->slice - 1) / plan->slice;

    return fl_shape_rows(&v->shape, padded * plan->slice);
}

/* More than there can be, for what does not fit in a size: no sum of a plan's
 * values overflows, and the allocation fails. */
size_t fl_value_bytes(const fl_plan *plan, const fl_value *v)
{
    const size_t most = (size_t)1 << 50;
    size_t bytes;

    if (v->object)
        return v->object;
    if (__builtin_mul_overflow(fl_value_rows(plan, v), v->ld, &bytes) ||
        __builtin_mul_overflow(bytes, fleet_dtype_size(v->dtype), &bytes) ||
        bytes > most)
        return most;
    return bytes;
}

fleet_status fl_plan_add_step(fl_plan *plan, fl_step *s)
{
    FL_TRY(fl_grow(&plan->step, &plan->step_capacity, plan->n_step + 1,
                   sizeof *plan->step));
    plan->step[plan->n_step++] = s;
    return FLEET_OK;
}

fleet_status fl_plan_step(fl_plan *plan, const fl_step *like,
                          const fl_operand *operand, int n_operand)
{
    fl_step *s = fl_arena_copy(&plan->arena, like, sizeof *like);

    if (s)
        s->operand = fl_arena_copy(&plan->arena, operand,
                                   (size_t)n_operand * sizeof *operand);
    if (!s || !s->operand)
        return FLEET_ENOMEM;
    s->n_operand = n_operand;
    return fl_plan_add_step(plan, s);
}

fleet_dtype fl_step_dtype(const fl_plan *plan, const fl_step *s)
{
    for (int i = 0; i < s->n_operand; i++) {
        fleet_dtype dtype = s->operand[i].value < 0
                                ? FLEET_FLOAT32
                                : plan->value[s->operand[i].value].dtype;

        if (dtype == FLEET_BFLOAT16 || dtype == FLEET_FLOAT16)
            return dtype;
    }
    return FLEET_FLOAT32;
}

const fl_device_kernel *fl_step_on_gpu(const fl_plan *plan, const fl_step *s,
                                       const fl_gpu *gpu)
{
    if (s->kernel->device)
        return s->kernel->device;
    return gpu->m->kernel(gpu->d, s->kernel->name, fl_step_dtype(plan, s));
}

bool fl_step_changes_store(const fl_plan *plan, const fl_step *s)
{
    for (int i = 0; i < s->n_operand; i++) {
        const fl_operand *o = &s->operand[i];

        if (o->value < 0 || o->mode == FL_READ)
            continue;
        switch (plan->value[fl_plan_root(plan, o->value)].kind) {
        case FL_VALUE_PARAM:
        case FL_VALUE_TABLE:
        case FL_VALUE_STATE:
            return true;
        default:
            break;
        }
    }
    return false;
}

void fl_plan_destroy(fl_plan *plan)
{
    if (!plan)
        return;
    fl_free(plan->value);
    fl_free(plan->step);
    fl_free(plan->region);
    fl_free(plan->dense);
    fl_free(plan->sparse);
    fl_text_done(&plan->passes);
    fl_arena_done(&plan->arena);
    fl_free(plan);
}
