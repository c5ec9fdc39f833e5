/* job_mode.h - how a job trains, by its role and its strategy. */
#pragma once

#include <fleet/strategy.h>

#include "fleet/role/role.h"

typedef enum fl_job_mode {
    FL_LOCAL,
    FL_PS_SYNC,
    FL_PS_ASYNC,
    FL_PS_GEO, /* workers train copies, servers add up what changed */
    FL_COLLECTIVE,
    FL_HYBRID_SYNC,   /* rows on servers, dense parameters by ranks */
    FL_HYBRID_ASYNC,  /* the same, rows without waiting */
    FL_PS_HALF_ASYNC, /* FL_PS_ASYNC, with gathered pushes */
    FL_N_JOB_MODE
} fl_job_mode;
fl_job_mode fl_job_mode_of(const fl_role *role,
                           const fleet_distributed_strategy *s);
const char *fl_job_mode_name(fl_job_mode mode); /* "ps-sync" */

static inline bool fl_mode_is_sync(fl_job_mode mode)
{
    return mode != FL_PS_ASYNC && mode != FL_PS_GEO &&
           mode != FL_PS_HALF_ASYNC && mode != FL_HYBRID_ASYNC;
}

/* Do workers sum dense gradients among themselves? */
static inline bool fl_mode_has_ranks(fl_job_mode mode)
{
    return mode == FL_COLLECTIVE || mode == FL_HYBRID_SYNC ||
           mode == FL_HYBRID_ASYNC;
}
