/* param_home.c - where programs want parameters, against what a job has. */
#include "fleet/job/param_home.h"

static fleet_status check_var(const fleet *f, const fleet_var *v)
{
    fl_job_mode mode = fl_handle_mode(f);

    if (v->attr.ps == FLEET_PS_BY_MODE || mode == FL_LOCAL)
        return FLEET_OK;
    if (v->attr.ps == FLEET_PS_RANKS && !fl_mode_has_ranks(mode))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "\"%s\": ps says ranks, but workers are none in mode %s "
                       "(start them with fleetrun --collective, or "
                       "role.collective = 1, and set strategy.is_collective)",
                       v->name, fl_job_mode_name(mode));
    if (v->attr.ps == FLEET_PS_RANKS)
        return FLEET_OK;
    if (mode == FL_COLLECTIVE)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "\"%s\": ps says servers, but mode collective has none",
                       v->name);
    return FLEET_OK;
}

fleet_status fl_param_home_check(const fleet *f, const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++)
        FL_TRY(check_var(f, p->var[i]));
    return FLEET_OK;
}

void fl_param_home_warn(fleet *f, const fleet_program *p)
{
    if (fl_handle_mode(f) != FL_LOCAL)
        return;
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->attr.ps != FLEET_PS_BY_MODE)
            FL_WARN(&f->context.log,
                    "\"%s\": ps has no effect: one process keeps it all",
                    p->var[i]->name);
}

void fl_param_home_dump(const fleet_program *p, fl_text *out)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->attr.ps != FLEET_PS_BY_MODE)
            fl_text_add(out, "ps %s %s\n",
                        p->var[i]->attr.ps == FLEET_PS_SERVERS ? "servers"
                                                               : "ranks",
                        p->var[i]->name);
}
