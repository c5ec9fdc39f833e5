/* shown_slots.h - the data variables that a table's accessor counts: how often
 * a sample was shown, and clicked. */
#pragma once

#include "runtime/graph/program.h"

static inline bool fl_var_is_counted(const fleet_var *v)
{
    return v->kind == FL_VAR_TABLE &&
           v->ids.life.accessor.kind != FLEET_NO_ACCESSOR;
}

/* life.accessor.show or .click (`option`) of a table says `name`: *v is that
 * data variable, NULL for a name that is NULL. FLEET_EINVAL: the program has
 * none of [-1, 1] float32 or int64. */
fleet_status fl_shown_slot(const fleet_program *p, const fleet_var *table,
                           const char *option, const char *name,
                           const fleet_var **v);

/* All that the program's tables name. */
fleet_status fl_shown_slots_check(const fleet_program *p);
