/* job_mode.c - the mode of a job, and its name. */
#include "fleet/job/job_mode.h"

fl_job_mode fl_job_mode_of(const fl_role *role,
                           const fleet_distributed_strategy *s)
{
    if (role->server_num == 0)
        return role->collective ? FL_COLLECTIVE : FL_LOCAL;
    if (role->collective && s->is_collective)
        return s->a_sync ? FL_HYBRID_ASYNC : FL_HYBRID_SYNC;
    return s->a_sync ? FL_PS_ASYNC : FL_PS_SYNC;
}

const char *fl_job_mode_name(fl_job_mode mode)
{
    static const char *const name[] = {
        [FL_LOCAL] = "local",        [FL_PS_SYNC] = "ps-sync",
        [FL_PS_ASYNC] = "ps-async",  [FL_COLLECTIVE] = "collective",
        [FL_HYBRID_SYNC] = "hybrid", [FL_HYBRID_ASYNC] = "hybrid",
    };

    return name[mode];
}
