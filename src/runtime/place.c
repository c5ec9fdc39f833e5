/* place.c - where values lie: one arena, in which values that are never alive
 * together share memory, and beside it what is kept. Inside a region slices run
 * ahead of each other, so a value is alive for whole regions. Best fit, the
 * largest first.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/pass.h"

typedef struct placed {
    int value;
    size_t size;
} placed;

static bool lies_in_arena(const fl_value *v)
{
    return v->kind == FL_VALUE_TEMP;
}

/* From the first region that touches a value to the last. */
static void find_lifetimes(fl_plan *plan)
{
    int last = (int)plan->n_region;

    for (size_t i = 0; i < plan->n_value; i++) {
        plan->value[i].begin = last;
        plan->value[i].end = -1;
    }
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand; j++) {
            fl_value *v;

            if (s->operand[j].value < 0)
                continue;
            v = &plan->value[fl_plan_root(plan, s->operand[j].value)];
            if (s->region < v->begin)
                v->begin = s->region;
            if (s->region > v->end)
                v->end = s->region;
            if (s->phase == FL_PULL) /* the next one's: beside what this
                                        iteration leaves */
                v->end = last;
        }
    }
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[fl_plan_root(plan, (int)i)];

        if (v->kind == FL_VALUE_KEPT)
            v->begin = 0;
        if (v->kind == FL_VALUE_KEPT || plan->value[i].fetched ||
            (int)i == plan->loss)
            v->end = last;
        v->zero_tail = v->zero_tail || plan->value[i].zero_tail;
    }
}

static bool meet(const fl_value *a, const fl_value *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* The lowest place that no living neighbour uses. */
static size_t find_place(const fl_plan *plan, const placed *all, size_t n,
                         const placed *one)
{
    size_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const fl_value *v = &plan->value[all[i].value];

            if (meet(v, &plan->value[one->value]) &&
                v->offset < at + one->size && at < v->offset + all[i].size) {
                at = v->offset + all[i].size;
                moved = true;
            }
        }
    }
    return at;
}

static size_t whole_lines(size_t size)
{
    return (size + FL_CACHE_LINE - 1) / FL_CACHE_LINE * FL_CACHE_LINE;
}

/* Kept values are found by their first values, too: always placed. */
static void place_kept(fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (v->root != (int)i || v->kind != FL_VALUE_KEPT || v->pointer)
            continue;
        size_t *bytes = v->ahead ? &plan->ahead_bytes : &plan->kept_bytes;

        v->offset = *bytes;
        *bytes += whole_lines(fl_value_bytes(plan, v));
    }
}

static int larger_first(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->value - y->value;
}

static void place_all(fl_plan *plan, placed *all, size_t n)
{
    if (n > 1)
        qsort(all, n, sizeof *all, larger_first);
    for (size_t i = 0; i < n; i++) {
        fl_value *v = &plan->value[all[i].value];

        v->offset = find_place(plan, all, i, &all[i]);
        if (v->offset + all[i].size > plan->arena_bytes)
            plan->arena_bytes = v->offset + all[i].size;
    }
}

fleet_status fl_pass_place_memory(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    placed *all = fl_alloc_array(plan->n_value, sizeof *all);
    size_t n = 0;

    if (!all)
        return FLEET_ENOMEM;
    *applied = true;
    find_lifetimes(plan);
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (v->root == (int)i && lies_in_arena(v) && v->end >= 0)
            all[n++] = (placed){(int)i, whole_lines(fl_value_bytes(plan, v))};
    }
    place_all(plan, all, n);
    place_kept(plan);
    fl_free(all);
    return FLEET_OK;
}
