/* stage_role.h - the stages of a job (docs/heter.md) as Fleet's environment
 * says them: which processes are in which one, and whether its variables
 * agree. */
#pragma once

#include "ps/server/lane.h"

enum { FL_MOST_STAGE = 16 };

/* Numbers of stages begin with 0, that of the workers; STAGE_ID, as Fleet's
 * launcher sets it, begins with 1. */
typedef struct fl_stage_role {
    int n;   /* stages; 0: the job has none, or a server was not told */
    int own; /* of this process; 0: a worker's */
    int num[FL_MOST_STAGE]; /* processes of a stage */
    fl_address *heter;      /* heter workers, stage after stage */
    char *endpoints;        /* the same, as they were given */
    int n_heter;
    bool on_gpu; /* HETER_DEVICE_TYPE of a heter worker */
} fl_stage_role;

/* The variable that lists all heter workers, and makes a job one of stages. */
extern const char fl_stage_role_list[];

/* A variable that is set and only a job of stages has; NULL: there is none. */
const char *fl_stage_role_variable(void);

/* Of a process in that role, as TRAINING_ROLE says it, in a job with servers
 * and n_worker workers. *s may always be given to fl_stage_role_done().
 *
 *   FLEET_ENOENT       a variable that another variable needs is not set
 *   FLEET_EINVAL       one that is malformed, or contradicts another
 *   FLEET_EUNSUPPORTED a device that this version does not have
 */
fleet_status fl_stage_role_read(fl_stage_role *s, const char *role,
                                int n_worker);
void fl_stage_role_done(fl_stage_role *s);

/* The first heter worker of a stage, from 1 on. */
int fl_stage_role_first(const fl_stage_role *s, int stage);

/* Which heter worker this process is: POD_IP:PADDLE_PORT, of its stage. */
fleet_status fl_stage_role_find_self(const fl_stage_role *s, int *index);
