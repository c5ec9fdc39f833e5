/* stage_server.h - a process of a later stage, as its trainers reach it, or as
 * heter workers of the stage before bring their trainers' batches: a
 * socket, and a thread that answers hellos and heartbeats and takes requests,
 * while another thread computes and waits for the job's servers. A trainer has
 * one request under way, or as many batches as may be in flight, which have one
 * number and a place each; numbers grow. Each request counts once, and one that
 * comes again is answered again.
 *
 * Threads: fl_stage_server_*() of one thread. */
#pragma once

#include "base/log.h"
#include "net/keys.h"
#include "net/message.h"
#include "net/resolve.h"
#include "ps/stage/stage_log.h"

typedef struct fl_stage_server fl_stage_server;

typedef struct fl_stage_server_options {
    fl_log *log;
    const char *address; /* "tcp://ip:port" or "inproc://name" */
    int listen_fd;       /* a socket that listens at it; -1: none */
    const fl_keys *keys; /* NULL: none are used */
    bool insecure;       /* without keys, other machines may come */
    const char *name;    /* "heter worker 0" */
    const char *job;
    uint32_t run;                 /* as the job's servers have given it */
    int first_trainer, n_trainer; /* workers that it serves: their streams */
    const int *key; /* by them: which worker's key the process has that brings
                       their batches; NULL: their own */
    int n_worker;   /* of the job: keys from that on are heter workers' */
    const char *boundary;     /* what crosses: trainers have to say the same */
    int n_in_flight;          /* batches of a trainer at once; 0: 1 */
    int64_t peer_ms, step_ms; /* deadlines */
    fl_stage_log *stage_log; /* NULL: none is written. Else requests are written
                               down before they are answered, and the process
                               goes on with what is in it */
    uint32_t nonce; /* the same for all processes of a log; 0: one is drawn */

    /* How the job does; asked while a call waits. */
    fleet_status (*status)(void *arg);
    void *arg;
} fl_stage_server_options;

/* It listens when that returns. Texts of the options must stay. */
fleet_status fl_stage_server_open(fl_stage_server **server,
                                  const fl_stage_server_options *o);

/* Trainers that have not left hear why, if it is not NULL. NULL is fine. */
void fl_stage_server_close(fl_stage_server *s, const char *why);

/* Where a trainer is. */
typedef enum fl_stage_event {
    FL_STAGE_BATCH,
    FL_STAGE_TRAINED,    /* the process before has done its batch of the round
                            that is under way: once, of each such trainer */
    FL_STAGE_PASS_ENDED, /* and the pass is not over for all */
    FL_STAGE_LEFT
} fl_stage_event;

/* Wait for what a trainer, by its stream, brings next. begun: other trainers
 * wait for it, until the step deadline. Of a batch *p is its message, for
 * fl_packet_drop(); fl_stage_server_answer() has to follow. */
fleet_status fl_stage_server_next(fl_stage_server *s, int trainer, bool begun,
                                  fl_stage_event *event, fl_packet **p);

/* The same, where no trainer waits for another one: the next batch of any of
 * them, in turn, with *trainer; or that all that have not left have ended the
 * pass, or that all have left. */
fleet_status fl_stage_server_any(fl_stage_server *s, int *trainer,
                                 fl_stage_event *event, fl_packet **p);

/* The gradients that go to the servers, of a batch, by lane. */
typedef struct fl_stage_parts {
    const fl_trail_packets *lane;
    int n_lane;
    fl_update_settings settings;
} fl_stage_parts;

/* Begin the answer to the trainer's batch that was taken first and is not
 * answered, and hand it over. With a log the answers to batches that are in
 * flight together are sent once the last one is there and all of them are
 * written down, with the parts: parts are of the last one, and may be NULL
 * without a log. */
void fl_stage_server_begin(fl_stage_server *s, int trainer, fl_msg_writer *w);
fleet_status fl_stage_server_answer(fl_stage_server *s, int trainer,
                                    fl_msg_writer *w,
                                    const fl_stage_parts *parts);

/* Where a trainer is by its requests: the number of the last one, of the last
 * end of a pass, and what it has ended. */
typedef struct fl_stage_place {
    uint64_t number, ended_at, n_ended;
    uint64_t n_over; /* passes that are over for all */
    bool left, told; /* it has left; and the next stage was told so */
} fl_stage_place;

fl_stage_place fl_stage_server_where(fl_stage_server *s, int trainer);

/* The next stage was told that the trainer has left, which is written down: the
 * next process would look for a stage that is gone. */
fleet_status fl_stage_server_told(fl_stage_server *s, int trainer);

/* This process waits for the next stage, whose progress is that now: trainers
 * that wait for this process hear that it gets on. */
void fl_stage_server_gets_on(fl_stage_server *s, uint64_t progress);

/* A round begins: that many steps and updates are behind it. */
void fl_stage_server_stands(fl_stage_server *s, uint64_t step,
                            uint64_t updates);

/* Was there a process before this one? Then that is what it had behind it. */
bool fl_stage_server_goes_on(const fl_stage_server *s, uint64_t *step,
                             uint64_t *updates);

/* The pass that all trainers have ended is over; its end was that step. */
void fl_stage_server_pass_over(fl_stage_server *s, uint64_t step);
