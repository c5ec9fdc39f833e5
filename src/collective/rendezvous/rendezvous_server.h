/* rendezvous_server.h - the inside of the hub: rendezvous_server.c has its thread and what ranks tell each
 * other, rendezvous_accept.c how they come. See rendezvous.h. */
#ifndef FL_COLLECTIVE_RENDEZVOUS_RENDEZVOUS_SERVER_H
#define FL_COLLECTIVE_RENDEZVOUS_RENDEZVOUS_SERVER_H

#include <poll.h>

#include "collective/rendezvous/rendezvous.h"

enum {
    FL_RENDEZVOUS_UNKNOWN_PEERS = 32, /* at a time, beside the ranks */
    FL_RENDEZVOUS_HANDSHAKE_MS = 5000,
    FL_RENDEZVOUS_POLL_MS = 20
};

/* The other end of a line. */
typedef struct fl_caller {
    int fd;   /* -1: nobody */
    int rank; /* -1: has not greeted */
    bool has_left;
    int64_t came_ms;
    char name[FL_RENDEZVOUS_NAME];
    fl_greeting greeting;
    fl_inbox in;

    int64_t called_ms; /* 0: it makes no call */
    uint32_t bytes;
    char *call;
} fl_caller;

struct fl_rendezvous_server {
    fl_rendezvous m;
    char rendezvous[FL_RENDEZVOUS_NAME];
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
    fl_error error;                   /* once failed */
    char refused[FL_RENDEZVOUS_TEXT]; /* the last one, for who misses a rank */
    pthread_t thread;
};

/* The thread's failure becomes the job's: all are told, once. `from` knows it
 * already. */
void fl_rendezvous_server_fail(fl_rendezvous_server *h, fleet_status code,
                               const fl_caller *from);

void fl_rendezvous_server_drop(fl_rendezvous_server *h, fl_caller *c);

/* Whoever is at the door; what a stranger says; who is late. */
void fl_rendezvous_server_accept(fl_rendezvous_server *h);
void fl_rendezvous_server_admit(fl_rendezvous_server *h, fl_caller *c);
void fl_rendezvous_server_poll(fl_rendezvous_server *h);

/* All are welcome once all are there, each on a GPU of its own. */
void fl_rendezvous_server_open_if_complete(fl_rendezvous_server *h);

/* A place for a line that is there already; NULL: there is none. */
fl_caller *fl_rendezvous_server_place(fl_rendezvous_server *h, int fd);

#endif
