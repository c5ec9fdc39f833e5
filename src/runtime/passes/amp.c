/* amp.c - mixed precision: in plans that train, products take bfloat16, or on
 * a GPU float16.
 *
 * Which operands of a step may be narrow, and which shall be, its kernel says
 * (kernel.h). A value that only such steps touch is narrow from the start. A
 * value that other steps touch as well stays float, as do weights and feeds,
 * and a step "cast" makes the copy that products read, once for all products.
 * Weights are cast in every iteration: whether an update, a load or a server
 * has changed them, the copy is of this iteration. Steps that a guard keeps on
 * the CPU take no float16.
 */
#include "base/memory.h"
#include "base/text.h"
#include "runtime/passes/place_steps.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/gradients.h"
#include "runtime/simd/simd.h"

/* --- cast: out <- x ------------------------------------------------------ */

static fleet_status cast_rows_run(const fl_instance *in, const fl_range *r)
{
    const fl_arg *x = &in->arg[1];
    const float *from = fl_rows_f32(in, 1, r);
    uint16_t *to = fl_rows_any(in, 0, r);
    int64_t n = (r->end - r->begin) * x->factor;

    if (x->ld == x->cols)
        fl_simd_best()->cast(to, from, n * x->cols);
    for (int64_t i = 0; x->ld != x->cols && i < n; i++)
        fl_simd_best()->cast(to + i * in->arg[0].ld, from + i * x->ld, x->cols);
    return FLEET_OK;
}

static const fl_kernel kernel_cast_rows = {
    .name = "cast",
    .split = FL_SPLIT_ROWS,
    .run = cast_rows_run,
};

static fleet_status cast_run(const fl_instance *in, const fl_range *r)
{
    int64_t n;
    const float *from = fl_block_of(in, 1, r, &n);

    fl_simd_best()->cast((uint16_t *)fl_ptr(in, 0) + r->begin * FL_BLOCK, from,
                         n);
    return FLEET_OK;
}

static const fl_kernel kernel_cast = {
    .name = "cast",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_blocks,
    .run = cast_run,
};

/* --- which values are narrow --------------------------------------------- */

typedef struct amp {
    fl_lowering *l;
    fleet_dtype to;
    bool *takes; /* by value: all that touch it take narrow ones */
    bool *wants; /* by value: some want it */
    int *copy;   /* by value: the narrow one, as it is now; -1: none */
    size_t n_value;
} amp;

static bool has_word(const char *words, const char *word)
{
    return fl_name_list_has(words, word, strlen(word));
}

/* Is the node's work asked for in float? */
static bool is_wide(const fl_training *t, const fl_node *n)
{
    if (has_word(t->amp.wide_ops, n->op->name))
        return true;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && has_word(t->amp.wide_vars, n->in[i]->name))
            return true;
    for (int i = 0; i < n->op->n_out; i++)
        if (has_word(t->amp.wide_vars, n->out[i]->name))
            return true;
    return false;
}

/* Does the step take what its kernel says? */
static bool takes_part(const amp *a, const fl_step *s)
{
    if (a->to == FLEET_FLOAT16 && !fl_is_for_gpu(a->l->plan, s))
        return false;
    return !s->node || !is_wide(&a->l->program->training, s->node);
}

static bool has_bit(unsigned bits, int i)
{
    return i < 32 && (bits >> i & 1);
}

static bool is_own(const fl_plan *plan, size_t i)
{
    const fl_value *v = &plan->value[i];

    return v->kind == FL_VALUE_TEMP && v->root == (int)i && !v->fetched &&
           (int)i != plan->loss && v->dtype == FLEET_FLOAT32;
}

static void keep_float32(amp *a, int value)
{
    if (value >= 0)
        a->takes[fl_plan_root(a->l->plan, value)] = false;
}

/* Views, and what steps of later passes read. */
static void exclude_shared(amp *a)
{
    const fl_plan *plan = a->l->plan;

    for (size_t i = 0; i < a->n_value; i++)
        if (plan->value[i].root != (int)i)
            keep_float32(a, (int)i);
    for (size_t i = 0; i < plan->n_sparse; i++)
        for (int j = 0; j < plan->sparse[i].n_gradient; j++)
            keep_float32(a, plan->sparse[i].gradient[j].value);
}

static void narrow_values(amp *a)
{
    fl_plan *plan = a->l->plan;

    for (size_t i = 0; i < a->n_value; i++)
        a->takes[i] = is_own(plan, i);
    exclude_shared(a);
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand; j++) {
            if (!takes_part(a, s) || !has_bit(s->kernel->takes_half, j))
                keep_float32(a, s->operand[j].value);
            else if (has_bit(s->kernel->wants_half, j))
                a->wants[s->operand[j].value] = true;
        }
    }
    for (size_t i = 0; i < a->n_value; i++)
        if (a->takes[i] && a->wants[i])
            plan->value[i].dtype = a->to;
}

/* --- copies of values that stay as they are ------------------------------ */

static int copy_of(amp *a, const fl_step *reader, int value)
{
    fl_lowering *l = a->l;
    fl_value from = l->plan->value[value];
    bool batched = fl_shape_batched(&from.shape);

    if (from.dtype == a->to)
        return value;
    if (a->copy[value] < 0) {
        int to = fl_temp(l, from.name, a->to, &from.shape);

        l->phase = reader->phase;
        FL_EMIT(l, batched ? &kernel_cast_rows : &kernel_cast, reader->node,
                NULL, FL_W(to), FL_R(value));
        a->copy[value] = to;
    }
    return a->copy[value];
}

static fleet_status let_read_copies(amp *a, fl_step *s)
{
    fl_operand *o = fl_arena_copy(&a->l->plan->arena, s->operand,
                                  (size_t)s->n_operand * sizeof *o);

    if (!o)
        return FLEET_ENOMEM;
    for (int i = 0; i < s->n_operand; i++)
        if (has_bit(s->kernel->wants_half, i))
            o[i].value = copy_of(a, s, o[i].value);
    s->operand = o;
    return a->l->status;
}

/* What a step writes has no copy any more. */
static void forget_copies(amp *a, const fl_step *s)
{
    const fl_plan *plan = a->l->plan;

    for (int i = 0; i < s->n_operand; i++) {
        const fl_operand *o = &s->operand[i];

        if (o->value < 0 || o->mode == FL_READ)
            continue;
        for (size_t v = 0; v < a->n_value; v++)
            if (plan->value[v].root == fl_plan_root(plan, o->value))
                a->copy[v] = -1;
    }
}

/* The steps again, with the steps between them that make copies. */
static fleet_status insert_copies(amp *a, bool *applied)
{
    fl_plan *plan = a->l->plan;
    fl_step **step = plan->step;
    size_t n = plan->n_step;
    fleet_status status = FLEET_OK;

    plan->step = NULL;
    plan->n_step = plan->step_capacity = 0;
    for (size_t i = 0; i < n && status == FLEET_OK; i++) {
        if (step[i]->kernel->wants_half && takes_part(a, step[i])) {
            status = let_read_copies(a, step[i]);
            *applied = true;
        }
        if (status == FLEET_OK)
            status = fl_plan_add_step(plan, step[i]);
        forget_copies(a, step[i]);
    }
    fl_free(step);
    return status;
}

/* --- what cannot be ------------------------------------------------------ */

static bool has_steps_there(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (fl_is_for_gpu(plan, plan->step[i]))
            return true;
    return false;
}

static fleet_status check_place(const fl_plan *plan, fleet_dtype to)
{
    const fl_gpu *gpu = plan->place->gpu;

    if (to == FLEET_FLOAT16 && !has_steps_there(plan))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.amp: float16 is not there on a CPU; "
                       "fleet_program_place() puts a program on a GPU, and "
                       "strategy.amp_configs.use_bf16 = 1 asks for bfloat16");
    if (gpu && gpu->options.strict_fp32)
        return fl_fail(FLEET_EINVAL,
                       "gpu:%d: strict_fp32 asks for products of float32, and "
                       "strategy.amp for %s",
                       gpu->d->ordinal, fleet_dtype_name(to));
    return FLEET_OK;
}

fleet_status fl_pass_amp(fl_lowering *l, bool *applied)
{
    size_t n = l->plan->n_value;
    amp a = {.l = l, .to = l->program->training.amp.type, .n_value = n};
    fleet_status status = FLEET_ENOMEM;

    if (!l->plan->training || !a.to)
        return FLEET_OK;
    FL_TRY(check_place(l->plan, a.to));
    a.takes = fl_alloc(n);
    a.wants = fl_alloc(n);
    a.copy = fl_alloc_array(n, sizeof *a.copy);
    if (a.takes && a.wants && a.copy) {
        for (size_t i = 0; i < n; i++)
            a.copy[i] = -1;
        narrow_values(&a);
        status = insert_copies(&a, applied);
    }
    fl_free(a.takes);
    fl_free(a.wants);
    fl_free(a.copy);
    return status;
}
