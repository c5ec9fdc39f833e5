/* feed_position.h - how far a subscriber is with a lane: what it says with each
 * question, and hears with each answer. It is all that either side remembers of
 * the other. docs/protocol.md has the story. */
#pragma once

#include <stdint.h>

/* Nothing of a table is known: all of its rows. */
#define FL_FEED_ALL UINT64_MAX

/* On the wire as it lies in memory, little-endian. */
typedef struct fl_feed_position {
    uint64_t epoch;   /* of the lane's feed, of which the rest is; 0: none */
    uint64_t version; /* changes of up to that have come, but for a walk's */
    uint64_t end;     /* the changes of the lane's list before that one have */
    uint64_t dense;   /* and the changes of blocks up to that */

    /* a walk through the tables, which comes before the list */
    uint64_t table;         /* number + 1; 0: it is over */
    uint64_t bucket, place; /* where it goes on */
    uint64_t since, limit;  /* rows changed after that, and up to that */
} fl_feed_position;

_Static_assert(sizeof(fl_feed_position) == 72, "as protocol.md has it");

/* What an answer says besides. */
enum fl_feed_flags {
    FL_FLAG_BEGINS = 1, /* what the subscriber has of the lane is void */
    FL_FLAG_MORE = 2,   /* there is more, at once */
    FL_FLAG_OVER = 4    /* all workers have left: that was the last */
};

typedef struct fl_feed_answer {
    fl_feed_position position; /* behind what the answer brings */
    uint64_t flags;
    uint64_t version; /* the lane's */
} fl_feed_answer;

/* A subscriber's number, as the stream of its messages. */
#define FL_FEED_STREAM ((uint32_t)1 << 31)
