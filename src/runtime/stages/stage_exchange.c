/* stage_exchange.c - two steps of the engine comm, between forward and
 * backward. */
#include "runtime/stages/stage_exchange.h"

#include "base/memory.h"
#include "runtime/plan/lower.h"

/* Operands of the first step: room for a batch's description, and what crosses;
 * of the second one: the same room, the loss, and the gradients of what has
 * one. */
enum { ROOM, VALUES, LOSS = 1, GRADIENTS };

typedef struct exchange_config {
    fl_stage_link *link;
    const fleet_var *const *var; /* of values, then of gradients */
    int n_value, n_gradient;
    int number; /* of the crew's member whose plan it is */
    int64_t capacity;
    bool alone, trains;
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

static fl_stage_batch describe_batch(const exchange_config *c, int64_t batch)
{
    return (fl_stage_batch){.batch = batch,
                            .capacity = c->capacity,
                            .number = c->number,
                            .last = c->number + 1 >= c->link->n_in_flight,
                            .alone = c->alone,
                            .trains = c->trains};
}

static fleet_status send_run(const fl_instance *in, const fl_range *r)
{
    const exchange_config *c = in->step->config;
    fl_stage_batch b = describe_batch(c, r->batch);
    fl_stage_value *value = fl_ptr(in, ROOM);

    for (int i = 0; i < c->n_value; i++)
        value[i] = describe_value(in, VALUES + i, c->var[i], r->batch);
    b.value = value;
    b.n_value = c->n_value;
    return c->link->send(c->link, &b);
}

static fleet_status receive_run(const fl_instance *in, const fl_range *r)
{
    const exchange_config *c = in->step->config;
    fl_stage_batch b = describe_batch(c, r->batch);

    b.gradient = fl_ptr(in, ROOM);
    b.n_gradient = c->n_gradient;
    b.loss = fl_ptr(in, LOSS);
    for (int i = 0; i < c->n_gradient; i++)
        b.gradient[i] =
            describe_value(in, GRADIENTS + i, c->var[c->n_value + i], r->batch);
    return c->link->receive(c->link, &b);
}

static const fl_kernel kernel_send = {.name = "stage.send",
                                      .split = FL_SPLIT_PARTS,
                                      .n_part = 1,
                                      .run = send_run};
const fl_kernel fl_kernel_stage_receive = {.name = "stage.receive",
                                           .split = FL_SPLIT_PARTS,
                                           .n_part = 1,
                                           .run = receive_run};

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

/* All that the next stage needs goes before anything is waited for. */
static void emit_send(fl_lowering *l, const fl_node *n, const void *config,
                      int room)
{
    fl_operands all;

    if (fl_operands_begin(l, &all, VALUES + n->n_in) != FLEET_OK)
        return;
    fl_operands_add(&all, room, FL_READ_WRITE);
    for (int i = 0; i < n->n_in; i++)
        fl_operands_add(&all, fl_value_of(l, n->in[i]), FL_READ);
    fl_emit(l, &kernel_send, n, config, all.o, all.n);
}

static void emit_receive(fl_lowering *l, const fl_node *n,
                         const exchange_config *c, const void *config, int room)
{
    fl_operands all;

    if (fl_operands_begin(l, &all, GRADIENTS + c->n_gradient) != FLEET_OK)
        return;
    fl_operands_add(&all, room, FL_READ_WRITE);
    fl_operands_add(&all, fl_value_of(l, n->out[0]), FL_WRITE);
    for (int i = 0; i < c->n_gradient; i++)
        fl_operands_add(&all, l->node[n->id].saved + i, FL_WRITE);
    fl_emit(l, &fl_kernel_stage_receive, n, config, all.o, all.n);
}

static fleet_status exchange_forward(fl_lowering *l, const fl_node *n)
{
    exchange_config c = {.link = n->in[0]->program->link,
                         .n_value = n->n_in,
                         .number = l->plan->crew.number,
                         .capacity = l->plan->batch,
                         .alone = l->plan->crew.n < 2,
                         .trains = l->plan->training};
    size_t most = 2 * (size_t)n->n_in;
    const fleet_var **var = fl_arena_alloc(&l->plan->arena, most * sizeof *var);
    const void *config;
    int room;

    if (!var)
        return FLEET_ENOMEM;
    for (int i = 0; i < n->n_in; i++)
        var[i] = n->in[i];
    c.var = var;
    room =
        fl_object(l, "stage.batch", (size_t)n->n_in * sizeof(fl_stage_value));
    FL_TRY(make_gradients(l, n, &c, var));
    config = fl_config(l, &c, sizeof c);
    l->engine = FL_ENGINE_COMM;
    emit_send(l, n, config, room);
    emit_receive(l, n, &c, config, room);
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
