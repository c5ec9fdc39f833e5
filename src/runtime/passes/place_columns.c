/* place_columns.c - pass place_columns: what is only made to be concatenated is
 * made in its columns of the concatenation, which then copies nothing. */
#include "runtime/plan/pass.h"

static void place_inputs(fl_lowering *l, const fl_node *n, bool *applied)
{
    int64_t column = 0;

    for (int i = 0; i < n->n_in; i++) {
        fleet_var *v = n->in[i];

        if (fl_is_private(l, v) && fl_shape_batched(&v->shape) &&
            (v->producer->op->traits & FL_OP_WRITES_COLUMNS)) {
            l->var[v->id].inside = n->out[0];
            l->var[v->id].column = column;
            *applied = true;
        }
        column += fl_shape_cols(&v->shape);
    }
}

fleet_status fl_pass_place_columns(fl_lowering *l, bool *applied)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++)
        if (l->needed[i] && (p->node[i]->op->traits & FL_OP_CONCAT) &&
            fl_node_int(p->node[i], "axis") == 1)
            place_inputs(l, p->node[i], applied);
    return FLEET_OK;
}
