/* refusals.h - which refusals the log tells of: one line for each stranger and
 * second, and few lines in all, as a stranger may come by any number of
 * connections. */
#pragma once

#include "net/socket.h"

enum { FL_REFUSAL_LINES = 8 }; /* in a second */

typedef struct fl_refusals {
    struct {
        fl_peer peer;
        int64_t said_ms; /* 0: none yet */
    } line[FL_REFUSAL_LINES];
    uint64_t unsaid;
} fl_refusals;

/* Whether to tell of this one; *unsaid are those since the last line. */
bool fl_refusals_tell(fl_refusals *r, const fl_peer *peer, int64_t now_ms,
                      uint64_t *unsaid);
