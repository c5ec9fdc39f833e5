/* gradients.c - the loss's gradient, sums of contributions, and whether this
 * process or a server uses a parameter's gradient. */
#include "runtime/plan/gradients.h"

#include "runtime/plan/remote.h"
#include "runtime/simd/simd.h"

/* --- adding contributions ------------------------------------------------ */

static fleet_status add_rows_run(const fl_instance *in, const fl_range *r)
{
    float *total = fl_rows_f32(in, 0, r);
    const float *part = fl_rows_f32(in, 1, r);

    fl_simd_best()->add(total, total, part, fl_count(in, 0, r));
    return FLEET_OK;
}

const fl_kernel fl_kernel_add_rows = {
    .name = "gradient.add",
    .split = FL_SPLIT_ROWS,
    .run = add_rows_run,
};

fleet_status fl_split_blocks(fl_instance *in)
{
    int64_t n = in->arg[0].rows * in->arg[0].cols;

    in->n_part = (int)((n + FL_BLOCK - 1) / FL_BLOCK);
    return FLEET_OK;
}

float *fl_block_of(const fl_instance *in, int i, const fl_range *r, int64_t *n)
{
    int64_t left = in->arg[i].rows * in->arg[i].cols - r->begin * FL_BLOCK;

    *n = left < FL_BLOCK ? left : FL_BLOCK;
    return (float *)fl_ptr(in, i) + r->begin * FL_BLOCK;
}

static fleet_status add_parts_run(const fl_instance *in, const fl_range *r)
{
    int64_t n;
    float *total = fl_block_of(in, 0, r, &n);

    fl_simd_best()->add(total, total, fl_block_of(in, 1, r, &n), n);
    return FLEET_OK;
}

const fl_kernel fl_kernel_add_parts = {
    .name = "gradient.add",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_blocks,
    .run = add_parts_run,
};

/* --- the loss's gradient ------------------------------------------------- */

bool fl_is_scaled(const fl_lowering *l)
{
    return l->plan->training && l->program->training.amp.type == FLEET_FLOAT16;
}

int fl_scaling_value(fl_lowering *l)
{
    fl_plan *plan = l->plan;
    fl_value like = {.name = "loss scaling",
                     .kind = FL_VALUE_PARAM,
                     .dtype = FLEET_UINT8,
                     .shape = fl_shape_1(sizeof(fl_scaling)),
                     .root = -1,
                     .object = sizeof(fl_scaling),
                     .pointer = &plan->store->scaling,
                     .ld = 1};

    if (plan->scaling < 0)
        plan->scaling = fl_value_like(l, &like);
    return plan->scaling;
}

static fleet_status scale_run(const fl_instance *in, const fl_range *r)
{
    (void)r;
    *(float *)fl_ptr(in, 0) = ((const fl_scaling *)fl_ptr(in, 1))->scale;
    return FLEET_OK;
}

static const fl_kernel kernel_scale = {
    .name = "loss.scale",
    .split = FL_SPLIT_PARTS,
    .run = scale_run,
};

int fl_loss_gradient(fl_lowering *l, const fl_node *n)
{
    const fl_shape one = fl_shape_1(1);
    fl_value constant = {.name = "loss gradient",
                         .kind = FL_VALUE_PERSISTENT,
                         .dtype = FLEET_FLOAT32,
                         .shape = one,
                         .root = -1,
                         .first = 1.0f,
                         .ld = 1};
    int g;

    if (!fl_is_scaled(l))
        return fl_value_like(l, &constant);
    g = fl_temp(l, constant.name, FLEET_FLOAT32, &one);
    FL_EMIT(l, &kernel_scale, n, NULL, FL_W(g), FL_R(fl_scaling_value(l)));
    return g;
}

/* --- parameters ---------------------------------------------------------- */

static bool gets_gradient(const fl_lowering *l, const fl_param *p)
{
    const fleet_var *v = fleet_program_var(l->program, p->name);

    return v && v->kind == FL_VAR_PARAM && l->gradient[v->id] >= 0;
}

bool fl_is_pushed(const fl_lowering *l, const fl_param *p)
{
    const fl_store *s = l->plan->store;

    return s->remote && fl_param_is_remote(s, p) && gets_gradient(l, p);
}

bool fl_is_updated_locally(const fl_lowering *l, const fl_param *p)
{
    return gets_gradient(l, p) && !fl_is_pushed(l, p);
}
