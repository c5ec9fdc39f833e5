/* stage_job.h - a program that processes of a job train in stages: what of it
 * is this process's, and its ways to the stages beside its own
 * (stage_connect.h). */
#pragma once

#include "fleet/job/handle.h"
#include "ps/stage/stage_client.h"
#include "ps/stage/stage_server.h"
#include "runtime/stages/cut.h"

/* What crosses from a stage to the next one. */
typedef struct fl_boundary {
    char *text;        /* as both processes say it; NULL: there is none */
    const char **name; /* n of them */
    bool *goes_back;
    int n;
} fl_boundary;

/* From this process to the next stage, for the batches of one worker: a
 * worker's own, or of a worker that a heter worker serves. A batch has the same
 * worker and number on all its way. */
typedef struct fl_stage_way {
    int worker;              /* whose batches */
    int heter;               /* the heter worker that it leads to */
    char name[32];           /* of that one */
    fl_stage_client *client; /* NULL: not connected, or left */
    uint64_t n_ended;        /* passes of which the next stage was told */
} fl_stage_way;

typedef struct fl_stage_job {
    fl_stage_link link;     /* of a program with a next stage: by the way that
                               batches go now; first */
    fleet_program *program; /* of this process; NULL: a server has none */
    fl_boundary in, out;    /* to this stage, and to the next one */
    int n_in_flight;        /* batches of a worker, at most */
    fl_stage_way *way;
    int n_way;       /* 0: there is no next stage */
    int now;         /* the way that batches go */
    uint64_t number; /* of what a heter worker passes on */

    /* of a heter worker */
    char name[32];
    int first_trainer, n_trainer; /* workers that it serves */
    int *key;                     /* by them: which worker's key the process
                                     has that brings their batches */
    fl_stage_server *server;      /* NULL: not connected, or left */
    fl_stage_log *log;            /* NULL: it leaves no trail */
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

/* Is it a heter worker's of a stage between two, with several batches in
 * flight? They go on together then, by a crew. */
bool fl_stage_job_has_crew(const fl_stage_job *job);

/* The handle goes; the other stages hear why, if this process has not left. */
void fl_stage_job_close(fleet *f);
