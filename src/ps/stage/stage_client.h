/* stage_client.h - the link (runtime/stages/stage_link.h) of a trainer, or of a
 * heter worker for one trainer's batches, to the process of the next stage: a
 * batch goes to it, and its loss and gradients come back. By requests of
 * ps/worker/client.h, so that a lost message is sent again, a slow process
 * waited for, and a dead one named. Batches in flight have one number, and
 * places of their own in it: they are the pieces of a step.
 *
 * Threads: one at a time. Nothing is sent while no call waits: that this
 * trainer lives its servers know. */
#pragma once

#include "net/keys.h"
#include "net/resolve.h"
#include "ps/worker/client.h"
#include "runtime/stages/stage_link.h"

typedef struct fl_stage_client fl_stage_client;

typedef struct fl_stage_client_options {
    fl_log *log;
    const char *address;  /* of the other process: "tcp://ip:port" */
    const char *name;     /* for messages: "heter worker 0" */
    const char *own_name; /* of this process; NULL: it is the trainer */
    int key;              /* which worker's key it has */
    const fl_keys *keys;  /* NULL: none are used */
    const char *job;
    uint32_t run, incarnation; /* as the job's servers have given them */
    int trainer;               /* whose batches they are */
    const char *boundary;      /* what crosses: both processes say the same */
    int n_in_flight;           /* batches at once; 0: 1 */
    int64_t connect_ms, request_ms, peer_ms, step_ms; /* deadlines */
    int64_t restart_ms; /* it has a log: how long it is waited for when it is
                           silent; 0: for peer_ms */

    /* The number of the request, or of the batches in flight, that come next:
     * the step of this trainer's stream with which what comes of it goes to the
     * servers, so that another process of the trainer says the same. NULL:
     * requests are counted. */
    uint64_t (*number)(void *arg);

    /* How the job does; asked while a call waits. */
    fleet_status (*status)(void *arg);
    void *arg;
} fl_stage_client_options;

/* Says hello, and waits for the answer until the connect deadline. Texts of the
 * options are used in this call alone, but for job and name. */
fleet_status fl_stage_client_open(fl_stage_client **client,
                                  const fl_stage_client_options *o);

/* A client that has not left tells why: the thread's last failure. NULL is
 * fine. */
void fl_stage_client_close(fl_stage_client *c);

fl_stage_link *fl_stage_client_link(fl_stage_client *c);

/* It grows while the other process gets on with its own work. */
uint64_t fl_stage_client_progress(const fl_stage_client *c);

/* The trainer's pass is over: no batch of it comes any more. */
fleet_status fl_stage_client_end_pass(fl_stage_client *c);

/* Nothing comes any more. */
fleet_status fl_stage_client_leave(fl_stage_client *c);
