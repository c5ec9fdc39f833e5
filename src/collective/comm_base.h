/* comm_base.h - what groups of several ranks have in common, whatever joins them:
 * calls that are under way, their order, their failure.
 *
 * Calls are done in the order in which they were made, by the caller as long as
 * nothing is under way, else by a thread of the group's. Messages from rank to
 * rank are streams of bytes: each has its turn with its pair of ranks, and
 * moves on while later calls are done.
 *
 * A group fails once, with the first error, and for good.
 */
#ifndef FL_COLLECTIVE_COMM_BASE_H
#define FL_COLLECTIVE_COMM_BASE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/log.h"
#include "runtime/device/comm.h"

#define FL_CALL_MAP(XX)                                                        \
    XX(ALL_REDUCE, "all_reduce")                                               \
    XX(REDUCE_SCATTER, "reduce_scatter")                                       \
    XX(ALL_GATHER, "all_gather")                                               \
    XX(ALL_TO_ALL, "all_to_all_v")                                             \
    XX(BROADCAST, "broadcast")                                                 \
    XX(BARRIER, "barrier")                                                     \
    XX(SPLIT, "split")                                                         \
    XX(MEMORY, "get_memory")                                                   \
    XX(SEND, "send")                                                           \
    XX(RECV, "recv")

typedef enum fl_call_kind {
#define FL_CALL_CODE(name, text) FL_CALL_##name,
    FL_CALL_MAP(FL_CALL_CODE)
#undef FL_CALL_CODE
} fl_call_kind;

/* What ranks tell each other about a call: all but `extra` must be equal. */
typedef struct fl_call {
    int32_t kind, how, type;
    int32_t root; /* or the other rank, of send and recv */
    int64_t n;    /* elements of reductions, else bytes */
    int64_t extra[2];
} fl_call;

enum { FL_CALL_TEXT = 120 };

bool fl_call_matches(const fl_call *a, const fl_call *b);
void fl_call_text(const fl_call *c, char text[FL_CALL_TEXT]);

/* FLEET_EINVAL, naming both. */
fleet_status fl_call_differs(int rank_a, const fl_call *a, int rank_b,
                             const fl_call *b);

struct fl_work {
    fl_call call;
    const void *in;
    void *out;
    const int64_t *to, *from; /* bytes, of all_to_all_v */
    void *after;              /* of the carrier: what it comes after, or NULL */

    bool is_begun;     /* carrier->begin() has taken it */
    uint32_t number;   /* begin()'s own */
    bool is_queued;    /* made with work, or after one that was */
    _Atomic bool done; /* `status` is then its result */
    fleet_status status;
    fl_work *next;     /* in its queue */
    fl_work *previous; /* of all that have not been waited for */

    /* of a message: how much of its head, then of itself, has moved */
    int64_t head, head_moved, moved, moved_ns;
};

typedef struct fl_comm_base fl_comm_base;

/* How bytes and calls get to the others. */
typedef struct fl_transport {
    /* A call of all ranks, from its beginning to its end. */
    fleet_status (*run)(fl_comm_base *g, fl_work *w);

    /* A call with work that needs no thread: begin it without waiting, if it is
     * of that kind, which all ranks find alike; end it, in its wait(). By the
     * caller, whatever the group's thread does. NULL: there are none. */
    fleet_status (*begin)(fl_comm_base *g, fl_work *w, bool *is_begun);
    fleet_status (*end)(fl_comm_base *g, fl_work *w);

    /* Move some of n bytes of a stream without waiting; *moved may be 0, and
     * the next call then has the same arguments. */
    fleet_status (*write)(fl_comm_base *g, int to, int lane, const void *p,
                          int64_t n, int64_t *moved);
    fleet_status (*read)(fl_comm_base *g, int from, int lane, void *p,
                         int64_t n, int64_t *moved);

    /* In place of write and read, for carriers that move messages as a whole:
     * go on with the first of a pair's line without waiting. It is over once
     * its head and all of it are said to have moved. */
    fleet_status (*message)(fl_comm_base *g, fl_work *w, bool *moved);

    /* For streams that do not move: wait a little for what has happened since
     * look(). wake() ends that from another thread. */
    uint32_t (*look)(fl_comm_base *g);
    fleet_status (*rest)(fl_comm_base *g, uint32_t seen);
    void (*wake)(fl_comm_base *g);

    /* Tell all ranks the group's end; from any thread. */
    void (*report)(fl_comm_base *g, const fl_error *e);
    void (*free_memory)(fl_comm_base *g, void *memory);
    void (*destroy)(fl_comm_base *g); /* with g */
} fl_transport;

/* Streams of a pair of ranks that know nothing of each other: of send and recv,
 * and of calls of all ranks. */
enum { FL_CHANNEL_USER, FL_CHANNEL_CALL, FL_N_CHANNEL };
enum { FL_OUT, FL_IN, FL_N_WAY };

typedef struct fl_flow {
    fl_work *first, *last;
} fl_flow;

struct fl_comm_base {
    fl_comm comm;
    fl_comm_class class; /* with the carrier's name */
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
    fl_flow (*stream)[FL_N_CHANNEL][FL_N_WAY]; /* by rank */
    int n_streaming;
};

/* --- for carriers ----------------------------------------------------------
 */

/* The rank, size and carrier are set; what it fails with leaves nothing. */
fleet_status fl_comm_base_init(fl_comm_base *g, const fl_transport *carrier,
                               const char *name, const fl_comm_options *options,
                               int rank, int size);
void fl_comm_base_done(fl_comm_base *g);

/* The group's error, if it has one; or that it ends. */
fleet_status fl_comm_base_check(fl_comm_base *g);

/* This thread's failure becomes the group's, unless there is one already, which
 * then is raised. With `tell` the others hear of it. */
fleet_status fl_comm_base_fail(fl_comm_base *g, fleet_status code, bool tell);

/* Move what can be moved; whether anything was. */
fleet_status fl_p2p_advance(fl_comm_base *g, bool *moved);

/* A call's streams: to[r] bytes of out_at(r) to each rank, and from[r] of each
 * to in_at(r), until all are done. What goes to this rank is copied. */
typedef struct fl_p2p_set {
    const char *const *out;
    const int64_t *to;
    char *const *in;
    const int64_t *from;
} fl_p2p_set;
fleet_status fl_p2p_exchange(fl_comm_base *g, const fl_p2p_set *x);

/* The same for all_to_all_v's work. */
fleet_status fl_p2p_all_to_all(fl_comm_base *g, const fl_work *w);

/* --- comm_base.c and comm_p2p.c, of each other ------------------------------
 */

void fl_p2p_start(fl_comm_base *g, fl_work *w, int lane);
void fl_p2p_drop(fl_comm_base *g, fleet_status status);
fleet_status fl_p2p_drive(fl_comm_base *g, fl_work *until);
void fl_work_finish(fl_comm_base *g, fl_work *w, fleet_status status);

#endif
