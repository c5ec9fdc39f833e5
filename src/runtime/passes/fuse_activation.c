/* fuse_graph.c - the passes that look at nodes and variables. */
#include <fleet/nn.h>

#include "runtime/plan/pass.h"

static void count_readers(fl_lowering *l)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; l->needed[i] && j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j])
                l->var[p->node[i]->in[j]->id].readers++;
}

/* The result of v's producer may be changed without anybody noticing. */
static bool is_private(const fl_lowering *l, const fleet_var *v)
{
    return v->producer && l->var[v->id].readers == 1 && !l->fetched[v->id] &&
           v != l->program->training.loss;
}

/* fc, then relu: the fc does both. */
fleet_status fl_pass_fuse_activation(fl_lowering *l, bool *applied)
{
    const fleet_program *p = l->program;

    count_readers(l); /* for this pass and the next one */
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];
        const fl_node *from = n->op->activation ? n->in[0]->producer : NULL;

        if (!l->needed[i] || !from || !is_private(l, n->in[0]) ||
            !(from->op->traits & FL_OP_TAKES_ACTIVATION) ||
            fl_node_int(from, "activation") != FLEET_LINEAR ||
            from->place != n->place)
            continue;
        l->node[from->id].out = n->out[0];
        l->node[from->id].activation = n->op->activation;
        l->node[i].skip = true;
        *applied = true;
    }
    return FLEET_OK;
}

static void place_inputs(fl_lowering *l, const fl_node *n, bool *applied)
{
    int64_t column = 0;

    for (int i = 0; i < n->n_in; i++) {
        fleet_var *v = n->in[i];

        if (is_private(l, v) && fl_shape_batched(&v->shape) &&
            (v->producer->op->traits & FL_OP_WRITES_COLUMNS)) {
            l->var[v->id].inside = n->out[0];
            l->var[v->id].column = column;
            *applied = true;
        }
        column += fl_shape_cols(&v->shape);
    }
}

/* What is only made to be concatenated is made in its place. */
fleet_status fl_pass_place_columns(fl_lowering *l, bool *applied)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++)
        if (l->needed[i] && (p->node[i]->op->traits & FL_OP_CONCAT) &&
            fl_node_int(p->node[i], "axis") == 1)
            place_inputs(l, p->node[i], applied);
    return FLEET_OK;
}

/* All lookups in one table are the work of the first. */
fleet_status fl_pass_group_lookups(fl_lowering *l, bool *applied)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++) {
        if (!l->needed[i] || !(p->node[i]->op->traits & FL_OP_LOOKUP) ||
            l->node[i].group)
            continue;
        for (size_t j = i; j < p->n_node; j++)
            if (l->needed[j] && (p->node[j]->op->traits & FL_OP_LOOKUP) &&
                p->node[j]->in[0] == p->node[i]->in[0]) {
                l->node[j].group = (int)i + 1;
                l->node[j].skip = j > i;
                *applied = *applied || j > i;
            }
    }
    return FLEET_OK;
}
