/* rendezvous_server.h - the rendezvous server, a thread of rank 0: its state,
 * and what ranks send each other through it. rendezvous_accept.h has how ranks
 * come. */
#pragma once

#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "collective/rendezvous/rendezvous_wire.h"

enum {
    FL_ACCEPT_UNKNOWN_PEERS = 32, /* at a time, beside the ranks */
    FL_ACCEPT_HANDSHAKE_MS = 5000,
    FL_ACCEPT_POLL_MS = 20
};

/* The server's end of a connection. */
typedef struct fl_connection {
    int fd;   /* -1: a free place */
    int rank; /* -1: no handshake yet */
    bool has_left;
    int64_t accepted_ms;
    char name[FL_RENDEZVOUS_NAME];
    fl_rendezvous_handshake handshake;
    fl_inbox in;
    fl_seal *seal; /* of this place; in.seal from when it is agreed on. NULL:
                      there are no keys */

    int64_t called_ms; /* 0: it makes no call */
    uint32_t bytes;
    char *call;
} fl_connection;

typedef struct fl_rendezvous_server {
    fl_rendezvous_options options;
    char address[FL_RENDEZVOUS_NAME];
    int size, listener;
    size_t most_call;
    int n_connection; /* places */
    fl_connection *connection;
    struct pollfd *poll;
    fl_connection **rank; /* NULL: has not come, or has gone */
    int64_t (*post)[2];   /* by from * size + to: bytes, -1: none */
    fl_awake awake;       /* the clock of its times */
    int64_t began_ms;
    int64_t heard_ms; /* when the last frame of a rank came */
    bool is_open;     /* all ranks have come */
    bool failed;
    fl_error error;                   /* once failed */
    char refused[FL_RENDEZVOUS_TEXT]; /* the last refusal */
    int n_refused, n_keyless;         /* keyless: without a key of the job */
    pthread_t thread;
} fl_rendezvous_server;

/* Rank 0's thread; *fd is rank 0's own connection. The thread ends when all
 * ranks have left, or rank 0 has and no other rank has said anything for 2
 * seconds; join() waits for it. */
fleet_status fl_rendezvous_server_start(fl_rendezvous_server **server,
                                        const fl_rendezvous_options *o,
                                        int *fd);
void fl_rendezvous_server_join(fl_rendezvous_server *s); /* NULL is fine */

/* This thread's failure becomes the job's: it is sent to all ranks, once.
 * `from` knows it already. */
void fl_rendezvous_server_fail(fl_rendezvous_server *s, fleet_status code,
                               const fl_connection *from);

int64_t fl_rendezvous_server_now(fl_rendezvous_server *s);

/* A frame for the peer of this connection. */
void fl_rendezvous_server_send(const fl_connection *c, fl_rendezvous_kind kind,
                               const void *bytes, size_t n);

/* End a connection. */
void fl_rendezvous_server_drop(fl_rendezvous_server *s, fl_connection *c);
