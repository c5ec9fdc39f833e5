/* scheduling.c - the scheduler of fleet/role, in a handle. */
#include "fleet/scheduling.h"

#include "fleet/role/env.h"
#include "fleet/server_stop.h"
#include "ps/worker/handshake.h"

fleet_status fl_scheduling_open(fleet *f)
{
    const fl_role *r = &f->role;
    const fleet_distributed_strategy *strategy = &f->strategy;
    const fl_scheduler_options o = {
        .env = &r->scheduler_env,
        .job = r->job_id,
        .keys = r->scheduler_keys,
        .insecure = r->insecure,
        .connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
        .restart_ms = strategy->log == FLEET_DURABLE_NONE
                          ? 0
                          : strategy->log_configs.restart_deadline_ms,
        .log = &f->context.log};

    if (f->scheduler)
        return FLEET_OK;
    FL_TRY(fl_scheduler_open(&f->scheduler, &o));
    FL_INFO(&f->context.log,
            "scheduler at %s: waits for %d servers and %d workers",
            fl_address_text(r->scheduler_env.address), r->server_num,
            r->worker_num);
    return FLEET_OK;
}

static bool is_stopped(void *arg)
{
    const unsigned *before = arg;
    const char *why;

    return fl_server_stops(&why) != *before;
}

fleet_status fl_scheduling_run(fleet *f)
{
    fl_server_pair none = {0};
    fleet_status status;
    unsigned before;
    const char *why;

    FL_TRY(fl_scheduling_open(f));
    before = fl_server_stops(&why);
    FL_TRY(fl_server_pair_begin(&none, !f->role.no_sigterm_handler));
    status = fl_scheduler_run(f->scheduler, is_stopped, &before);
    fl_server_pair_end(&none);
    return status;
}

void fl_scheduling_close(fleet *f)
{
    fl_scheduler_close(f->scheduler);
    f->scheduler = NULL;
}
