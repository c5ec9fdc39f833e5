/* group_lookups.c - pass group_lookups: all lookups in one table are the work
 * of the first of them, so that each key is searched for once. */
#include "runtime/plan/pass.h"

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
