/* lane_replica.h - two copies of a lane: the one that leads takes workers'
 * messages, the other one follows, a record at a time, and leads as soon as a
 * worker misses the first. docs/adr/0076.
 *
 *   leads    each record is kept until the follower has it, and an answer that
 *            came after a record waits until then
 *   follows  asks for records from a number on, which says that it has all
 *            before; applies them as a replay does
 *   alone    leads, without a follower: every worker has promised not to make
 *            the other copy lead; or a worker has made this one lead
 *   gone     has led: the other copy leads, and workers are told so
 *
 * One that is alone makes the other copy again when a process asks for it
 * (lane_copy.h).
 *
 * Which one leads is said by the lane's view (ps/lane_view.h). */
#pragma once

#include "ps/lane_view.h"
#include "ps/server/lane_internal.h"

enum { FL_REPLICA_BATCH = 4 << 20 }; /* bytes of records in a message */

typedef struct fl_held_answer {
    struct fl_held_answer *next;
    fl_peer to;
    fl_msg_head head;
    uint64_t lsn; /* goes out when the follower has this record */
    fl_packet *packet;
} fl_held_answer;

/* Of a follower, or of one that is to be. */
typedef struct fl_question {
    fl_peer peer;
    fl_msg_head head;
} fl_question;

struct fl_replica {
    fl_replica_role role;
    uint32_t view;
    fl_journal_sink next; /* the lane's journal; put NULL: none */

    /* of one that leads */
    char *log; /* records that the follower may not have, as in a file */
    size_t from, used, capacity;
    uint64_t first;       /* LSN of the record at `from` */
    uint64_t last, acked; /* put; that the follower has */
    bool attached;        /* it has asked once; of one that follows: it knows
                             its leader's process */
    uint32_t process;     /* of one that leads: its follower's number */
    bool asks;            /* and has no answer yet */
    fl_question question;
    int64_t heard_ms; /* of the follower; of one that follows: of the leader */
    bool proposes;    /* to go on alone */
    bool *promised;   /* by stream */
    bool *said;       /* by stream: that it knows the epoch */
    bool begins;      /* the epoch: not all have */
    uint64_t *left;   /* the record with which it has left; 0: it has not */
    fl_held_answer *held, **last_held;
    int64_t gone_ms;    /* since when another one leads */
    bool cleared;       /* what it has kept */
    fl_lane_copy *copy; /* that is made again; NULL: none is */
    fl_lane_copy
        *ending;    /* one that is not; what writes for it has not ended */
    uint32_t epoch; /* of the last one */
    bool moves;     /* the copy is to lead: the lane goes to that server's
                       process */
    int mover;
    bool told;       /* it was, once: a copy is made when it moves alone */
    int64_t move_ms; /* it was told to; since when the epoch has begun */

    /* of one that follows */
    uint64_t want;              /* the next record */
    uint64_t asked;             /* requests */
    int64_t asked_ms, begun_ms; /* last; when it began */
    char *batch;                /* records that have come */
    size_t at, batch_size, batch_capacity;
    bool voted;       /* a worker wants it to lead, as soon as it can */
    bool fencing;     /* the one that has led is to hear so */
    int64_t led_ms;   /* since when this one leads */
    bool late;        /* what it follows was at work before */
    bool dropped;     /* its leader goes on without it */
    const char *load; /* what that one begins with; NULL: nothing */
};

/* A lane was made with options.replica. */
fleet_status fl_replica_begin(fl_ps_lane *l);
void fl_replica_done(fl_ps_lane *l);

/* Which copy leads, as its messages say; and with its map of buckets. */
static inline uint32_t fl_replica_view_of(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    bool proposes = r && r->role == FL_REPLICA_LEADS && r->proposes;

    return r ? r->view + (proposes ? FL_VIEW_ALONE : 0) : 0;
}

static inline uint32_t fl_replica_view(const fl_ps_lane *l)
{
    return fl_view_with(l->o.map->view, fl_replica_view_of(l));
}

/* It has no say any more, or none yet. */
static inline bool fl_replica_follows(const fl_ps_lane *l)
{
    return l->replica && l->replica->role == FL_REPLICA_FOLLOWS;
}

/* Of a lane that was the only copy, and begins to have two. */
fleet_status fl_replica_begin_alone(fl_ps_lane *l);

/* --- one that leads (lane_replica.c) -------------------------------------- */

/* l->msg is a follower's. */
bool fl_replica_admits(fl_ps_lane *l, const fl_peer *from);

/* An answer that must wait for the follower is taken over, with its reference:
 * true. */
bool fl_replica_holds(fl_ps_lane *l, const fl_peer *to, const fl_msg_head *head,
                      fl_packet *p);

/* l->msg, a worker's heartbeat: its promise; and what it waits for. */
void fl_replica_heartbeat(fl_ps_lane *l, const fl_peer *from);

/* An answer to such a question: one without sections, one with records. */
void fl_replica_answer(fl_ps_lane *l, const fl_question *q,
                       fl_msg_status status, uint32_t view, uint16_t flags);
void fl_replica_send(fl_ps_lane *l, const fl_question *q, uint32_t view,
                     const char *records, size_t bytes);

/* Where the server's lanes are; or copies that its process has. */
void fl_replica_say_lanes(fl_ps_lane *l, const fl_question *q,
                          fl_msg_status status);
void fl_replica_say_copies(fl_ps_lane *l, const fl_question *q);

/* Records are kept for a follower from now on; or no more, and answers that
 * wait go out. */
void fl_replica_keep(fl_ps_lane *l, uint64_t first);
void fl_replica_forget_follower(fl_ps_lane *l);

/* Of the records that are kept the first ones, as many as a message has. */
size_t fl_replica_batch(const fl_replica *r);

/* The first of them to the follower, which has asked. */
void fl_replica_send_kept(fl_ps_lane *l);

/* A worker has made the follower lead. */
void fl_replica_give_way(fl_ps_lane *l);

/* The follower has all before that one. */
void fl_replica_acknowledge(fl_ps_lane *l, uint64_t want);

/* What one process of a worker has promised the next one has not. */
void fl_replica_forget_promise(fl_ps_lane *l, uint32_t stream);

/* l->msg, a worker's, says that another copy leads, or is told so: true. */
bool fl_replica_is_past(fl_ps_lane *l, const fl_peer *from);

/* How long a worker may be silent: one that is cut off from this copy alone
 * goes to the other one, which says so; and a copy that is cut off from that
 * one, too, has no say in it. */
int64_t fl_replica_peer_ms(const fl_ps_lane *l);

/* The record that was put last is that the stream has left. */
void fl_replica_note_left(fl_ps_lane *l, uint32_t stream);

/* All workers have left: may the lane end? The follower is told then. */
bool fl_replica_may_end(fl_ps_lane *l);
void fl_replica_abort(fl_ps_lane *l); /* the lane has failed */

/* Deadlines; true: it is no lane of workers now, which has deadlines of its
 * own. */
bool fl_replica_tick(fl_ps_lane *l);

/* Goes on without another copy. */
void fl_replica_stand_alone(fl_ps_lane *l, uint32_t view);
