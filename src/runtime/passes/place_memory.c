/* place_memory.c - pass place_memory: where values lie. One arena, in which
 * values that are never alive together share memory, and beside it what
 * persists from iteration to iteration; the same again on a GPU. The largest
 * value gets its place first.
 *
 * Inside a region some slices are further than other slices, so a value is
 * alive for whole regions. But a slice touches its own rows alone: values that
 * only one region by rows knows, and whose rows are of one size, share memory
 * if their steps do not meet, each row with the same row of the other one. So
 * what a slice writes is mostly still in the cache when it is read, and when it
 * is written over.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/plan/pass.h"

typedef struct placed {
    int value;
    size_t bytes, size; /* size: in whole cache lines */
    int region;         /* by rows, the only one that knows it; -1: none */
    int first, last;    /* of the steps that touch it */
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

/* May rows of the one lie where the same rows of the other one lie? */
static bool may_share(const placed *a, const placed *b)
{
    return a->region >= 0 && a->region == b->region && a->bytes == b->bytes &&
           (a->last < b->first || b->last < a->first);
}

/* The first of n that is in the way of one at that place; n: none is. */
static size_t find_collision(const fl_plan *plan, const placed *all, size_t n,
                             const placed *one, size_t at)
{
    const fl_value *mine = &plan->value[one->value];
    size_t i = 0;

    for (; i < n; i++) {
        const fl_value *v = &plan->value[all[i].value];

        if (v->begin <= mine->end && mine->begin <= v->end &&
            v->offset < at + one->size && at < v->offset + all[i].size &&
            !(v->offset == at && may_share(&all[i], one)))
            break;
    }
    return i;
}

/* The memory that is free for the shortest time; else the lowest place that no
 * living neighbour uses. */
static size_t find_place(const fl_plan *plan, const placed *all, size_t n,
                         const placed *one)
{
    size_t at = 0, best = n, i;

    for (i = 0; i < n; i++)
        if (may_share(&all[i], one) && all[i].last < one->first &&
            (best == n || all[i].last > all[best].last) &&
            find_collision(plan, all, n, one,
                           plan->value[all[i].value].offset) == n)
            best = i;
    if (best < n)
        return plan->value[all[best].value].offset;
    while ((i = find_collision(plan, all, n, one, at)) < n)
        at = plan->value[all[i].value].offset + all[i].size;
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

/* Does one region by rows alone know it, on the host? */
static bool is_of_slices(const fl_plan *plan, const fl_value *v)
{
    return v->begin == v->end && !v->on_gpu && fl_shape_batched(&v->shape) &&
           plan->region[v->begin].split == FL_SPLIT_ROWS &&
           plan->region[v->begin].engine == FL_ENGINE_COMPUTE;
}

static placed to_place(const fl_plan *plan, int value)
{
    const fl_value *v = &plan->value[value];
    placed one = {.value = value,
                  .bytes = fl_value_bytes(plan, v),
                  .region = -1,
                  .first = (int)plan->n_step};

    one.size = whole_lines(one.bytes);
    for (size_t i = 0; i < plan->n_step; i++)
        for (int j = 0; j < plan->step[i]->n_operand; j++) {
            int operand = plan->step[i]->operand[j].value;

            if (operand < 0 || fl_plan_root(plan, operand) != value)
                continue;
            one.first = (int)i < one.first ? (int)i : one.first;
            one.last = (int)i;
        }
    if (is_of_slices(plan, v))
        one.region = v->begin;
    return one;
}

/* The arena of the host or of the GPU, and its size. */
static void place_all(fl_plan *plan, placed *all, bool on_gpu, size_t *bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (v->root == (int)i && v->kind == FL_VALUE_TEMP &&
            v->on_gpu == on_gpu && !v->positions && v->end >= 0)
            all[n++] = to_place(plan, (int)i);
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
