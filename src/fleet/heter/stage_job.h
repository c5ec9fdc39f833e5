/* stage_job.h - a program that the processes of a job train in stages: what of
 * it is this process's, and its connection to the other stage. */
#pragma once

#include "fleet/job/handle.h"
#include "ps/stage/stage_client.h"
#include "ps/stage/stage_server.h"
#include "runtime/stages/cut.h"

typedef struct fl_stage_job {
    fl_stage_link link;     /* of a trainer's program: to `client`; first */
    fleet_program *program; /* of this process; NULL: a server has none */
    int first_trainer, n_trainer; /* workers that the heter worker serves */
    char *boundary;               /* what crosses, as both processes say it */
    const char **crossing;        /* names of that; n of them */
    bool *goes_back;
    int n;
    int n_in_flight;         /* batches of a worker, at most */
    int heter;               /* the heter worker: this process, or its */
    char name[32];           /* of that one */
    fl_stage_client *client; /* of a trainer; NULL: not connected, or left */
    fl_stage_server *server; /* of a heter worker, likewise */
    fl_stage_log *log;       /* of a heter worker that leaves a trail */
} fl_stage_job;

/* The program is about to be trained, as all of it would be: cut it, and make
 * of it what is this process's. In a job without stages nothing is done.
 *
 *   FLEET_EUNSUPPORTED  a cut, or a strategy, that this version does not train
 *                       in stages
 *   FLEET_EINVAL        the guards make other stages than the job has
 */
fleet_status fl_stage_job_make(fleet *f, fleet_program *p);

/* Once the store has all parameters: which ones this process's steps do
 * without. */
void fl_stage_job_mark(fleet *f);

/* Once the servers are connected, in any job with servers: all workers come,
 * and the weights are the servers' of then; this process is connected to the
 * other stage. */
fleet_status fl_stage_job_meet(fleet *f);

/* A trainer leaves. */
fleet_status fl_stage_job_leave(fleet *f);

/* The handle goes; the other stage hears why, if this process has not left. */
void fl_stage_job_close(fleet *f);
