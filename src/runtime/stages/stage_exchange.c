/* stage_exchange.c - one step of the engine comm, between forward and
 * backward. */
#include "runtime/stages/stage_exchange.h"

#include "base/memory.h"
#include "runtime/plan/lower.h"

/* Operands: the loss, room for a batch's description, what crosses, and the
 * gradients of what has one. */
enum { LOSS, ROOM, VALUES };

typedef struct exchange_config {
    fl_stage_link *link;
    const fleet_var *const *var; /* of values, then of gradients */
    int n_value, n_gradient;
    bool trains;
} exchange_config;

static fl_stage_value describe_value(const fl_instance *in, int operand,
                                     const fleet_var *v, int64_t batch)
{
    const fl_arg *a = &in->arg[operand];

    return (fl_stage_value){
        .var = v,
        .data = fl_ptr(in, operand),
        .offsets = v->ragged ? (const int64_t *)(const void *)a->base[1] : NULL,
        .rows = a->factor ? batch * a->factor : a->rows,
        .cols = a->cols,
        .ld = a->ld};
}

static fleet_status exchange_run(const fl_instance *in, const fl_range *r)
{
    const exchange_config *c = in->step->config;
    fl_stage_value *value = fl_ptr(in, ROOM);
    fl_stage_batch b = {.batch = r->batch,
                        .trains = c->trains,
                        .value = value,
                        .n_value = c->n_value,
                        .gradient = value + c->n_value,
                        .n_gradient = c->n_gradient,
                        .loss = fl_ptr(in, LOSS)};

    for (int i = 0; i < c->n_value + c->n_gradient; i++)
        value[i] = describe_value(in, VALUES + i, c->var[i], r->batch);
    return c->link->exchange(c->link, &b);
}

static const fl_kernel kernel_exchange = {.name = "stage.exchange",
                                          .split = FL_SPLIT_PARTS,
                                          .n_part = 1,
                                          .run = exchange_run};

/* Does input i get a gradient? */
static bool is_learned(const fl_lowering *l, const fl_node *n, int i)
{
    return fl_node_attr(n, "gradients")->v[i] &&
           fl_gradient_wanted(l, n->in[i]);
}

/* Values for the gradients, one behind the other; the first is kept. */
static fleet_status make_gradients(fl_lowering *l, const fl_node *n,
                                   exchange_config *c, const fleet_var **var)
{
    int first = -1;

    for (int i = 0; i < n->n_in; i++) {
        int made;

        if (!is_learned(l, n, i))
            continue;
        made = fl_temp(l, n->in[i]->name, FLEET_FLOAT32, &n->in[i]->shape);
        if (first < 0)
            first = made;
        var[c->n_value + c->n_gradient++] = n->in[i];
    }
    l->node[n->id].saved = first;
    return l->status;
}

static fleet_status exchange_forward(fl_lowering *l, const fl_node *n)
{
    exchange_config c = {.link = n->in[0]->program->link,
                         .n_value = n->n_in,
                         .trains = l->plan->training};
    size_t most = 2 * (size_t)n->n_in;
    const fleet_var **var = fl_arena_alloc(&l->plan->arena, most * sizeof *var);
    fl_operands all;

    if (!var)
        return FLEET_ENOMEM;
    for (int i = 0; i < n->n_in; i++)
        var[i] = n->in[i];
    c.var = var;
    FL_TRY(fl_operands_begin(l, &all, VALUES + (int)most));
    fl_operands_add(&all, fl_value_of(l, n->out[0]), FL_WRITE);
    fl_operands_add(&all,
                    fl_object(l, "stage.batch", most * sizeof(fl_stage_value)),
                    FL_READ_WRITE);
    for (int i = 0; i < n->n_in; i++)
        fl_operands_add(&all, fl_value_of(l, n->in[i]), FL_READ);
    FL_TRY(make_gradients(l, n, &c, var));
    for (int i = 0; i < c.n_gradient; i++)
        fl_operands_add(&all, l->node[n->id].saved + i, FL_WRITE);
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_exchange, n, fl_config(l, &c, sizeof c), all.o, all.n);
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}

/* Forward has brought them. */
static fleet_status exchange_gradient(fl_lowering *l, const fl_node *n)
{
    int at = l->node[n->id].saved;

    for (int i = 0; i < n->n_in; i++)
        if (is_learned(l, n, i))
            fl_gradient_view(l, n->in[i], at++, 0);
    return l->status;
}

static fleet_status exchange_infer(fl_node *n)
{
    n->out[0]->dtype = FLEET_FLOAT32;
    n->out[0]->shape = fl_shape_1(1);
    return FLEET_OK;
}

static const fl_op op_exchange = {.name = "send_and_recv",
                                  .n_out = 1,
                                  .least_in = 1,
                                  .most_in = INT32_MAX,
                                  .attrs = "gradients:v",
                                  .infer = exchange_infer,
                                  .forward = exchange_forward,
                                  .gradient = exchange_gradient};

fleet_var *fl_stage_exchange(fleet_program *p, const fl_crossing *crossing,
                             int n)
{
    fleet_var **in = fl_arena_alloc(&p->arena, (size_t)n * sizeof *in);
    int64_t *back = fl_arena_alloc(&p->arena, (size_t)n * sizeof *back);
    fl_attr attr;

    if (!in || !back)
        return fl_program_failed(p, FLEET_ENOMEM);
    for (int i = 0; i < n; i++) {
        in[i] = fleet_program_var(p, crossing[i].var->name);
        back[i] = crossing[i].has_gradient;
    }
    attr = FL_ATTR_INTS("gradients", back, n);
    return fl_program_add(p, &op_exchange, in, n, &attr, 1);
}
