/* guard.h - lets processes with a key of the job come to a server by tcp, and
 * no other peer. ZeroMQ asks a handler of this process about each key (ZAP);
 * one thread answers for all guards, from the first one to the last.
 *
 * Threads: guards are made and destroyed in any thread.
 */
#pragma once

#include "net/keys.h"

typedef struct fl_guard fl_guard;

/* The keys stay the caller's, and outlive the guard. */
fleet_status fl_guard_create(fl_guard **g, const fl_keys *keys);

/* That server of the job may come, too, whose process has copies of what this
 * one keeps, or asks for them; two of them at most. Before a socket is
 * guarded. */
void fl_guard_let_in(fl_guard *g, int server);

/* All of them may: lanes may go from one to another. */
void fl_guard_let_in_servers(fl_guard *g);

/* When its sockets are closed. NULL is fine. */
void fl_guard_destroy(fl_guard *g);

/* The ZAP domain of a listening socket that no guard was set for. */
#define FL_GUARD_NONE "libfleet-open"

/* What ZeroMQ's socket binds from now on is guarded, or open. */
void fl_guard_set(const fl_guard *g, void *zmq, bool guarded);

/* What ZeroMQ's socket connects to must be that server, or that worker. */
fleet_status fl_guard_pin(const fl_keys *keys, fl_key_role role, int number,
                          void *zmq);

/* The sender of a message that came by a guarded socket (ZeroMQ's): the worker
 * of its key, plus 1; of a subscriber's key its number plus
 * FL_GUARD_SUBSCRIBER, of a server's plus FL_GUARD_SERVER; 0: by ipc or inproc,
 * where no peer is asked for a key; FL_GUARD_NOBODY: by tcp, and without a
 * key. */
enum {
    FL_GUARD_NOBODY = -1,
    FL_GUARD_SUBSCRIBER = 1 << 20,
    FL_GUARD_SERVER = 1 << 21,
    FL_GUARD_CONTROL = 1 << 22 /* fleetctl's */
};
int fl_guard_sender(void *message);

/* It came by tcp, and not of this machine's own. */
bool fl_guard_is_far(void *message);

/* Connections that a socket of ZeroMQ's does not let in, counted. */
fleet_status fl_guard_watch(void *zmq, void **watch);
uint64_t fl_guard_refused(void *watch);        /* since the last call */
void fl_guard_unwatch(void *zmq, void *watch); /* before zmq is closed */
