/* client.h - a worker's side of the protocol: a single-threaded state machine
 * that sends requests to lanes, again where they were lost, and matches
 * answers. Its host (worker_io.c, or a simulator) hands it packets and the
 * time, and sends what it has to send; nothing in it waits.
 *
 * A request is lost when the lane has answered a heartbeat that was sent after
 * it, and has neither answered the request nor said that the request waits.
 */
#pragma once

#include "base/log.h"
#include "net/message.h"

typedef enum fl_request_state {
    FL_REQUEST_IDLE,
    FL_REQUEST_SENT,
    FL_REQUEST_DONE /* answered; or the client has failed */
} fl_request_state;

/* One request to one lane: of one message, or of a step's pieces. The caller's
 * memory, zeroed before its first use; it must stay until it is done or
 * cancelled. */
typedef struct fl_request {
    fl_request_state state;
    fl_msg_status status; /* once done */
    bool stops;           /* once done: its answer has the flag STOP */
    fl_packet *answer;    /* once done: the request's, until it is cleared */

    /* the client's */
    int lane;
    uint8_t kind;
    uint64_t id;
    fl_packet **piece;
    int n_piece, piece_capacity;
    int n_sent, n_taken; /* pieces */
    size_t in_flight;
    int64_t begun_ms; /* when its first piece was sent; -1: it waits for the
                         window, and those before it have a deadline */
    int64_t sent_ms;
    int64_t waiting_ms; /* since when it is known to wait without progress of
                           what it waits for; -1: it is not */
    uint64_t heartbeat; /* the last one when it was sent, or said to wait */
    bool lost, leaves;  /* leaves: its step is the stream's last */
    bool normed; /* a step of which the lane has said the norms: it is sent, and
                    sent again if the lane has lost it, until it goes on */
    uint32_t missing;  /* the worker that it waits for */
    uint64_t progress; /* how far that worker is, or the lane's command */
    struct fl_request *next;
} fl_request;

typedef struct fl_client fl_client;

typedef struct fl_client_options {
    const char *job;
    uint32_t stream;
    int n_stream, n_heter;                /* as fl_stream_name() takes them */
    int64_t request_ms, peer_ms, step_ms; /* deadlines */
    int64_t restart_ms; /* servers write logs: how long one that is silent is
                           waited for; 0: for peer_ms */
    int64_t heartbeat_ms;
    bool whole_sums;     /* CRC of columns too */
    bool replicas;       /* each lane has two copies */
    bool holds_bye;      /* a lane that the stream has left is told so by
                        fl_client_say_bye() alone */
    bool waits_to_leave; /* LEAVE, too, waits for restart_ms: the lane's next
                            process would wait for it without end */
    size_t window; /* bytes to a lane until it says how much it takes; 0: 16
                        MB */
    fl_packet_pool *pool;
    fl_log *log; /* NULL: none */
} fl_client_options;

enum { FL_LANE_NAME = 160 };

/* The second copy of lane i of n has the number n + i: with replicas, or when
 * moved() has said where it is. */
typedef struct fl_client_host {
    void *arg;
    void (*send)(void *arg, int lane, fl_packet *p);
    /* That copy of a lane is in another process from now on, where `address`
     * says (JSON, as HELLO's answer has it); name: as _add_lane() has it, if it
     * is another one from then on. NULL: it finds its way. */
    fleet_status (*moved)(void *arg, int lane, const char *address,
                          char name[FL_LANE_NAME]);
} fl_client_host;

fleet_status fl_client_create(fl_client **client, const fl_client_options *o,
                              const fl_client_host *host);
void fl_client_destroy(fl_client *c);

/* One more lane; `name` for messages ("server 1 at 127.0.0.1:6170"), kept by
 * copy. Lanes are numbered from 0 as they come. */
fleet_status fl_client_add_lane(fl_client *c, const char *name, int64_t now_ms);
void fl_client_set_incarnation(fl_client *c, uint32_t incarnation);

/* From then on messages are of that run, and for the process of that nonce; an
 * answer of another run or process fails the client. */
void fl_client_set_run(fl_client *c, uint32_t run);
/* Of the map of buckets, which each message says. */
void fl_client_set_view(fl_client *c, uint32_t view);
void fl_client_set_peer(fl_client *c, int lane, uint32_t nonce);

/* --- requests ------------------------------------------------------------- */

/* Forget what the request was about; for a new one. */
void fl_request_clear(fl_request *r);
void fl_request_done(fl_request *r); /* and its memory */

/* Make a piece: begin the message of a request to a lane that is cleared, or
 * that has pieces already; write sections; fl_client_add() takes it. */
void fl_client_begin(fl_client *c, int lane, fl_request *r, fl_msg_writer *w,
                     fl_msg_kind kind, uint64_t step, uint16_t flags);
fleet_status fl_client_add(fl_client *c, fl_request *r, fl_msg_writer *w);

/* A step whose norms are known goes on with the piece that is made next: it
 * alone is sent, but all of them if it is lost, or if the lane has lost the
 * step. */
void fl_request_go_on(fl_client *c, fl_request *r);

/* Send it to its lane. A client that has failed makes it done at once. */
void fl_client_send(fl_client *c, fl_request *r, int64_t now_ms);
void fl_client_cancel(fl_client *c, fl_request *r);

/* Cancel n requests and free their array; NULL is fine. */
void fl_client_forget(fl_client *c, fl_request *r, int n);

/* Nothing more comes unless its sender goes on. */
static inline bool fl_request_is_over(const fl_request *r)
{
    return r->state == FL_REQUEST_DONE || r->normed;
}

/* It is done, and well. */
static inline bool fl_request_is_answered(const fl_request *r)
{
    return r->state == FL_REQUEST_DONE && r->answer &&
           r->status == FL_ANSWER_OK;
}

/* The answer, read; NULL: there is none. The client's, until the next call. */
const fl_msg *fl_client_answer(fl_client *c, const fl_request *r);

/* The status of what a done request has come to: FLEET_OK, or a failure whose
 * text is set: the client's, or what the lane said. `what` begins the text. */
fleet_status fl_client_result(fl_client *c, const fl_request *r,
                              const char *what);

/* --- events --------------------------------------------------------------- */

/* A lane that has answered the stream's last step is told so, and is not missed
 * any more. If that step alone is under way and the lane falls silent, it has
 * made the step, or has nothing to lose: it counts as answered, with a line in
 * the log. */
void fl_client_receive(fl_client *c, int lane, fl_packet *p, int64_t now_ms);

/* Heartbeats, resends, deadlines. Call it at least every heartbeat_ms: if it
 * comes much later, this process did not run, and did not hear the lanes. */
void fl_client_tick(fl_client *c, int64_t now_ms);

/* The stream has left all lanes: each may end. */
void fl_client_say_bye(fl_client *c);

/* From now on lanes are watched: heartbeats, and the peer deadline. */
void fl_client_watch(fl_client *c, bool watch, int64_t now_ms);

/* Give up: requests are done, lanes are told (tell). The first failure
 * stays. */
void fl_client_fail(fl_client *c, fleet_status code, const char *why,
                    bool tell);
fleet_status fl_client_status(const fl_client *c); /* sets the text, too */

/* It grows while lanes answer, and get on with their own work. */
uint64_t fl_client_progress(const fl_client *c);

/* The name that was given to a lane. */
const char *fl_client_lane_name(const fl_client *c, int lane);
