/* rendezvous_server.h - the inside of the hub: rendezvous_server.c has its thread and what ranks tell each
 * other, rendezvous_accept.c how they come. See rendezvous.h. */
#ifndef FL_COLLECTIVE_HUB_H
#define FL_COLLECTIVE_HUB_H

#include <poll.h>

#include "collective/rendezvous/rendezvous.h"

enum {
    FL_HUB_STRANGERS = 32, /* at a time, beside the ranks */
    FL_HUB_GREET_MS = 5000,
    FL_HUB_LOOK_MS = 20
};

/* The other end of a line. */
typedef struct fl_caller {
    int fd;   /* -1: nobody */
    int rank; /* -1: has not greeted */
    bool has_left;
    int64_t came_ms;
    char name[FL_MEET_NAME];
    fl_greeting greeting;
    fl_inbox in;

    int64_t called_ms; /* 0: it makes no call */
    uint32_t bytes;
    char *call;
} fl_caller;

struct fl_hub {
    fl_meeting m;
    char meet[FL_MEET_NAME];
    int size, listener;
    size_t most_call;
    int n_caller; /* places */
    fl_caller *caller;
    struct pollfd *poll;
    fl_caller **rank;   /* NULL: is not there, any more */
    int64_t (*post)[2]; /* by from * size + to: bytes, -1: none */
    int64_t began_ms;
    bool is_open; /* all ranks have come */
    bool failed;
    fl_error error;             /* once failed */
    char refused[FL_MEET_TEXT]; /* the last one, for who misses a rank */
    pthread_t thread;
};

/* The thread's failure becomes the job's: all are told, once. `from` knows it
 * already. */
void fl_hub_fail(fl_hub *h, fleet_status code, const fl_caller *from);

void fl_hub_drop(fl_hub *h, fl_caller *c);

/* Whoever is at the door; what a stranger says; who is late. */
void fl_hub_accept(fl_hub *h);
void fl_hub_admit(fl_hub *h, fl_caller *c);
void fl_hub_look_at_door(fl_hub *h);

/* All are welcome once all are there, each on a GPU of its own. */
void fl_hub_open_if_complete(fl_hub *h);

/* A place for a line that is there already; NULL: there is none. */
fl_caller *fl_hub_seat(fl_hub *h, int fd);

#endif
