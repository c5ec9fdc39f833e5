/* place_memory.c - pass place_memory: where values lie. One arena, in which
 * values that are never alive together share memory, and beside it what
 * persists from iteration to iteration; the same again on a GPU. Inside a
 * region some slices are further than other slices, so a value is alive for
 * whole regions. The largest value gets its place first.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/plan/pass.h"

typedef struct placed {
    int value;
    size_t size;
} placed;

/* Lifetimes are counted in regions on the host, and in steps on a GPU, where
 * each is done before the next one begins. */
static int last_of(const fl_plan *plan, const fl_value *v)
{
    return v->on_gpu ? (int)plan->n_step : (int)plan->n_region;
}

/* From the first region, or step, that touches a value to the last. */
static void find_lifetimes(fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        plan->value[i].begin = last_of(plan, &plan->value[i]);
        plan->value[i].end = -1;
    }
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand; j++) {
            fl_value *v;
            int now;

            if (s->operand[j].value < 0)
                continue;
            v = &plan->value[fl_plan_root(plan, s->operand[j].value)];
            now = v->on_gpu ? (int)i : s->region;
            if (now < v->begin)
                v->begin = now;
            if (now > v->end)
                v->end = now;
            if (s->phase == FL_PULL) /* the next one's: beside what this
                                        iteration leaves */
                v->end = last_of(plan, v);
        }
    }
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[fl_plan_root(plan, (int)i)];

        if (v->kind == FL_VALUE_PERSISTENT)
            v->begin = 0;
        if (v->kind == FL_VALUE_PERSISTENT || plan->value[i].fetched ||
            (int)i == plan->loss)
            v->end = last_of(plan, v);
        v->zero_tail = v->zero_tail || plan->value[i].zero_tail;
    }
}

/* The lowest place that no living neighbour uses. */
static size_t find_place(const fl_plan *plan, const placed *all, size_t n,
                         const placed *one)
{
    const fl_value *mine = &plan->value[one->value];
    size_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const fl_value *v = &plan->value[all[i].value];

            if (v->begin <= mine->end && mine->begin <= v->end &&
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

static size_t *persistent_bytes_of(fl_plan *plan, const fl_value *v)
{
    if (v->on_gpu)
        return v->per_slot ? &plan->gpu_slot_bytes
                           : &plan->gpu_persistent_bytes;
    return v->per_slot ? &plan->slot_bytes : &plan->persistent_bytes;
}

/* Also values that no step touches, which have a first value. */
static void place_persistent(fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (v->root != (int)i || v->kind != FL_VALUE_PERSISTENT || v->pointer ||
            v->positions)
            continue;
        size_t *bytes = persistent_bytes_of(plan, v);

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

/* The arena of the host or of the GPU, and its size. */
static void place_all(fl_plan *plan, placed *all, bool on_gpu, size_t *bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (v->root == (int)i && v->kind == FL_VALUE_TEMP &&
            v->on_gpu == on_gpu && !v->positions && v->end >= 0)
            all[n++] = (placed){(int)i, whole_lines(fl_value_bytes(plan, v))};
    }
    if (n > 1)
        qsort(all, n, sizeof *all, larger_first);
    for (size_t i = 0; i < n; i++) {
        fl_value *v = &plan->value[all[i].value];

        v->offset = find_place(plan, all, i, &all[i]);
        if (v->offset + all[i].size > *bytes)
            *bytes = v->offset + all[i].size;
    }
}

fleet_status fl_pass_place_memory(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;
    placed *all = fl_alloc_array(plan->n_value, sizeof *all);

    if (!all)
        return FLEET_ENOMEM;
    *applied = true;
    find_lifetimes(plan);
    place_all(plan, all, false, &plan->arena_bytes);
    place_all(plan, all, true, &plan->gpu_arena_bytes);
    place_persistent(plan);
    fl_free(all);
    return FLEET_OK;
}
