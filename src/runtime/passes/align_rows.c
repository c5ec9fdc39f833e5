/* align_rows.c - pass align_rows: rows of temporaries that a GPU multiplies
 * begin at multiples of 16 bytes, without which cuBLASLt's kernels for tensor
 * cores take no operand, or a slower way (docs.nvidia.com/cuda/cublas, "Tensor
 * Core Usage"). So the 429 numbers of 13 and 26 times 16 lie 432 apart. */
#include <string.h>

#include "base/memory.h"
#include "runtime/plan/pass.h"

enum { ALIGNMENT = 16 };

static bool is_product(const fl_step *s)
{
    static const char *const name[] = {"fc.forward", "fc.dx", "fc.dw"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(s->kernel->name, name[i]) == 0)
            return true;
    return false;
}

/* Pass amp's; an operator of that name makes float32. */
static bool is_to_half(const fl_plan *plan, const fl_step *s)
{
    return strcmp(s->kernel->name, "cast") == 0 &&
           plan->value[s->operand[0].value].dtype != FLEET_FLOAT32;
}

/* Does the step read and write rows that lie any distance apart? */
static bool knows_rows(const fl_plan *plan, const fl_step *s)
{
    static const char *const family[] = {"fc.forward", "fc.d", "concat",
                                         "lookup.", "copy.to."};

    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        if (strncmp(s->kernel->name, family[i], strlen(family[i])) == 0)
            return true;
    return is_to_half(plan, s);
}

/* A row of it is a sample's, and nothing but the plan knows where it lies. */
static bool may_be_aligned(const fl_value *v)
{
    return v->kind == FL_VALUE_TEMP && v->on_gpu && !v->object &&
           !v->positions && fl_shape_batched(&v->shape);
}

/* Let the roots of a step's operands be wanted, or not. */
static void mark(const fl_plan *plan, const fl_step *s, bool *wanted, bool as)
{
    for (int j = 0; j < s->n_operand; j++)
        if (s->operand[j].value >= 0)
            wanted[fl_plan_root(plan, s->operand[j].value)] = as;
}

static void find_operands(const fl_plan *plan, bool *wanted)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (is_product(plan->step[i]))
            mark(plan, plan->step[i], wanted, true);
}

/* What other steps touch stays as it is, since many have one row after the
 * other, and what is another value's memory, by other rows. */
static void keep_others(const fl_plan *plan, bool *wanted)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (!knows_rows(plan, plan->step[i]))
            mark(plan, plan->step[i], wanted, false);
    for (size_t i = 0; i < plan->n_value; i++) {
        int root = fl_plan_root(plan, (int)i);

        if (!may_be_aligned(&plan->value[root]) ||
            plan->value[i].ld != plan->value[root].ld)
            wanted[root] = false;
    }
}

static int64_t aligned_ld(const fl_value *v)
{
    int64_t each = ALIGNMENT / (int64_t)fleet_dtype_size(v->dtype);

    return (v->ld + each - 1) / each * each;
}

fleet_status fl_pass_align_rows(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    bool *wanted;

    if (!plan->place->gpu)
        return FLEET_OK;
    FL_TRY(FL_NEW(&wanted, plan->n_value));
    find_operands(plan, wanted);
    keep_others(plan, wanted);
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (!wanted[fl_plan_root(plan, (int)i)] || aligned_ld(v) == v->ld)
            continue;
        v->ld = aligned_ld(v);
        *applied = true;
    }
    fl_free(wanted);
    return FLEET_OK;
}
