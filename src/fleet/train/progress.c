/* progress.c - log lines of a pass, each when its loss is known. */
#include "fleet/train/progress.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "runtime/exec/feed_fetch.h"

static const char *name_of(const fl_progress *l, int i)
{
    return l->o->fetch_info ? l->o->fetch_info[i] : l->o->fetch_list[i]->name;
}

static void begin_line(fl_text *line, const char *time, int64_t batch)
{
    fl_text_add(line, "time: [%s], batch: [%" PRId64 "]", time, batch);
}

static fleet_status end_line(const fl_progress *l, fl_text *line)
{
    fleet_status status = line->status;

    if (status == FLEET_OK)
        FL_INFO(&l->e->context->log, "%s", fl_text_chars(line));
    fl_text_done(line);
    return status;
}

/* --- the loss alone ------------------------------------------------------ */

static bool is_loss_alone(const fl_progress *l)
{
    for (int i = 0; i < l->o->n_fetch; i++)
        if (fl_executor_own_var(l->e, l->o->fetch_list[i]) !=
            l->e->program->training.loss)
            return false;
    return true;
}

fleet_status fl_progress_late(fl_progress *l)
{
    double loss;

    while (l->n_pending > 0 &&
           fl_executor_loss_of(l->e, l->pending[0].n_run, &loss)) {
        fl_progress_pending first = l->pending[0];
        fl_text line = {0};

        l->n_pending--;
        memmove(l->pending, l->pending + 1,
                (size_t)l->n_pending * sizeof *l->pending);
        begin_line(&line, first.time, first.batch);
        for (int i = 0; i < l->o->n_fetch; i++)
            fl_text_add(&line, ", %s[1]:[%g]", name_of(l, i), loss);
        FL_TRY(end_line(l, &line));
    }
    return FLEET_OK;
}

/* --- anything ------------------------------------------------------------ */

/* Memory for the largest variable that is printed. */
static fleet_status show_one(fl_progress *l, int i, fl_text *line)
{
    const fleet_var *v = l->o->fetch_list[i];
    fleet_fetch f = {.var = v};
    size_t n;

    FL_TRY(fl_executor_fetch(l->e, &f));
    n = 1;
    for (int d = 0; d < f.n_dim; d++)
        n *= (size_t)f.dims[d];
    FL_TRY(fl_grow(&l->shown, &l->shown_size, 2 * n, sizeof *l->shown));
    f.data = l->shown;
    f.size = l->shown_size * sizeof *l->shown;
    FL_TRY(fl_executor_fetch(l->e, &f));
    fl_text_add(line, ", %s[%zu]:[", name_of(l, i), n);
    for (size_t j = 0; j < n; j++) {
        const char *at = (char *)l->shown + j * fleet_dtype_size(v->dtype);
        int64_t integer;
        double number;

        if (v->dtype == FLEET_INT64) {
            memcpy(&integer, at, sizeof integer);
            fl_text_add(line, "%s%" PRId64, j ? "," : "", integer);
            continue;
        }
        number = (double)l->shown[j];
        if (v->dtype == FLEET_FLOAT64)
            memcpy(&number, at, sizeof number);
        fl_text_add(line, "%s%g", j ? "," : "", number);
    }
    fl_text_add(line, "]");
    return line->status;
}

static fleet_status show_all(fl_progress *l, const fl_progress_pending *at)
{
    fleet_status status = FLEET_OK;
    fl_text line = {0};

    begin_line(&line, at->time, at->batch);
    for (int i = 0; i < l->o->n_fetch && status == FLEET_OK; i++)
        status = show_one(l, i, &line);
    if (status == FLEET_OK)
        return end_line(l, &line);
    fl_text_done(&line);
    return status;
}

fleet_status fl_progress_batch(fl_progress *l, int64_t batch)
{
    int64_t period = l->o->print_period ? l->o->print_period : 100;
    fl_progress_pending now = {.n_run = l->e->n_run, .batch = batch};

    FL_TRY(fl_progress_late(l));
    if (l->o->n_fetch == 0 || batch % period != 0)
        return FLEET_OK;
    fl_wall_text(now.time);
    if (!is_loss_alone(l))
        return show_all(l, &now);
    l->pending[l->n_pending++] = now;
    return fl_progress_late(l);
}

void fl_progress_close(fl_progress *l)
{
    fl_free(l->shown);
    *l = (fl_progress){0};
}
