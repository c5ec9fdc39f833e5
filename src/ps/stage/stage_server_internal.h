/* stage_server_internal.h - the state of a stage's socket, shared by
 * stage_server.c (its thread, and what the other thread asks) and
 * stage_requests.c (what its trainers ask). */
#pragma once

#include "base/thread.h"
#include "net/socket.h"
#include "ps/stage/stage_server.h"

enum { FL_STAGE_NOBODY = -1 };

typedef struct fl_stage_peer {
    bool known, left, taken; /* taken: its batch is with the other thread */
    fl_peer peer;
    uint32_t incarnation;
    uint64_t done;        /* number of its last request that was answered */
    uint64_t n_ended;     /* passes that it has ended */
    uint64_t progress;    /* requests */
    uint64_t trained_at;  /* the heter worker's step that its last batch is part
                             of; 0: there was none */
    fl_packet *batch;     /* that has come, or is taken; NULL: none */
    fl_msg_head asked;    /* head of the request under way, as it came last */
    fl_msg_head answered; /* and as it was when its answer was begun */
    fl_packet *answer;    /* to request `done`; NULL: none */
    bool answer_is_new;   /* it has not been sent */
    bool trained;         /* its batch of this round, by the process before */
} fl_stage_peer;

struct fl_stage_server {
    fl_stage_server_options o;
    uint64_t job;
    uint32_t nonce;
    fl_packet_pool *pool;
    fl_guard *guard;
    fl_socket *socket; /* the thread's */
    fl_wakeup wakeup;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t came;
    bool stop;
    char why[900]; /* with which it stops; "": it ends well */
    fl_error error;
    fl_stage_peer *trainer; /* n_trainer of them */
    uint64_t n_over;        /* passes that are over for all */
    uint64_t progress;      /* of this process: batches that it has done */
    int awaited;            /* the trainer that the other thread waits for */
    int served;             /* fl_stage_server_any() was its batch last */
    uint64_t step, updates; /* where the heter worker stands */
    bool goes_on;           /* the process before stood at that */
    fl_msg msg;             /* the thread's, that is being read */
    fl_msg again;           /* an answer that is written again */
};

/* By its stream, which is one of the server's. */
static inline fl_stage_peer *fl_stage_peer_of(const fl_stage_server *s,
                                              uint32_t stream)
{
    return &s->trainer[stream - (uint32_t)s->o.first_trainer];
}

/* --- stage_requests.c: under the lock ------------------------------------- */

void fl_stage_begin_message(const fl_stage_server *s, const fl_msg_head *to,
                            fl_msg_kind kind, fl_msg_status status,
                            fl_msg_writer *w);
void fl_stage_begin_answer(const fl_stage_server *s, const fl_msg_head *to,
                           fl_msg_status status, fl_msg_writer *w);

/* The trainer's request `number` is done. The packet becomes the server's. */
void fl_stage_keep_answer(fl_stage_peer *t, uint64_t number, fl_packet *p);

/* What is to be written down of it: of an end, and the head of a batch's. */
fl_stage_record fl_stage_record_of(const fl_stage_server *s,
                                   const fl_stage_peer *t, uint64_t number);

void fl_stage_take_packet(fl_stage_server *s, const fl_peer *from,
                          fl_packet *p);
