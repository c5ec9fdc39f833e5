/* schedule_setters.c - the calls that set an optimizer's learning rate and its
 * schedule. */
#include <math.h>

#include "base/error.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"

/* FTRL divides by the learning rate. */
static fleet_status check_rule(const fleet_optimizer *o,
                               const fleet_schedule *s)
{
    const bool ends = s->kind == FLEET_SCHEDULE_POLYNOMIAL ||
                      s->kind == FLEET_SCHEDULE_COSINE;

    if (o->kind != FL_RULE_FTRL || !ends || s->end > 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: end: ftrl divides by the learning rate: expected a "
                   "number above 0, got 0",
                   fl_schedule_name(s->kind));
}

static fleet_status check_plateau(fleet_schedule_kind kind)
{
    return fl_schedule_has_values(kind)
               ? fl_fail(FLEET_EINVAL,
                         "plateau: the schedule is piecewise, whose values are "
                         "learning rates themselves: expected another one")
               : FLEET_OK;
}

static fleet_status set_schedule(fleet_optimizer *o, const fleet_schedule *from,
                                 const char *call)
{
    fl_schedule made;
    fleet_status status;

    FL_TRY(fl_optimizer_check_setter(o, call));
    FL_TRY(fl_schedule_make(from, &made));
    status = check_rule(o, &made.is);
    if (status == FLEET_OK && o->plateau.on)
        status = check_plateau(made.is.kind);
    if (status != FLEET_OK) {
        fl_schedule_done(&made);
        return status;
    }
    fl_schedule_done(&o->schedule);
    o->schedule = made;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_schedule(fleet_optimizer *o,
                                          const fleet_schedule *schedule)
{
    return set_schedule(o, schedule, "fleet_optimizer_set_schedule");
}

fleet_status fleet_optimizer_set_piecewise_decay(fleet_optimizer *o,
                                                 const int64_t *boundaries,
                                                 const float *values, int n)
{
    return set_schedule(o,
                        &(fleet_schedule){.kind = FLEET_SCHEDULE_PIECEWISE,
                                          .boundaries = boundaries,
                                          .values = values,
                                          .n = n},
                        "fleet_optimizer_set_piecewise_decay");
}

fleet_status fleet_optimizer_set_exponential_decay(fleet_optimizer *o,
                                                   float rate, int64_t steps,
                                                   int staircase)
{
    return set_schedule(o,
                        &(fleet_schedule){.kind = FLEET_SCHEDULE_EXPONENTIAL,
                                          .rate = rate,
                                          .steps = steps,
                                          .staircase = staircase},
                        "fleet_optimizer_set_exponential_decay");
}

fleet_status fleet_optimizer_set_learning_rate(fleet_optimizer *o,
                                               float learning_rate)
{
    static const char call[] = "fleet_optimizer_set_learning_rate";

    FL_TRY(fl_optimizer_check_setter(o, call));
    if (!(learning_rate > 0) || !isfinite(learning_rate))
        return fl_fail(FLEET_EINVAL, "%s: the learning rate %g is not positive",
                       call, (double)learning_rate);
    if (fl_schedule_has_values(o->schedule.is.kind))
        return fl_fail(FLEET_ESTATE,
                       "%s: the schedule is piecewise, whose values are "
                       "learning rates themselves: set another schedule",
                       call);
    o->learning_rate = learning_rate;
    if (o->plateau.seen.reports == 0)
        o->first_rate = learning_rate;
    return FLEET_OK;
}

/* --- plateaus ------------------------------------------------------------- */

fleet_status fleet_optimizer_set_plateau(fleet_optimizer *o,
                                         const fleet_plateau_options *options)
{
    static const char call[] = "fleet_optimizer_set_plateau";
    fl_plateau made;

    FL_TRY(fl_optimizer_check_setter(o, call));
    if (o->n_user > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: the learning rate of a table's own optimizer stays "
                       "as it was when training began",
                       call);
    FL_TRY(fl_plateau_make(options, &made));
    if (made.on)
        FL_TRY(check_plateau(o->schedule.is.kind));
    o->plateau = made;
    return FLEET_OK;
}

fleet_status fleet_optimizer_report_metric(fleet_optimizer *o, double metric,
                                           int *reduced)
{
    static const char call[] = "fleet_optimizer_report_metric";
    float now;

    FL_TRY(fl_optimizer_check_setter(o, call));
    if (!o->plateau.on)
        return fl_fail(FLEET_ESTATE,
                       "%s: fleet_optimizer_set_plateau() was not called",
                       call);
    if (!isfinite(metric))
        return fl_fail(FLEET_EINVAL, "%s: the metric %g is not finite", call,
                       metric);
    now = fl_plateau_report(&o->plateau, metric, o->learning_rate);
    if (reduced)
        *reduced = now != o->learning_rate;
    o->learning_rate = now;
    return FLEET_OK;
}
