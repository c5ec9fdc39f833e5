/* client_internal.h - the state of a client, shared by client.c (requests) and
 * client_liveness.c (heartbeats and deadlines). */
#pragma once

#include "base/clock.h"
#include "ps/lane_view.h"
#include "ps/worker/client.h"

typedef struct fl_client_lane {
    char name[FL_LANE_NAME];
    uint32_t peer; /* nonce of the server's process; 0: not known yet */
    int64_t heard_ms;
    uint64_t heard_heartbeat; /* number of the last one that was answered */
    size_t in_flight, window; /* bytes */
    bool left;                /* the stream has, and knows it */
    bool missed;              /* the log says that it is waited for */

    /* of its copies */
    char other_name[FL_LANE_NAME]; /* "": the same */
    int at;        /* which one this worker takes for the leader, 0 or 1 */
    uint32_t view; /* lane_view.h */
    uint32_t other_view;
    uint32_t knows;      /* epoch of the other one that it has the way to */
    int64_t asked_other; /* heartbeats to a next place since it was heard of */
    int64_t other_ms, asked_ms; /* when the other one was heard of, and asked;
                                   0: it was not */
    fl_request *first;          /* under way, in the order they were sent */
} fl_client_lane;

struct fl_client {
    fl_client_options o;
    fl_client_host host;
    fl_awake awake; /* the clock of all times below */
    bool began;     /* that clock */
    uint64_t job, requests, heartbeats;
    uint64_t progress; /* grows while lanes answer, or work for this worker:
                          heartbeats say it to the lanes that wait for it */
    uint32_t incarnation, view;
    fl_client_lane *lane;
    int n_lane;
    size_t lane_capacity;
    bool watching;
    int64_t heartbeat_at_ms;
    fl_error error; /* FLEET_OK: none */
    fl_msg msg;     /* that is being read */
};

/* The head of a message to that lane, without request and step. */
fl_msg_head fl_client_head(const fl_client *c, int lane, fl_msg_kind kind);

/* The time by the client's own clock. */
int64_t fl_client_awake(fl_client *c, int64_t now_ms);

/* The lane is gone, or another process has its address: true, if that is no
 * failure, because the stream has left it, or waits for nothing but the lane's
 * word that it has. The answer was lost with its connection then, and the lane
 * has ended; or it died, and had answered all that matters. */
bool fl_client_part(fl_client *c, int lane, const char *why);

/* Its server may be one that is started again: it is silent. */
bool fl_client_is_away(const fl_client *c, const fl_client_lane *l,
                       int64_t now_ms);

/* The lane is heard of: requests' deadlines did not run while it was away. */
void fl_client_came_back(fl_client *c, fl_client_lane *l, int64_t now_ms);

/* One message without sections, to that copy of the lane. */
void fl_client_say(fl_client *c, int lane, int copy, fl_msg_head *head);

/* As the host has it. */
static inline int fl_client_number(const fl_client *c, int lane, int copy)
{
    return lane + copy * c->n_lane;
}

/* --- two copies of each lane ---------------------------------------------- */

/* The lane has another copy, or has had one as it went to another process. */
static inline bool fl_client_has_other(const fl_client *c,
                                       const fl_client_lane *l)
{
    return c->o.replicas || l->knows > 0;
}

/* Either copy may lead. */
static inline bool fl_client_may_turn(const fl_client *c,
                                      const fl_client_lane *l)
{
    return c->o.replicas ||
           (l->knows > 0 && fl_view_epoch(l->view) == l->knows &&
            fl_view_part(l->view) == FL_VIEW_BOTH);
}

/* c->msg, from that copy: is it of use, as the lane's word? */
bool fl_client_hears(fl_client *c, int lane, int copy, int64_t now_ms);

/* c->msg answers a heartbeat: a lane that makes its other copy again, in
 * another process, says where. */
void fl_client_hear_address(fl_client *c, int lane);

/* The lane is silent, or does not get on: which copy leads? */
void fl_client_look_for_leader(fl_client *c, int lane, int64_t now_ms);

/* All of it, from its first piece on. */
void fl_client_send_again(fl_client *c, fl_request *r, int64_t now_ms);

/* The request is over, and its memory the caller's again. */
void fl_client_unlink(fl_client *c, fl_request *r);

/* Send what the window allows; one piece may always be under way. */
void fl_client_send_pieces(fl_client *c, int lane, int64_t now_ms);
