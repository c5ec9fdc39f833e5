/* stage_server_internal.h - the state of a stage's socket, shared by
 * stage_server.c (its thread, and what the other thread asks) and
 * stage_requests.c (what its trainers ask). */
#pragma once

#include "base/thread.h"
#include "net/socket.h"
#include "ps/stage/stage_server.h"

enum { FL_STAGE_NOBODY = -1 };

/* A batch of a trainer; or, at the first place, the end of a pass or of all. */
typedef struct fl_stage_request {
    fl_packet *batch;     /* that has come, or is taken; NULL: none */
    fl_msg_head asked;    /* head of the request, as it came last */
    fl_msg_head answered; /* and as it was when its answer was begun */
    fl_packet *answer;    /* NULL: none */
    bool answer_is_new;   /* it has not been sent */
} fl_stage_request;

typedef struct fl_stage_peer {
    bool known, left;
    bool told; /* that it has left the next stage knows */
    fl_peer peer;
    uint32_t incarnation;
    uint64_t number;     /* of its last request, or of the batches in flight */
    bool whole;          /* all of that was answered, as far as there is a log
                            written down: the next number may come */
    int n_taken;         /* of these batches, by the other thread */
    int n_answered;      /* by it */
    uint64_t n_ended;    /* passes that it has ended */
    uint64_t ended_at;   /* number of the last such request */
    uint64_t progress;   /* requests */
    uint64_t trained_at; /* the heter worker's step that its last batch is part
                            of; 0: there was none */
    fl_stage_request *request; /* n_in_flight, by place */
    bool trained;              /* its batches of this round, by the process
                                  before */
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
    uint64_t progress;      /* of this process: batches that it has done, and
                               what the next stage gets on with */
    uint64_t next_progress; /* of that stage, as it was last */
    int awaited;            /* the trainer that the other thread waits for */
    int served;             /* fl_stage_server_any() was its batch last */
    uint64_t step, updates; /* where the heter worker stands */
    bool goes_on;           /* the process before stood at that */
    fl_msg msg;             /* the thread's, that is being read */
    fl_msg again;           /* an answer that is written again */
};

/* Whose key its messages come with. */
static inline int fl_stage_key_of(const fl_stage_server *s, uint32_t stream)
{
    return s->o.key ? s->o.key[stream - (uint32_t)s->o.first_trainer]
                    : (int)stream;
}

/* By its stream, which is one of the server's. */
static inline fl_stage_peer *fl_stage_peer_of(const fl_stage_server *s,
                                              uint32_t stream)
{
    return &s->trainer[stream - (uint32_t)s->o.first_trainer];
}

/* The batch that the other thread gets next; NULL: it has not come. */
static inline fl_stage_request *fl_stage_next_batch(const fl_stage_server *s,
                                                    const fl_stage_peer *t)
{
    return !t->whole && t->n_taken < s->o.n_in_flight &&
                   t->request[t->n_taken].batch
               ? &t->request[t->n_taken]
               : NULL;
}

/* --- stage_requests.c: under the lock ------------------------------------- */

void fl_stage_begin_message(const fl_stage_server *s, const fl_msg_head *to,
                            fl_msg_kind kind, fl_msg_status status,
                            fl_msg_writer *w);
void fl_stage_begin_answer(const fl_stage_server *s, const fl_msg_head *to,
                           fl_msg_status status, fl_msg_writer *w);

/* An answer to it is kept until a request of the next number comes. The packet
 * becomes the server's. */
void fl_stage_keep_answer(fl_stage_request *q, fl_packet *p);

/* Its answer, headed as an answer to that request: the process that asks may be
 * another one than that which asked first. false: it cannot be written now, and
 * is asked for again. */
bool fl_stage_head_anew(fl_stage_server *s, fl_stage_request *q,
                        const fl_msg_head *head);

/* What is to be written down of it: the head of a batch's; of an end. */
fl_stage_record fl_stage_record_of(const fl_stage_server *s,
                                   const fl_stage_peer *t, uint64_t number);
fl_stage_record fl_stage_record_of_end(const fl_stage_server *s,
                                       const fl_stage_peer *t, uint64_t number);

void fl_stage_take_packet(fl_stage_server *s, const fl_peer *from,
                          fl_packet *p);
