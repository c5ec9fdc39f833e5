/* comm_base.h - what communicators of several ranks have in common, whatever
 * transport joins the ranks: calls in progress, their order, their failure.
 *
 * Calls are done in the order in which they were made: by the caller as long as
 * nothing is in progress, else by a thread of the communicator. Messages from
 * rank to rank (comm_p2p.h) queue by pair of ranks and direction, and move on
 * while later calls are done.
 *
 * A communicator fails once, with the first error, and for good.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "collective/comm_call.h"

struct fl_work {
    fl_call call;
    const void *in;
    void *out;
    const int64_t *to, *from; /* bytes, of all_to_all_v */
    void *after; /* of the transport: what it comes after, or NULL */

    bool is_begun;     /* transport->begin() has taken it */
    uint32_t number;   /* begin()'s own */
    bool is_queued;    /* made with work, or after one that was */
    _Atomic bool done; /* `status` is then its result */
    fleet_status status;
    fl_work *next;     /* in its queue */
    fl_work *previous; /* of all that have not been waited for */

    /* of a message: how much of its head, then of itself, has moved */
    int64_t head, head_moved, moved;
    fl_wait wait;            /* for the next that moves */
    _Atomic bool is_awaited; /* a call cannot go on without it */
};

typedef struct fl_comm_base fl_comm_base;

/* How bytes and calls get to the other ranks. */
typedef struct fl_transport {
    /* A call of all ranks, from its beginning to its end. */
    fleet_status (*run)(fl_comm_base *g, fl_work *w);

    /* A call with work that needs no thread: begin it without waiting, if it is
     * of that kind, on which all ranks agree; end it, in its wait(). By the
     * caller, whatever the communicator's thread does. NULL: no such calls. */
    fleet_status (*begin)(fl_comm_base *g, fl_work *w, bool *is_begun);
    fleet_status (*end)(fl_comm_base *g, fl_work *w);

    /* Move some of n bytes of a channel without waiting; *moved may be 0, and
     * the next call then has the same arguments. */
    fleet_status (*write)(fl_comm_base *g, int to, int channel, const void *p,
                          int64_t n, int64_t *moved);
    fleet_status (*read)(fl_comm_base *g, int from, int channel, void *p,
                         int64_t n, int64_t *moved);

    /* In place of write and read, for transports that move whole messages: go
     * on with the first message of a pair without waiting. It is over once its
     * head and all of it count as moved. */
    fleet_status (*message)(fl_comm_base *g, fl_work *w, bool *moved);

    /* For messages that do not move: wait a little for what has happened since
     * look(). wake() ends that from another thread. look and wake may be NULL:
     * rests are short. */
    uint32_t (*look)(fl_comm_base *g);
    fleet_status (*rest)(fl_comm_base *g, uint32_t seen);
    void (*wake)(fl_comm_base *g);

    /* Messages have failed: what of them is in progress ends, before their
     * memory is the caller's again. NULL: nothing is. */
    void (*drop)(fl_comm_base *g);

    /* Send the communicator's failure to all ranks; from any thread. */
    void (*report)(fl_comm_base *g, const fl_error *e);
    void (*free_memory)(fl_comm_base *g, void *memory);
    void (*destroy)(fl_comm_base *g); /* with g */
} fl_transport;

/* Channels of a pair of ranks that know nothing of each other: of send and
 * recv, and of calls of all ranks. */
enum { FL_CHANNEL_USER, FL_CHANNEL_CALL, FL_N_CHANNEL };

/* Messages of one channel and direction, the first of which moves. */
typedef struct fl_flow {
    fl_work *first, *last;
} fl_flow;

struct fl_comm_base {
    fl_comm comm;
    fl_comm_class class; /* with the transport's name */
    const fl_transport *transport;
    fl_log *log;

    _Atomic bool failed, ends;
    fl_error error; /* once failed */

    pthread_mutex_t lock; /* error, and the rest */
    pthread_cond_t changed;
    fl_work *queue, **queue_end;
    fl_work *made;            /* all that were given to the caller */
    void *after;              /* the next call's */
    int n_queued;             /* not done, messages included */
    bool has_thread, is_busy; /* it, with the last of the queue */
    pthread_t thread;

    /* of the thread that does calls */
    fl_flow (*flow)[FL_N_CHANNEL][FL_N_WAY]; /* by rank */
    int n_flowing;                           /* messages that are not over */
};

/* The rank, size and transport are set; what it fails with leaves nothing. */
fleet_status fl_comm_base_init(fl_comm_base *g, const fl_transport *transport,
                               const char *name, const fl_comm_options *options,
                               int rank, int size);
void fl_comm_base_done(fl_comm_base *g);

/* What a smaller communicator of the same kind is opened with. */
fl_comm_options fl_comm_base_options(const fl_comm_base *g);

/* The communicator's error, if it has one; or that it ends. */
fleet_status fl_comm_base_check(fl_comm_base *g);

/* This thread's failure becomes the communicator's, unless it has one already,
 * which then is raised. With `report` the other ranks hear of it. */
fleet_status fl_comm_base_fail(fl_comm_base *g, fleet_status code, bool report);

/* The work is done, with this result. */
void fl_comm_base_finish(fl_comm_base *g, fl_work *w, fleet_status status);

/* The smaller one: of what is left and what goes at a time. */
static inline int64_t fl_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
