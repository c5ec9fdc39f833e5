/* job_mode.c - the mode of a job, and its name. */
#include "fleet/job/job_mode.h"

/* A field of half-async is not at its default. */
static bool gathers(const fleet_a_sync_configs *c)
{
    const fleet_a_sync_configs one =
        fleet_distributed_strategy_default().a_sync_configs;

    return c->max_merge_var_num != one.max_merge_var_num ||
           c->send_queue_size != one.send_queue_size ||
           c->independent_recv_thread != one.independent_recv_thread ||
           c->min_send_grad_num_before_recv !=
               one.min_send_grad_num_before_recv;
}

fl_job_mode fl_job_mode_of(const fl_role *role,
                           const fleet_distributed_strategy *s)
{
    if (role->server_num == 0)
        return role->collective ? FL_COLLECTIVE : FL_LOCAL;
    if (role->collective && s->is_collective)
        return s->a_sync ? FL_HYBRID_ASYNC : FL_HYBRID_SYNC;
    if (!s->a_sync)
        return FL_PS_SYNC;
    if (s->a_sync_configs.k_steps > 0)
        return FL_PS_GEO;
    return gathers(&s->a_sync_configs) ? FL_PS_HALF_ASYNC : FL_PS_ASYNC;
}

const char *fl_job_mode_name(fl_job_mode mode)
{
    static const char *const name[] = {
        [FL_LOCAL] = "local",           [FL_PS_SYNC] = "ps-sync",
        [FL_PS_ASYNC] = "ps-async",     [FL_PS_GEO] = "ps-geo",
        [FL_COLLECTIVE] = "collective", [FL_HYBRID_SYNC] = "hybrid",
        [FL_HYBRID_ASYNC] = "hybrid",   [FL_PS_HALF_ASYNC] = "ps-half-async",
    };

    return name[mode];
}
