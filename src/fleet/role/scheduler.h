/* scheduler.h - the scheduler of a job: it serves at MS_SCHED_HOST and
 * MS_SCHED_PORT, gives servers and workers their numbers and the list of all,
 * and knows processes that come again. While it is away a job that has begun
 * goes on.
 *
 * Threads: one at a time. */
#pragma once

#include "base/log.h"
#include "fleet/role/scheduler_env.h"

typedef struct fl_scheduler fl_scheduler;

typedef struct fl_scheduler_options {
    const fl_scheduler_env *env;
    const char *job;
    const char *keys; /* a folder; NULL: none, */
    bool insecure;    /* and the port may be open to other machines */
    int64_t connect_ms, peer_ms;
    int64_t restart_ms; /* in which servers may be started again; 0: none may */
    fl_log *log;        /* NULL: none */
} fl_scheduler_options;

/* What the job's processes have to agree on. */
void fl_scheduler_introduce(const fl_scheduler_options *o,
                            fl_roster_message *own);

/* It listens. FLEET_EIO: the port is in use, or no address of this machine.
 * FLEET_EINVAL: other machines reach it, and there are no keys. */
fleet_status fl_scheduler_open(fl_scheduler **s, const fl_scheduler_options *o);

/* Until all have left the job, or are silent for too long; or stopped() says
 * so, by now. FLEET_EPEER, FLEET_ETIMEDOUT: why the job has not begun. */
fleet_status fl_scheduler_run(fl_scheduler *s, bool (*stopped)(void *arg),
                              void *arg);
void fl_scheduler_close(fl_scheduler *s); /* NULL is fine */
