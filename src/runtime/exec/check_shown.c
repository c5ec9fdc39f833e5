/* check_shown.c - what a batch says was shown and clicked, before any of it is
 * counted: a NaN would stay with its rows for ever. */
#include "runtime/exec/check_shown.h"

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "runtime/graph/shown_slots.h"

/* A data variable, and the first of the options that name it. */
typedef struct fl_shown_data {
    const fleet_var *data, *table;
    const char *option;
} fl_shown_data;

static fleet_status add_shown(fleet_executor *e, const fleet_var *table,
                              const char *option, const char *name)
{
    const fleet_var *v;

    FL_TRY(fl_shown_slot(e->program, table, option, name, &v));
    for (size_t i = 0; v && i < e->n_shown; i++)
        if (e->shown[i].data == v)
            return FLEET_OK;
    if (v)
        e->shown[e->n_shown++] = (fl_shown_data){v, table, option};
    return FLEET_OK;
}

static size_t count_options(const fleet_program *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_var; i++)
        n += fl_var_is_counted(p->var[i]) ? 2 : 0;
    return n;
}

fleet_status fl_executor_find_shown(fleet_executor *e)
{
    const fleet_program *p = e->program;
    const size_t n = count_options(p);

    if (n == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&e->shown, n * sizeof *e->shown));
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *t = p->var[i];
        const fleet_accessor *a = &t->ids.life.accessor;

        if (!fl_var_is_counted(t))
            continue;
        FL_TRY(add_shown(e, t, "show", a->show));
        FL_TRY(add_shown(e, t, "click", a->click));
    }
    return FLEET_OK;
}

static fleet_status wrong_count(const fleet_executor *e, const fl_shown_data *s,
                                int64_t row, double x)
{
    return fl_fail(FLEET_EINVAL,
                   "batch %" PRId64 ": table \"%s\": life.accessor.%s: \"%s\" "
                   "in row %" PRId64 " of the batch is %g: expected a finite "
                   "number of at least 0",
                   e->n_run, s->table->name, s->option, s->data->name, row, x);
}

static fleet_status check_numbers(const fleet_executor *e,
                                  const fl_shown_data *s, int64_t batch)
{
    const void *data = e->input[s->data->id].data;

    for (int64_t i = 0; data && i < batch; i++) {
        double x = s->data->dtype == FLEET_INT64
                       ? (double)((const int64_t *)data)[i]
                       : (double)((const float *)data)[i];

        if (!(x >= 0 && x < INFINITY))
            return wrong_count(e, s, i, x);
    }
    return FLEET_OK;
}

fleet_status fl_executor_check_shown(const fleet_executor *e, int64_t batch)
{
    for (size_t i = 0; i < e->n_shown; i++)
        FL_TRY(check_numbers(e, &e->shown[i], batch));
    return FLEET_OK;
}
