/* check_shown.c - what a batch says was shown and clicked, before any of it is
 * counted: a NaN would stay with its rows for ever. */
#include "runtime/exec/check_shown.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/graph/shown_slots.h"

static fleet_status wrong_count(const fleet_executor *e, const fleet_var *table,
                                const char *option, const fleet_var *v,
                                int64_t row, double x)
{
    return fl_fail(FLEET_EINVAL,
                   "batch %" PRId64 ": table \"%s\": life.accessor.%s: \"%s\" "
                   "in row %" PRId64 " of the batch is %g: expected a finite "
                   "number of at least 0",
                   e->n_run, table->name, option, v->name, row, x);
}

static fleet_status check_numbers(const fleet_executor *e,
                                  const fleet_var *table, const char *option,
                                  const char *name, int64_t batch)
{
    const fleet_var *v;
    const void *data;

    FL_TRY(fl_shown_slot(e->program, table, option, name, &v));
    data = v ? e->input[v->id].data : NULL;
    for (int64_t i = 0; data && i < batch; i++) {
        double x = v->dtype == FLEET_INT64 ? (double)((const int64_t *)data)[i]
                                           : (double)((const float *)data)[i];

        if (!(x >= 0 && x < INFINITY))
            return wrong_count(e, table, option, v, i, x);
    }
    return FLEET_OK;
}

bool fl_executor_counts_shown(const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (fl_var_is_counted(p->var[i]))
            return true;
    return false;
}

fleet_status fl_executor_check_shown(const fleet_executor *e, int64_t batch)
{
    for (size_t i = 0; e->counts_shown && i < e->program->n_var; i++) {
        const fleet_var *t = e->program->var[i];
        const fleet_accessor *a = &t->ids.life.accessor;

        if (!fl_var_is_counted(t))
            continue;
        FL_TRY(check_numbers(e, t, "show", a->show, batch));
        FL_TRY(check_numbers(e, t, "click", a->click, batch));
    }
    return FLEET_OK;
}
