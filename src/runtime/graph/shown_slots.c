/* shown_slots.c - the data variables that accessors name, looked for. */
#include "runtime/graph/shown_slots.h"

#include "base/error.h"

static bool is_a_number(const fleet_var *v)
{
    return v->kind == FL_VAR_DATA && !v->ragged && v->shape.n_dim == 2 &&
           v->shape.dim[0] == -1 && v->shape.dim[1] == 1 &&
           (v->dtype == FLEET_FLOAT32 || v->dtype == FLEET_INT64);
}

fleet_status fl_shown_slot(const fleet_program *p, const fleet_var *table,
                           const char *option, const char *name,
                           const fleet_var **v)
{
    *v = name ? fleet_program_var(p, name) : NULL;
    if (!name || (*v && is_a_number(*v)))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "table \"%s\": life.accessor.%s is \"%s\": expected data of "
                   "[-1,1], float32 or int64, %s",
                   table->name, option, name,
                   *v ? "which it is not" : "and the program has none");
}

fleet_status fl_shown_slots_check(const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *t = p->var[i], *v;
        const fleet_accessor *a = &t->ids.life.accessor;

        if (!fl_var_is_counted(t))
            continue;
        FL_TRY(fl_shown_slot(p, t, "show", a->show, &v));
        FL_TRY(fl_shown_slot(p, t, "click", a->click, &v));
    }
    return FLEET_OK;
}
