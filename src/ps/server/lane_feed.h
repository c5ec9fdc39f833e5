/* lane_feed.h - a lane's subscribers: processes that are no workers, and that
 * get what changes (ps/feed_log.h). The first one that comes makes the list of
 * changes begin; a lane without any has nothing of this.
 *
 * A subscriber asks, and the lane answers at once with a bounded part of what
 * is new, unless it rests from answers: it spends a tenth of its time on them
 * at most. All that it remembers of a subscriber is its last question. */
#pragma once

#include "ps/aggregate/aggregate_feed.h"
#include "ps/server/lane_internal.h"

enum {
    FL_FEED_ACTIVE_MS = 2000, /* one that was heard since then still follows */
    FL_FEED_LINGER_MS = 5000, /* that a lane stays for them at the end */
    FL_FEED_DENSE_MS = 1000,  /* that blocks wait for rows at most */
    FL_FEED_WARN_MS = 10000   /* between two lines of lost places: a subscriber
                                 may say any place */
};

typedef struct fl_subscriber {
    uint32_t number, incarnation; /* which process; 0: none has this place */
    fl_peer peer;
    int64_t heard_ms;
    bool asks; /* and has no answer yet */
    fl_msg_head request;
    fl_feed_position position;
    int64_t dense_ms; /* when it was sent blocks last */
    uint64_t told;    /* the question whose answer said that it was the last */
    bool over;        /* and it has asked again, so it has that answer */
} fl_subscriber;

typedef struct fl_feed {
    fl_feed_log log;
    uint64_t epoch;
    fl_subscriber subscriber[FL_MOST_SUBSCRIBER];
    int next;                   /* that is answered first */
    int64_t budget, counted_ms; /* of work: lane_feed.c; when it grew last */
    int64_t left_ms;            /* since when all workers have left; -1 */
    int64_t warn_ms;            /* from when on a lost place is told */
    fl_feed_rows rows;
} fl_feed;

/* Is l->msg, of kind FEED, of a process that may follow this job? If not it was
 * counted, and answered if that is of use. */
bool fl_feed_admits(fl_ps_lane *l, const fl_peer *from);

/* Answer questions, as far as the budget goes. In how many ms it wants to be
 * called again; -1: no subscriber waits. */
int fl_feed_serve(fl_ps_lane *l);

/* A command has changed the store. */
void fl_feed_note_command(fl_ps_lane *l);

/* Places of subscribers that are gone become free. */
void fl_feed_tick(fl_ps_lane *l);

/* All workers have left: have all subscribers heard so? */
bool fl_feed_is_heard(fl_ps_lane *l);

/* They are told why the lane fails; or that it has gone to another process. */
void fl_feed_abort(fl_ps_lane *l);
void fl_feed_moves(fl_ps_lane *l);
void fl_feed_done(fl_ps_lane *l);
