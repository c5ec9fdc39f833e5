/* servers.c - the calls of a job with servers. */
#include "fleet/handle.h"

/* What a job without servers does not need. */
static fleet_status without_servers(const fleet *f, const char *call)
{
    FL_TRY(fl_handle_check(f, call));
    if (f->role.server_num > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: this version does not talk to servers yet", call);
    return FLEET_OK;
}

static fleet_status not_a_worker(const fleet *f, const char *call)
{
    FL_TRY(fl_handle_check(f, call));
    if (fleet_is_worker(f))
        return fl_fail(FLEET_ESTATE, "%s: this process is a worker", call);
    return FLEET_OK;
}

fleet_status fleet_init_server(fleet *f, const char *path)
{
    (void)path;
    FL_TRY(not_a_worker(f, "fleet_init_server"));
    return without_servers(f, "fleet_init_server");
}

fleet_status fleet_run_server(fleet *f)
{
    FL_TRY(not_a_worker(f, "fleet_run_server"));
    return without_servers(f, "fleet_run_server");
}

fleet_status fleet_init_worker(fleet *f)
{
    FL_TRY(fl_handle_check(f, "fleet_init_worker"));
    if (!f->trained)
        return fl_fail(FLEET_ESTATE, "fleet_init_worker: call "
                                     "fleet_minimize() before");
    return without_servers(f, "fleet_init_worker");
}

fleet_status fleet_stop_worker(fleet *f)
{
    return without_servers(f, "fleet_stop_worker");
}

fleet_status fleet_barrier_worker(fleet *f)
{
    return without_servers(f, "fleet_barrier_worker");
}
