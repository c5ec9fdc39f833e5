/* plateau.c - the rule of PyTorch's ReduceLROnPlateau. */
#include "runtime/optim/plateau.h"

#include <float.h>
#include <math.h>

#include "base/error.h"

static fleet_status check_range(const char *what, double x, double low,
                                double below)
{
    if (x >= low && x < below)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "plateau: %s: %g is out of range", what, x);
}

fleet_status fl_plateau_make(const fleet_plateau_options *from, fl_plateau *to)
{
    *to = (fl_plateau){0};
    if (!from)
        return FLEET_OK;
    to->is = *from;
    if (from->factor == 0)
        to->is.factor = 0.1f;
    to->is.patience = from->patience == 0  ? 10
                      : from->patience < 0 ? 0
                                           : from->patience;
    if (from->threshold == 0)
        to->is.threshold = 1e-4;
    else if (from->threshold < 0)
        to->is.threshold = 0;
    FL_TRY(check_range("factor", (double)to->is.factor, (double)1e-6f, 1));
    FL_TRY(check_range("threshold", to->is.threshold, 0, INFINITY));
    FL_TRY(check_range("cooldown", (double)from->cooldown, 0, INFINITY));
    FL_TRY(check_range("least", (double)from->least, 0, INFINITY));
    to->on = true;
    return FLEET_OK;
}

static bool is_better(const fl_plateau *p, double value)
{
    const double by = p->is.maximize ? -p->is.threshold : p->is.threshold;
    const double best = p->seen.best;
    const double line = p->is.absolute ? best - by : best * (1 - by);

    if (p->seen.reports == 0)
        return true;
    return p->is.maximize ? value > line : value < line;
}

float fl_plateau_report(fl_plateau *p, double value, float learning_rate)
{
    enum { LEAST_STEP = 100000000 }; /* PyTorch's eps: 1 / it */
    const double was = (double)learning_rate;
    fl_plateau_state *s = &p->seen;
    double now;

    s->bad++;
    if (is_better(p, value)) {
        s->best = value;
        s->bad = 0;
    }
    s->reports++;
    if (s->cooling > 0) {
        s->cooling--;
        s->bad = 0;
    }
    if (s->bad <= p->is.patience)
        return learning_rate;
    s->cooling = p->is.cooldown;
    s->bad = 0;
    now = fmax(was * (double)p->is.factor, (double)p->is.least);
    return was - now > 1.0 / LEAST_STEP ? (float)now : learning_rate;
}

void fl_plateau_pass_by(fl_plateau *p)
{
    if (p->seen.reports++ == 0) /* so that the next one is better */
        p->seen.best = p->is.maximize ? -DBL_MAX : DBL_MAX;
}
