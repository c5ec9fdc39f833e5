/* slot_bounds.c - bounds of slots, out of a program's variables. */
#include "fleet/train/slot_bounds.h"

#include "base/memory.h"

fleet_status fl_slot_bounds_find(const fleet_program *p, const int *var, int n,
                                 fl_slot_bounds *bounds)
{
    fleet_var *loss = p->training.loss;
    bool *marked;

    FL_TRY(FL_NEW(&marked, p->n_node + 1));
    fl_program_mark(p, &loss, 1, marked);
    for (int i = 0; i < n; i++) {
        const fleet_var *v = var[i] >= 0 ? p->var[var[i]] : NULL;

        bounds[i] = (fl_slot_bounds){.ids_below = v ? v->ids_below : 0};
        if (v && v->labels_to > 0 && fl_program_reads(p, marked, v))
            bounds[i].labels_to = v->labels_to;
    }
    fl_free(marked);
    return FLEET_OK;
}
