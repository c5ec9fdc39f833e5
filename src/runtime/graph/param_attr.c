/* param_attr.c - attributes of parameters: their ranges, what two layers that
 * share a parameter may say of it, and what keeps one. */
#include "runtime/graph/param_attr.h"

#include <math.h>

#include "base/text.h"
#include "runtime/graph/initializer.h"

static bool same_initializer(const fleet_initializer *is,
                             const fleet_initializer *want)
{
    const bool reads_a = want->kind <= FLEET_INIT_TRUNCATED_NORMAL;
    const bool reads_b = reads_a && want->kind != FLEET_INIT_CONSTANT;

    return want->kind == FLEET_INIT_DEFAULT ||
           (is->kind == want->kind && (!reads_a || is->a == want->a) &&
            (!reads_b || is->b == want->b));
}

const char *fl_param_attr_differ(const fleet_param_attr *is,
                                 const fleet_param_attr *want)
{
    const float rate = is->learning_rate != 0 ? is->learning_rate : 1.0f;

    if (!same_initializer(&is->initializer, &want->initializer))
        return "initializer";
    if (want->learning_rate != 0 && want->learning_rate != rate)
        return "learning_rate";
    if (want->l2_decay != 0 && want->l2_decay != is->l2_decay)
        return "l2_decay";
    if (want->no_decay && !is->no_decay)
        return "no_decay";
    if (want->ps != FLEET_PS_BY_MODE && want->ps != is->ps)
        return "ps";
    if (want->average != is->average)
        return "average";
    return want->frozen && !is->frozen ? "frozen" : NULL;
}

static fleet_status check_factor(const char *name, const char *what, float x)
{
    if (x >= 0 && isfinite(x))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "%s: %s %g is out of range", name, what,
                   (double)x);
}

static fleet_status check_ps(const char *name, fleet_ps ps)
{
    if (ps >= FLEET_PS_BY_MODE && ps <= FLEET_PS_RANKS)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "%s: ps %d does not exist", name, (int)ps);
}

static fleet_status check_average(const char *name, float average)
{
    if (average >= 0 && average < 1)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "%s: average %g is not in [0, 1)", name,
                   (double)average);
}

fleet_status fl_param_attr_check(const char *name, const fleet_param_attr *a)
{
    FL_TRY(fl_initializer_check(name, &a->initializer));
    FL_TRY(check_factor(name, "learning_rate", a->learning_rate));
    FL_TRY(check_factor(name, "l2_decay", a->l2_decay));
    FL_TRY(check_ps(name, a->ps));
    return check_average(name, a->average);
}

/* The message names parameters and tables that the program has. */
static fleet_status no_such_keeper(const fleet_program *p, const char *name)
{
    enum { MOST = 6 };
    fl_text has = {0};
    fleet_status status;
    int n = 0;

    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];

        if ((v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE) && n++ < MOST)
            fl_text_add(&has, "%s\"%.80s\"", n > 1 ? ", " : "", v->name);
    }
    if (n > MOST)
        fl_text_add(&has, " and %d more", n - MOST);
    status = fl_fail(FLEET_ENOENT,
                     "fleet_param_set_ps: the program has no \"%.200s\"; it "
                     "has %s",
                     name ? name : "(null)", n ? fl_text_chars(&has) : "none");
    fl_text_done(&has);
    return status;
}

fleet_status fleet_param_set_ps(fleet_program *p, const char *name, fleet_ps ps)
{
    fleet_var *v = fleet_program_var(p, name);

    FL_TRY(fleet_program_status(p));
    if (!v)
        return no_such_keeper(p, name);
    if (v->kind != FL_VAR_PARAM && v->kind != FL_VAR_TABLE)
        return fl_fail(FLEET_EINVAL,
                       "fleet_param_set_ps: \"%s\" is no parameter and no "
                       "table",
                       name);
    FL_TRY(check_ps(name, ps));
    if (p->sealed || p->training.loss)
        return fl_fail(FLEET_ESTATE,
                       "fleet_param_set_ps: \"%s\": the program %s already",
                       name, p->sealed ? "has run" : "is trained");
    v->attr.ps = ps;
    return FLEET_OK;
}
