/* place_steps.c - pass place_steps: which steps run on the GPU, and what is
 * copied between the host's memory and the GPU's.
 *
 * A value has a home, one of the two memories. If steps of both sides touch
 * it, it gets a shadow in the other memory, with shadows of its views, and
 * each step works on what lies on its side. Which memory is up to date is
 * followed from step to step, by spans: columns of a batched value, elements
 * of another one. A step that reads a span which is only on the other side
 * gets a copy before it. What the store keeps, and what may be read after the
 * iteration, goes home as soon as it is written in the other memory; so an
 * iteration begins with everything at home. The executor brings feeds to both
 * sides.
 */
#include "runtime/passes/place_steps.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/plan/remote.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/copy_steps.h"
#include "runtime/reduce/all_reduce_gpu.h"
#include "runtime/optim/update_gpu.h"

bool fl_node_is_for_gpu(const fl_plan *plan, const fl_node *n)
{
    return plan->place->gpu && fl_place_is_gpu(plan->place, n ? n->place : 0);
}

bool fl_is_for_gpu(const fl_plan *plan, const fl_step *s)
{
    return (plan->place->gpu && s->kernel->on_gpu) ||
           fl_node_is_for_gpu(plan, s->node);
}

/* Part of a value that both sides use: in which memories is it up to date? */
typedef struct span {
    int root;
    int64_t from, to;
    bool on_host, on_gpu;
} span;

/* Of a root: which sides touch it, and how. */
typedef struct touched {
    bool by_host, by_gpu, written, first_on_gpu, merged, fetched;
} touched;

typedef struct placer {
    fl_lowering *l;
    fl_plan *plan;
    size_t n_value;      /* without shadows */
    fl_step **step;      /* as they were */
    bool *on_gpu;        /* by step */
    bool reduces_on_gpu; /* ranks reduce in the GPU's memory */
    touched *by;         /* by root */
    int *shadow;         /* by value; -1: none yet */
    span *span;          /* by root, and from left to right */
    size_t n_span, span_capacity;
} placer;

/* --- where a step runs --------------------------------------------------- */

static bool changes_update(const fl_plan *plan, const fl_step *s)
{
    for (int i = 0; i < s->n_operand; i++)
        if (s->operand[i].value == plan->update && plan->update >= 0 &&
            s->operand[i].mode != FL_READ)
            return true;
    return false;
}

/* Where an operand of a step is to be. */
static bool side_of(const placer *p, size_t step, int operand)
{
    const fl_kernel *k = p->step[step]->kernel;

    return p->on_gpu[step] ||
           (p->reduces_on_gpu && (k->reduces >> operand & 1));
}

static bool has_rows_on_host(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_sparse; i++)
        if (!plan->sparse[i].gpu)
            return true;
    return false;
}

/* Steps of the host that do a part of the update read its scalars
 * in the host's memory: so what changes these runs on the host. */
static bool is_for_host(const fl_plan *plan, const fl_step *s)
{
    return s->engine == FL_ENGINE_COMM || s->kernel->on_host ||
           ((has_rows_on_host(plan) || plan->store->remote) &&
            changes_update(plan, s));
}

static fleet_status warn_once(const fl_plan *plan, const fl_step *s)
{
    fl_map *warned = (fl_map *)&plan->place->warned;
    const char *name = s->kernel->name;
    fl_gpu *gpu = plan->place->gpu;
    fleet_status status = FLEET_OK;
    bool is_new;

    fl_gpu_lock(gpu);
    is_new = !fl_map_get(warned, name);
    if (is_new)
        status = fl_map_put(warned, name, gpu);
    fl_gpu_unlock(gpu);
    if (is_new)
        FL_WARN(&plan->store->context->log,
                "%s has no kernel on gpu:%d (%s): it runs on the CPU", name,
                gpu->d->ordinal, gpu->d->name);
    return status;
}

static fleet_status without_kernel(const fl_plan *plan, const fl_step *s)
{
    const fl_device *d = plan->place->gpu->d;
    fleet_dtype dtype = fl_step_dtype(plan, s);
    const fl_node *n = s->node;

    if (plan->place->allow_cpu && dtype == FLEET_FLOAT32)
        return warn_once(plan, s);
    return fl_fail(FLEET_EUNSUPPORTED,
                   "%s%s%s%s has no kernel \"%s\" of %s on gpu:%d (%s): %sset "
                   "allow_cpu",
                   n ? n->op->name : "what minimize() adds", n ? " \"" : "",
                   n ? n->out[0]->name : "", n ? "\"" : "", s->kernel->name,
                   fleet_dtype_name(dtype), d->ordinal, d->name,
                   n ? "guard it by fleet_device_guard(program, \"cpu\"), or "
                     : "");
}

static fleet_status choose_all(placer *p, bool *any)
{
    const fl_plan *plan = p->plan;
    const fl_gpu *gpu = plan->place->gpu;

    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        if (!fl_is_for_gpu(plan, s) || is_for_host(plan, s))
            continue;
        p->on_gpu[i] = fl_step_on_gpu(plan, s, gpu) != NULL;
        if (!p->on_gpu[i])
            FL_TRY(without_kernel(plan, s));
        *any = *any || p->on_gpu[i];
    }
    return FLEET_OK;
}

/* --- where a value is at home -------------------------------------------- */

static void add_touch(touched *t, const fl_step *s, fl_mode mode, bool on_gpu)
{
    if (!t->by_host && !t->by_gpu)
        t->first_on_gpu = on_gpu;
    t->by_host = t->by_host || !on_gpu;
    t->by_gpu = t->by_gpu || on_gpu;
    t->written = t->written || mode != FL_READ;
    t->merged = t->merged || (mode != FL_READ && s->phase == FL_MERGE);
}

static void touch_all(placer *p)
{
    const fl_plan *plan = p->plan;

    for (size_t i = 0; i < plan->n_step; i++)
        for (int j = 0; j < plan->step[i]->n_operand; j++) {
            const fl_operand *o = &plan->step[i]->operand[j];

            if (o->value >= 0)
                add_touch(&p->by[fl_plan_root(plan, o->value)], plan->step[i],
                          o->mode, side_of(p, i, j));
        }
    for (size_t i = 0; i < p->n_value; i++)
        if (plan->value[i].fetched || (int)i == plan->loss)
            p->by[fl_plan_root(plan, (int)i)].fetched = true;
}

static bool is_stored(const fl_value *v)
{
    return v->kind == FL_VALUE_PARAM || v->kind == FL_VALUE_STATE;
}

/* Where steps of both sides touch it. */
static bool home_of_shared(const placer *p, const fl_value *v, const touched *t)
{
    if (is_stored(v) && (fl_remote_has_dense(p->plan->store) || !t->written))
        return false;
    return v->kind == FL_VALUE_TEMP ? t->first_on_gpu : p->plan->place->on_gpu;
}

static bool is_at_home_on_gpu(const placer *p, int root)
{
    const fl_value *v = &p->plan->value[root];
    const touched *t = &p->by[root];

    if (v->kind == FL_VALUE_FEED || root == p->plan->update ||
        root == p->plan->pull)
        return false;
    return t->by_host && t->by_gpu ? home_of_shared(p, v, t) : t->by_gpu;
}

static int64_t length_of(const fl_value *root)
{
    if (root->object)
        return 1;
    return fl_shape_batched(&root->shape) ? root->ld
                                          : fl_shape_count(&root->shape, 1);
}

static fleet_status begin_span(placer *p, int root)
{
    const fl_value *v = &p->plan->value[root];
    bool feed = v->kind == FL_VALUE_FEED;
    bool known = v->kind == FL_VALUE_PERSISTENT
                     ? v->first != 0.0f || v->object || p->by[root].merged
                     : v->kind != FL_VALUE_TEMP;

    FL_TRY(
        fl_grow(&p->span, &p->span_capacity, p->n_span + 1, sizeof *p->span));
    p->span[p->n_span++] = (span){root, 0, length_of(v), known && !v->on_gpu,
                                  known && (v->on_gpu || feed)};
    return FLEET_OK;
}

static fleet_status send_home(placer *p)
{
    fl_plan *plan = p->plan;

    for (size_t i = 0; i < p->n_value; i++)
        plan->value[i].on_gpu = is_at_home_on_gpu(p, plan->value[i].root);
    for (size_t i = 0; i < p->n_value; i++) {
        bool home = plan->value[i].on_gpu;

        if (plan->value[i].root == (int)i &&
            ((p->by[i].by_host && home) || (p->by[i].by_gpu && !home)))
            FL_TRY(begin_span(p, (int)i));
    }
    return FLEET_OK;
}

/* --- shadows ------------------------------------------------------------- */

static int shadow_of(placer *p, int value)
{
    fl_plan *plan = p->plan;
    fl_value like = plan->value[value];

    if (p->shadow[value] >= 0)
        return p->shadow[value];
    like.on_gpu = !like.on_gpu;
    like.fetched = false;
    like.shadow = true;
    like.root = like.root == value ? -1 : shadow_of(p, like.root);
    if (value == plan->update)
        like.object = sizeof(fl_device_update);
    p->shadow[value] = fl_value_like(p->l, &like);
    return p->shadow[value];
}

/* The value as a side has it. */
static int on_side(placer *p, int value, bool gpu)
{
    return p->plan->value[value].on_gpu == gpu ? value : shadow_of(p, value);
}

/* [from, to) of a root, as a side has it. */
static int part_of(placer *p, const span *s, bool gpu)
{
    int root = on_side(p, s->root, gpu);
    fl_value like;

    if (root < 0)
        return -1;
    like = p->plan->value[root];
    if (s->from == 0 && s->to == length_of(&like))
        return root;
    like.root = root;
    like.column = s->from;
    like.fetched = false;
    like.shape = fl_shape_batched(&like.shape)
                     ? fl_shape_2(like.shape.dim[0], s->to - s->from)
                     : fl_shape_1(s->to - s->from);
    return fl_value_like(p->l, &like);
}

/* --- spans --------------------------------------------------------------- */

/* Where an operand lies; a view with rows of another length is all of it. */
static span reach_of(const fl_plan *plan, int value)
{
    const fl_value *v = &plan->value[value], *root = &plan->value[v->root];
    span s = {.root = v->root, .to = length_of(root)};
    bool batched = fl_shape_batched(&root->shape);

    if (v->root == value || root->object || (batched && v->ld != root->ld))
        return s;
    s.from = v->column;
    s.to = s.from +
           (batched ? fl_shape_cols(&v->shape) : fl_shape_count(&v->shape, 1));
    return s;
}

/* No span goes across `at`. */
static fleet_status cut_span(placer *p, int root, int64_t at)
{
    size_t i = 0;

    while (i < p->n_span && !(p->span[i].root == root && p->span[i].from < at &&
                              at < p->span[i].to))
        i++;
    if (i == p->n_span)
        return FLEET_OK;
    FL_TRY(
        fl_grow(&p->span, &p->span_capacity, p->n_span + 1, sizeof *p->span));
    memmove(&p->span[i + 1], &p->span[i], (p->n_span - i) * sizeof *p->span);
    p->n_span++;
    p->span[i].to = p->span[i + 1].from = at;
    return FLEET_OK;
}

static bool is_inside(const span *s, const span *reach)
{
    return s->root == reach->root && s->from >= reach->from &&
           s->to <= reach->to;
}

static bool is_missing(const span *s, bool gpu)
{
    return gpu ? s->on_host && !s->on_gpu : s->on_gpu && !s->on_host;
}

static void emit_copy(placer *p, const span *s, bool gpu, fl_phase phase)
{
    fl_lowering *l = p->l;
    const fl_kernel *k = !gpu                         ? &fl_kernel_to_host
                         : s->root == p->plan->update ? &fl_kernel_tell_update
                                                      : &fl_kernel_to_gpu;
    int to = part_of(p, s, gpu), from = part_of(p, s, !gpu);

    l->phase = phase;
    l->engine = FL_ENGINE_GPU;
    FL_EMIT(l, k, NULL, NULL, FL_W(to), FL_R(from));
    l->engine = FL_ENGINE_COMPUTE;
}

/* What a side does not have of it is copied, in pieces as long as can be. */
static fleet_status copy_missing(placer *p, span reach, bool gpu,
                                 fl_phase phase)
{
    span run = {0};

    for (size_t i = 0; i < p->n_span; i++) {
        span *s = &p->span[i];

        if (!is_inside(s, &reach) || !is_missing(s, gpu))
            continue;
        if (run.to > 0 && run.to == s->from) {
            run.to = s->to;
        } else {
            if (run.to > 0)
                emit_copy(p, &run, gpu, phase);
            run = *s;
        }
        s->on_host = s->on_gpu = true;
    }
    if (run.to > 0)
        emit_copy(p, &run, gpu, phase);
    return p->l->status;
}

/* All columns of a batch that are up to date: one copy is as good as many. */
static fleet_status before_step(placer *p, int value, bool gpu, fl_phase phase)
{
    span reach = reach_of(p->plan, value);
    const fl_value *root = &p->plan->value[reach.root];

    if (fl_shape_batched(&root->shape)) {
        reach.from = 0;
        reach.to = length_of(root);
    }
    FL_TRY(cut_span(p, reach.root, reach.from));
    FL_TRY(cut_span(p, reach.root, reach.to));
    return copy_missing(p, reach, gpu, phase);
}

static fleet_status after_write(placer *p, int value, bool gpu, fl_phase phase)
{
    span reach = reach_of(p->plan, value);
    bool home = p->plan->value[reach.root].on_gpu;

    FL_TRY(cut_span(p, reach.root, reach.from));
    FL_TRY(cut_span(p, reach.root, reach.to));
    for (size_t i = 0; i < p->n_span; i++)
        if (is_inside(&p->span[i], &reach)) {
            p->span[i].on_host = !gpu;
            p->span[i].on_gpu = gpu;
        }
    if (gpu != home &&
        (is_stored(&p->plan->value[reach.root]) || p->by[reach.root].fetched))
        return copy_missing(p, reach, home, phase);
    return FLEET_OK;
}

/* --- the steps, with their operands by side ------------------------------ */

static fleet_status add_placed(placer *p, size_t i)
{
    fl_plan *plan = p->plan;
    fl_step *s = p->step[i];
    fl_operand *o = fl_arena_copy(&plan->arena, s->operand,
                                  (size_t)s->n_operand * sizeof *o);

    if (!o)
        return FLEET_ENOMEM;
    for (int j = 0; j < s->n_operand; j++)
        if (o[j].value >= 0)
            o[j].value = on_side(p, o[j].value, side_of(p, i, j));
    s->operand = o;
    if (p->on_gpu[i])
        s->engine = FL_ENGINE_GPU;
    FL_TRY(fl_plan_add_step(plan, s));
    return p->l->status;
}

/* What a step writes is copied before it, too: it may leave parts as they
 * are. */
static fleet_status place_step(placer *p, size_t i)
{
    const fl_step *s = p->step[i];
    const fl_operand *was = s->operand;

    for (int j = 0; j < s->n_operand; j++)
        if (was[j].value >= 0)
            FL_TRY(before_step(p, was[j].value, side_of(p, i, j), s->phase));
    FL_TRY(add_placed(p, i));
    for (int j = 0; j < s->n_operand; j++)
        if (was[j].value >= 0 && was[j].mode != FL_READ)
            FL_TRY(after_write(p, was[j].value, side_of(p, i, j), s->phase));
    return FLEET_OK;
}

static fleet_status place_all(placer *p)
{
    fl_plan *plan = p->plan;
    size_t n = plan->n_step;
    fleet_status status = FLEET_OK;
    bool updates = false;

    plan->step = NULL;
    plan->n_step = plan->step_capacity = 0;
    for (size_t i = 0; i < n && status == FLEET_OK; i++) {
        bool begins = !updates && p->step[i]->phase >= FL_UPDATE;

        /* what the GPU knows of an update is of the last one */
        for (size_t j = 0; begins && j < p->n_span; j++)
            if (p->span[j].root == plan->update)
                p->span[j].on_gpu = false;
        updates = p->step[i]->phase >= FL_UPDATE;
        status = place_step(p, i);
    }
    fl_free(p->step);
    return status;
}

static fleet_status place_values(placer *p, bool *applied)
{
    FL_TRY(FL_NEW(&p->on_gpu, p->plan->n_step));
    FL_TRY(FL_NEW(&p->by, p->n_value * sizeof *p->by));
    FL_TRY(FL_NEW(&p->shadow, p->n_value * sizeof *p->shadow));
    for (size_t i = 0; i < p->n_value; i++)
        p->shadow[i] = -1;
    FL_TRY(choose_all(p, applied));
    if (!*applied)
        return FLEET_OK;
    touch_all(p);
    FL_TRY(send_home(p));
    return place_all(p);
}

fleet_status fl_pass_place_steps(fl_lowering *l, bool *applied)
{
    placer p = {.l = l,
                .plan = l->plan,
                .n_value = l->plan->n_value,
                .step = l->plan->step,
                .reduces_on_gpu = fl_comm_gpu_of_plan(l->plan) != NULL};
    fleet_status status;

    if (!l->plan->place->gpu)
        return FLEET_OK;
    status = place_values(&p, applied);
    fl_free(p.on_gpu);
    fl_free(p.by);
    fl_free(p.shadow);
    fl_free(p.span);
    return status;
}
