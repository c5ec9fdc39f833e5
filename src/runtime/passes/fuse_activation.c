/* fuse_activation.c - pass fuse_activation: an fc whose result only an
 * activation reads applies that activation itself, and the activation's node
 * is left out. */
#include <fleet/nn.h>

#include "runtime/plan/pass.h"

/* fc, then relu: the fc does both. */
fleet_status fl_pass_fuse_activation(fl_lowering *l, bool *applied)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];
        const fl_node *from = n->op->activation ? n->in[0]->producer : NULL;

        if (!l->needed[i] || !from || !fl_is_private(l, n->in[0]) ||
            !(from->op->traits & FL_OP_TAKES_ACTIVATION) ||
            fl_node_int(from, "activation") != FLEET_LINEAR ||
            from->place != n->place)
            continue;
        l->node[from->id].out = n->out[0];
        l->node[from->id].activation = n;
        l->node[i].skip = true;
        *applied = true;
    }
    return FLEET_OK;
}
