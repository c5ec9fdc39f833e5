/* scheduler_env.h - MindSpore's variables, by which processes find each other
 * through a scheduler in place of lists: MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT,
 * MS_SERVER_NUM, MS_WORKER_NUM, and MS_NODE_ID. */
#pragma once

#include <fleet/init.h>

#include "base/text.h"
#include "fleet/role/scheduler_table.h"
#include "net/resolve.h"

typedef struct fl_scheduler_env {
    bool schedules;          /* it is the scheduler itself */
    int role;                /* else FL_SCHEDULED_SERVER or _WORKER */
    int num[FL_N_SCHEDULED]; /* of all, by role */
    fl_address address;      /* of the scheduler; its host may be a name */
    char id[FL_ROSTER_ID];   /* MS_NODE_ID, or drawn */
} fl_scheduler_env;

/* *found false: none of them is set.
 *
 *   FLEET_ENOENT  a further one that is needed is not set
 *   FLEET_EINVAL  one that is malformed; Paddle's lists or numbers are set, too
 *   FLEET_EUNSUPPORTED  a role that this version does not have, or what goes
 *                 with lists alone */
fleet_status fl_scheduler_env_read(fl_scheduler_env *e, bool *found);

/* The role of a process that only looks at its job, which asks no scheduler:
 * the first of its kind, and servers without addresses, "inproc://", whose list
 * is put into `servers`. *found false: the environment says no scheduler, and
 * the role is all zeros. Failures: as of fl_scheduler_env_read(). */
fleet_status fl_scheduler_env_alone(fleet_role *role, fl_text *servers,
                                    bool *found);
