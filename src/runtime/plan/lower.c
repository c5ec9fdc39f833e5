/* lower.c - from the nodes of a program to the steps of a plan. */
#include "runtime/plan/lower.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/recompute.h"

typedef struct fl_pending {
    const fleet_var *var;
    int total, part; /* values */
} fl_pending;

static void note_failure(fl_lowering *l, fleet_status status)
{
    if (l->status == FLEET_OK)
        l->status = status;
}

int fl_value_like(fl_lowering *l, const fl_value *like)
{
    int v = fl_plan_value(l->plan, like);

    if (v < 0)
        note_failure(l, FLEET_ENOMEM);
    return v;
}

int fl_flat_value(fl_lowering *l, fl_value_kind kind, const char *name,
                  int64_t n, void *pointer)
{
    return fl_value_like(l, &(fl_value){.name = name,
                                        .kind = kind,
                                        .dtype = FLEET_FLOAT32,
                                        .shape = fl_shape_1(n),
                                        .root = -1,
                                        .pointer = pointer,
                                        .ld = 1});
}

static int view_of(fl_lowering *l, int root, const char *name,
                   const fl_shape *shape, int64_t column, int64_t ld)
{
    fl_value view;

    if (root < 0)
        return -1;
    view = l->plan->value[root];
    view.name = name;
    view.root = l->plan->value[root].root;
    view.shape = *shape;
    view.column = l->plan->value[root].column + column;
    view.ld = ld;
    view.var = NULL;
    view.object = 0;
    view.fetched = view.zero_tail = false;
    return fl_value_like(l, &view);
}

/* --- values of variables ------------------------------------------------- */

/* The entry of the group that a parameter is in. */
static fl_dense *dense_of(fl_lowering *l, fl_flat *group)
{
    fl_plan *plan = l->plan;

    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].flat == group)
            return &plan->dense[i];
    if (fl_grow(&plan->dense, &plan->dense_capacity, plan->n_dense + 1,
                sizeof *plan->dense) != FLEET_OK) {
        note_failure(l, FLEET_ENOMEM);
        return NULL;
    }
    fl_dense *d = &plan->dense[plan->n_dense++];
    *d = (fl_dense){.flat = group,
                    .weight = fl_flat_value(l, FL_VALUE_PARAM, "weights",
                                            group->n, group->weight),
                    .gradient = -1};
    return d;
}

static int value_of_param(fl_lowering *l, const fleet_var *v)
{
    fl_param *p = fl_store_param(l->plan->store, v->name);
    fl_dense *d = dense_of(l, p->flat);

    return d ? view_of(l, d->weight, v->name, &v->shape, p->offset,
                       fl_shape_cols(&v->shape))
             : -1;
}

static int make_value(fl_lowering *l, const fleet_var *v)
{
    static const fl_value_kind kinds[] = {[FL_VAR_DATA] = FL_VALUE_FEED,
                                          [FL_VAR_TABLE] = FL_VALUE_TABLE,
                                          [FL_VAR_STATE] = FL_VALUE_STATE,
                                          [FL_VAR_TEMP] = FL_VALUE_TEMP};
    const fl_var_plan *at = &l->var[v->id];
    fl_value like = {.name = v->name,
                     .kind = kinds[v->kind],
                     .dtype = v->dtype,
                     .shape = v->shape,
                     .var = v,
                     .root = -1,
                     .fetched = l->fetched[v->id],
                     .ld = fl_shape_cols(&v->shape)};

    if (v->kind == FL_VAR_PARAM)
        return value_of_param(l, v);
    if (v->kind == FL_VAR_TEMP && at->inside)
        return view_of(l, fl_value_of(l, at->inside), v->name, &v->shape,
                       at->column, fl_shape_cols(&at->inside->shape));
    return fl_value_like(l, &like);
}

int fl_value_of(fl_lowering *l, const fleet_var *v)
{
    if (!v)
        return -1;
    if (l->value[v->id] < 0)
        l->value[v->id] = make_value(l, v);
    return l->value[v->id];
}

void fl_value_view(fl_lowering *l, const fleet_var *v, int value)
{
    int view =
        view_of(l, value, v->name, &v->shape, 0, fl_shape_cols(&v->shape));

    if (view < 0)
        return;
    l->plan->value[view].fetched = l->fetched[v->id];
    l->value[v->id] = view;
}

const fleet_var *fl_out(const fl_lowering *l, const fl_node *n, int i)
{
    return i == 0 && l->node[n->id].out ? l->node[n->id].out : n->out[i];
}

int fl_temp(fl_lowering *l, const char *name, fleet_dtype dtype,
            const fl_shape *shape)
{
    fl_value like = {.name = name,
                     .kind = FL_VALUE_TEMP,
                     .dtype = dtype,
                     .shape = *shape,
                     .root = -1,
                     .ld = fl_shape_cols(shape)};

    return fl_value_like(l, &like);
}

static int object_of(fl_lowering *l, const char *name, size_t size,
                     bool per_slot)
{
    fl_value like = {.name = name,
                     .kind = FL_VALUE_PERSISTENT,
                     .dtype = FLEET_UINT8,
                     .shape = fl_shape_1((int64_t)size),
                     .root = -1,
                     .object = size,
                     .per_slot = per_slot,
                     .ld = 1};

    return fl_value_like(l, &like);
}

int fl_object(fl_lowering *l, const char *name, size_t size)
{
    return object_of(l, name, size, false);
}

int fl_object_per_slot(fl_lowering *l, const char *name, size_t size)
{
    return object_of(l, name, size, true);
}

int fl_update_value(fl_lowering *l)
{
    if (l->plan->update < 0)
        l->plan->update = fl_object(l, "update", sizeof(fl_update_now));
    return l->plan->update;
}

int fl_state_value(fl_lowering *l, const fl_flat *g, int i)
{
    const fl_rule *rule = fl_rule_of(l->plan->store->optimizer->kind);
    const char *name = rule->state[i] ? rule->state[i] : "state";

    return fl_flat_value(l, FL_VALUE_PARAM, name, g->end - g->first,
                         g->state[i]);
}

const void *fl_config(fl_lowering *l, const void *config, size_t size)
{
    void *copy = fl_arena_copy(&l->plan->arena, config, size);

    if (!copy)
        note_failure(l, FLEET_ENOMEM);
    return copy;
}

void fl_emit(fl_lowering *l, const fl_kernel *kernel, const fl_node *node,
             const void *config, const fl_operand *operand, int n)
{
    fl_step like = {.kernel = kernel,
                    .node = node,
                    .config = config,
                    .phase = l->phase,
                    .engine = l->engine,
                    .stage = l->stage,
                    .period = 1};

    if (l->phase >= FL_REDUCE_BEGIN)
        like.period = l->plan->group;
    if (l->status == FLEET_OK)
        note_failure(l, fl_plan_step(l->plan, &like, operand, n));
    for (int i = 0; l->status == FLEET_OK && i < n; i++)
        if (kernel->whole_batch && operand[i].value >= 0)
            l->plan->value[operand[i].value].zero_tail = true;
}

fleet_status fl_operands_begin(fl_lowering *l, fl_operands *all, int most)
{
    *all = (fl_operands){
        fl_arena_alloc(&l->plan->arena, (size_t)most * sizeof *all->o), 0};
    return all->o ? FLEET_OK : FLEET_ENOMEM;
}

void fl_operands_add(fl_operands *all, int value, fl_mode mode)
{
    all->o[all->n++] = (fl_operand){value, mode};
}

/* --- gradients ----------------------------------------------------------- */

bool fl_gradient_wanted(const fl_lowering *l, const fleet_var *v)
{
    return v && l->wants[v->id];
}

int fl_gradient_of(fl_lowering *l, const fleet_var *v)
{
    return v ? l->gradient[v->id] : -1;
}

int fl_flat_gradient(fl_lowering *l, const fl_flat *g, const char *name,
                     bool shared)
{
    return fl_flat_value(l, FL_VALUE_PERSISTENT, name, g->n,
                         shared ? g->gradient : NULL);
}

/* A range of the group's gradient. What is merged or rounded first is the
 * plan's own. */
static int gradient_of_param(fl_lowering *l, const fleet_var *v)
{
    fl_param *p = fl_store_param(l->plan->store, v->name);
    fl_dense *d = dense_of(l, p->flat);

    if (d && d->gradient < 0) {
        const fl_training *t = &l->program->training;
        int made = fl_flat_gradient(l, p->flat, "gradients",
                                    l->plan->group == 1 && !t->all_reduce.fp16);

        d = dense_of(l, p->flat);
        d->gradient = made;
    }
    return d ? view_of(l, d->gradient, v->name, &v->shape, p->offset,
                       fl_shape_cols(&v->shape))
             : -1;
}

int fl_stretch(fl_lowering *l, int value, const char *name, int64_t first,
               int64_t n)
{
    fl_shape shape = fl_shape_1(n);

    return l->status == FLEET_OK && value >= 0
               ? view_of(l, value, name, &shape, first, 1)
               : -1;
}

int fl_gradient_to(fl_lowering *l, const fleet_var *v)
{
    fl_pending *p;

    if (!fl_gradient_wanted(l, v) || l->status != FLEET_OK)
        return -1;
    if (l->gradient[v->id] < 0)
        return l->gradient[v->id] =
                   v->kind == FL_VAR_PARAM
                       ? gradient_of_param(l, v)
                       : fl_temp(l, v->name, FLEET_FLOAT32, &v->shape);
    if (fl_grow(&l->pending, &l->pending_capacity, l->n_pending + 1,
                sizeof *p) != FLEET_OK) {
        note_failure(l, FLEET_ENOMEM);
        return -1;
    }
    p = &l->pending[l->n_pending++];
    *p = (fl_pending){v, l->gradient[v->id],
                      fl_temp(l, v->name, FLEET_FLOAT32, &v->shape)};
    return p->part;
}

void fl_gradient_view(fl_lowering *l, const fleet_var *v, int value,
                      int64_t column)
{
    const fl_value *of = value >= 0 ? &l->plan->value[value] : NULL;
    int64_t ld;

    if (!fl_gradient_wanted(l, v) || value < 0 || l->status != FLEET_OK)
        return;
    /* rows of a sample that were rows of their own lie side by side */
    ld =
        of->shape.dim[0] == v->shape.dim[0] ? of->ld : fl_shape_cols(&v->shape);
    l->gradient[v->id] = view_of(l, value, v->name, &v->shape, column, ld);
}

static void add_pending(fl_lowering *l, const fl_node *n)
{
    for (size_t i = 0; i < l->n_pending; i++) {
        const fl_pending *p = &l->pending[i];
        const fl_kernel *k = fl_shape_batched(&p->var->shape)
                                 ? &fl_kernel_add_rows
                                 : &fl_kernel_add_parts;

        FL_EMIT(l, k, n, NULL, FL_RW(p->total), FL_R(p->part));
    }
    l->n_pending = 0;
}

/* --- the whole ----------------------------------------------------------- */

static bool has_own_gradient(fl_lowering *l, const fl_node *n)
{
    for (int i = 0; i < n->op->n_out; i++)
        if (fl_gradient_of(l, n->out[i]) >= 0)
            return true;
    return fl_gradient_of(l, fl_out(l, n, 0)) >= 0;
}

/* Its own outputs, or the outputs of the nodes whose work it does. */
static bool has_gradient(fl_lowering *l, const fl_node *n)
{
    const fleet_program *p = l->program;

    if (has_own_gradient(l, n))
        return true;
    for (size_t i = 0; l->node[n->id].group && i < p->n_node; i++)
        if (l->node[i].group == n->id + 1 && has_own_gradient(l, p->node[i]))
            return true;
    return false;
}

static void lower_backward(fl_lowering *l)
{
    const fleet_program *p = l->program;
    const fleet_var *loss = p->training.loss;

    l->phase = FL_BACKWARD;
    l->gradient[loss->id] = fl_loss_gradient(l, loss->producer);
    for (size_t i = p->n_node; i-- > 0 && l->status == FLEET_OK;) {
        const fl_node *n = p->node[i];

        if (!l->needed[i] || l->node[i].skip || !n->op->gradient ||
            !has_gradient(l, n))
            continue;
        fl_recompute_enter(l, i);
        note_failure(l, n->op->gradient(l, n));
        add_pending(l, n);
    }
}

static void count_readers(fl_lowering *l)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; l->needed[i] && j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j])
                l->var[p->node[i]->in[j]->id].readers++;
}

bool fl_is_private(const fl_lowering *l, const fleet_var *v)
{
    return v->producer && l->var[v->id].readers == 1 && !l->fetched[v->id] &&
           v != l->program->training.loss;
}

static fleet_status begin_lowering(fl_lowering *l, const bool *fetched)
{
    const fleet_program *p = l->program;

    FL_TRY(FL_NEW(&l->needed, p->n_node));
    FL_TRY(FL_NEW(&l->wants, p->n_var));
    FL_TRY(FL_NEW(&l->fetched, p->n_var));
    FL_TRY(FL_NEW(&l->value, p->n_var * sizeof *l->value));
    FL_TRY(FL_NEW(&l->gradient, p->n_var * sizeof *l->gradient));
    FL_TRY(FL_NEW(&l->node, p->n_node * sizeof *l->node));
    FL_TRY(FL_NEW(&l->var, p->n_var * sizeof *l->var));
    for (size_t i = 0; i < p->n_var; i++) {
        l->fetched[i] = fetched && fetched[i];
        l->value[i] = l->gradient[i] = -1;
    }
    return FLEET_OK;
}

static void end_lowering(fl_lowering *l)
{
    fl_free(l->needed);
    fl_free(l->wants);
    fl_free(l->fetched);
    fl_free(l->value);
    fl_free(l->gradient);
    fl_free(l->node);
    fl_free(l->var);
    fl_free(l->pending);
    fl_recompute_done(l);
}

/* Which value a variable has, for feeds and fetches. */
static fleet_status keep_values(fl_lowering *l)
{
    size_t size = l->program->n_var * sizeof *l->value;
    fl_plan *plan = l->plan;

    for (size_t i = 0; i < l->program->n_var; i++)
        if (l->program->var[i]->keep_gradient && l->gradient[i] >= 0)
            plan->value[l->gradient[i]].fetched = true;
    plan->value_of = fl_arena_copy(&plan->arena, l->value, size);
    plan->gradient_of = fl_arena_copy(&plan->arena, l->gradient, size);
    return plan->value_of && plan->gradient_of ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status lower_program(fl_lowering *l)
{
    const fleet_program *p = l->program;

    fl_program_mark_run(p, l->plan->training ? p->training.loss : NULL,
                        l->fetched, l->needed);
    if (l->plan->training)
        fl_program_mark_trained(p, l->wants);
    count_readers(l);
    FL_TRY(fl_passes_run(l, FL_PASS_GRAPH));
    FL_TRY(fl_recompute_begin(l));
    l->phase = FL_FORWARD;
    for (size_t i = 0; i < p->n_node && l->status == FLEET_OK; i++) {
        if (!l->needed[i] || l->node[i].skip)
            continue;
        fl_recompute_enter(l, i);
        note_failure(l, p->node[i]->op->forward(l, p->node[i]));
    }
    if (l->plan->training) {
        lower_backward(l);
        l->stage = -1; /* steps of passes are in none */
        l->plan->loss = fl_value_of(l, p->training.loss);
    }
    for (size_t i = 0; i < p->n_var; i++) /* what is fetched but not computed */
        if (l->fetched[i])
            fl_value_of(l, p->var[i]);
    FL_TRY(l->status);
    FL_TRY(keep_values(l));
    FL_TRY(fl_passes_run(l, FL_PASS_PLAN));
    return l->status;
}

fleet_status fl_plan_build(const fleet_program *program, fl_store *store,
                           int64_t batch, bool training, const bool *fetched,
                           const fl_place *placing, fl_plan **plan)
{
    static const fl_crew_kind none;

    return fl_plan_build_for(&none, program, store, batch, training, fetched,
                             placing, plan);
}

fleet_status fl_plan_build_for(const fl_crew_kind *crew,
                               const fleet_program *program, fl_store *store,
                               int64_t batch, bool training,
                               const bool *fetched, const fl_place *placing,
                               fl_plan **plan)
{
    static const fl_place on_host;

    fl_lowering l = {.program = program};
    fleet_status status;

    FL_TRY(FL_NEW(plan, sizeof **plan));
    (*plan)->program = program;
    (*plan)->store = store;
    (*plan)->place = placing ? placing : &on_host;
    (*plan)->training = training;
    (*plan)->crew = *crew;
    (*plan)->group = program->training.merge.steps;
    if (crew->n > 1 && !crew->hogwild)
        (*plan)->group *= crew->n;
    (*plan)->batch = batch;
    (*plan)->slice = fl_slice_rows(batch);
    (*plan)->loss = (*plan)->update = (*plan)->pull = (*plan)->works = -1;
    (*plan)->scaling = -1;
    l.plan = *plan;
    status = begin_lowering(&l, fetched);
    if (status == FLEET_OK)
        status = lower_program(&l);
    end_lowering(&l);
    if (status != FLEET_OK) {
        fl_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}
