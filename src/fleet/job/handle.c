/* handle.c - checks of a handle, its optimizers, and what it says of its
 * role. */
#include "fleet/job/handle.h"

fleet_status fl_handle_check(const fleet *f, const char *what)
{
    if (!f)
        return fl_fail(FLEET_EINVAL, "%s: the fleet handle is NULL", what);
    return fl_context_check(&f->context);
}

fleet_status fl_handle_check_worker(const fleet *f, const char *what)
{
    FL_TRY(fl_handle_check(f, what));
    if (fleet_is_server(f))
        return fl_fail(FLEET_ESTATE, "%s: this process is a server", what);
    if (fleet_is_heter_worker(f))
        return fl_fail(FLEET_ESTATE,
                       "%s: this process is a heter worker, which has "
                       "fleet_init_worker() and fleet_run_heter_worker()",
                       what);
    return FLEET_OK;
}

/* The next batch's rows may have been asked for already. */
fleet_status fl_handle_check_writer(const fleet *f, const char *what)
{
    FL_TRY(fl_handle_check_worker(f, what));
    for (const fleet_optimizer *o = f->optimizers; o; o = o->next)
        if (o->passes > 0)
            return fl_fail(FLEET_ESTATE,
                           "%s: a pass over a dataset is under way: call it "
                           "between two passes",
                           what);
    return FLEET_OK;
}

fleet_optimizer *fl_handle_optimizer(fleet *f, fl_rule_kind kind,
                                     float learning_rate,
                                     const float number[FL_MAX_NUMBER])
{
    fleet_optimizer *o;

    if (fl_handle_check(f, fl_rule_of(kind)->name) != FLEET_OK)
        return NULL;
    o = fl_optimizer_create(&f->context, kind, learning_rate, number);
    if (o) {
        o->handle = f;
        o->next = f->optimizers;
        f->optimizers = o;
    }
    return o;
}

int fleet_is_worker(const fleet *f)
{
    return f && f->role.kind == FLEET_WORKER;
}

int fleet_is_server(const fleet *f)
{
    return f && f->role.kind == FLEET_SERVER;
}

int fleet_is_first_worker(const fleet *f)
{
    return fleet_is_worker(f) && f->role.index == 0;
}

int fleet_worker_index(const fleet *f)
{
    return !f ? 0 : fleet_is_worker(f) ? f->role.index : -1;
}

int fleet_server_index(const fleet *f)
{
    return !f                                         ? 0
           : fleet_is_server(f) && !f->role.schedules ? f->role.index
                                                      : -1;
}

int fleet_worker_num(const fleet *f)
{
    return f ? f->role.worker_num : 0;
}

int fleet_server_num(const fleet *f)
{
    return f ? f->role.server_num : 0;
}

int fleet_is_heter_worker(const fleet *f)
{
    return f && f->role.kind == FLEET_HETER_WORKER;
}

int fleet_heter_worker_index(const fleet *f)
{
    return !f ? 0 : fleet_is_heter_worker(f) ? f->role.index : -1;
}

int fleet_heter_worker_num(const fleet *f)
{
    return f ? f->role.stages.n_heter : 0;
}

int fleet_stage_id(const fleet *f)
{
    return !f ? 0 : fleet_is_server(f) ? -1 : f->role.stages.own;
}

int fleet_stage_num(const fleet *f)
{
    if (!f)
        return 0;
    return f->role.stages.n_heter > 0 ? f->role.stages.n : 1;
}

int fleet_worker_gpu(const fleet *f)
{
    return f ? f->role.gpu : 0;
}

const char *fleet_server_endpoints(const fleet *f)
{
    return f && f->role.endpoints ? f->role.endpoints : "";
}
