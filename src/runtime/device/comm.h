/* comm.h - a group of processes that compute together, the ranks of a
 * collective job: the interface between plans and src/collective, which the
 * facade connects. One process is a group of its own (self); on CPUs MPI joins
 * ranks, on GPUs NCCL.
 *
 * Every rank makes the same calls in the same order, with the same sizes;
 * what does not match is FLEET_EINVAL, naming both calls, wherever it can be
 * seen, and never a wrong result. A rank that cannot go on calls abort(): all
 * others' calls then fail with FLEET_EPEER and its words. A rank that is gone
 * is FLEET_EPEER, too, and one that does not come in time FLEET_ETIMEDOUT,
 * naming it. After a failure every call fails with the same text.
 *
 * A call with `work` NULL returns when it is done. With one it returns once it
 * is under way: its buffers stay the caller's to keep, not to touch, until
 * wait(). Work that is not waited for ends with the group.
 *
 * What is wrong with a call as it stands (a negative size, a root that is none,
 * a mean of integers) is FLEET_EINVAL before anybody hears of it, and no
 * failure of the group.
 *
 * Threads: one at a time; abort() from any.
 */
#ifndef FL_RUNTIME_DEVICE_COMM_H
#define FL_RUNTIME_DEVICE_COMM_H

#include <stdbool.h>

#include <fleet/base.h>

#include "runtime/device/device.h"

/* Elements as they travel. */
typedef enum fl_wire_type {
    FL_WIRE_F32,
    FL_WIRE_F64,
    FL_WIRE_I32,
    FL_WIRE_I64,
    FL_WIRE_U8,
    FL_WIRE_F16,  /* sums are made in float32 and rounded once, to nearest */
    FL_WIRE_BF16, /* even */
    FL_N_WIRE
} fl_wire_type;

/* Means of floats only. The largest of numbers with a NaN is NaN. */
typedef enum fl_reduce {
    FL_ALL_SUM,
    FL_ALL_MEAN, /* the sum, times 1 / size once */
    FL_ALL_MAX,
    FL_ALL_MIN,
    FL_N_REDUCE
} fl_reduce;

typedef struct fl_comm fl_comm;
typedef struct fl_work fl_work;

typedef struct fl_comm_class {
    const char *name; /* "self", "mpi", "nccl" */

    /* out = the n elements of all ranks, reduced; out may be in. If ordered,
     * ((x0 + x1) + x2) ... in rank order, so that all ranks have the same bits
     * in every run, x0 copied; else as is fastest, but the same on all. If one
     * rank makes the call with work and in place in memory of get_memory(), all
     * do: it then needs no thread. */
    fleet_status (*all_reduce)(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work);

    /* Rank r has the r-th n of size x n elements, reduced. out may be that
     * part of in. */
    fleet_status (*reduce_scatter)(fl_comm *p, fl_reduce how, fl_wire_type type,
                                   const void *in, void *out, int64_t n,
                                   fl_work **work);

    /* `bytes` of each rank, side by side in rank order. in may be this rank's
     * part of out. */
    fleet_status (*all_gather)(fl_comm *p, const void *in, void *out,
                               int64_t bytes, fl_work **work);

    /* in: for each rank to_bytes[r] bytes, side by side in rank order; out: as
     * many as each rank has for this one, from_bytes[r]. The two of a pair of
     * ranks agree. */
    fleet_status (*all_to_all_v)(fl_comm *p, const void *in,
                                 const int64_t *to_bytes, void *out,
                                 const int64_t *from_bytes, fl_work **work);

    fleet_status (*broadcast)(fl_comm *p, void *data, int64_t bytes, int root,
                              fl_work **work);
    fleet_status (*send)(fl_comm *p, const void *data, int64_t bytes, int to,
                         fl_work **work);
    fleet_status (*recv)(fl_comm *p, void *data, int64_t bytes, int from,
                         fl_work **work);
    fleet_status (*barrier)(fl_comm *p);

    /* Of any call that gave work; *work is NULL afterwards. */
    fleet_status (*wait)(fl_comm *p, fl_work **work);

    /* The ranks that give the same color, numbered by (key, rank); color -1:
     * none, *child is NULL. Ends before its parent. */
    fleet_status (*split)(fl_comm *p, int color, int key, fl_comm **child);

    /* Memory from which reductions of ranks on one host need no copy: the same
     * size on all ranks, in the same order. Ordinary memory where there is no
     * such thing; zeroed, 64-byte aligned. */
    fleet_status (*get_memory)(fl_comm *p, int64_t bytes, void **memory);
    void (*free_memory)(fl_comm *p, void *memory);

    /* NULL: the group's data is in memory of the host. Else it is in that of a
     * GPU, as what get_memory() gives is (what lies in the host's is copied
     * there and back, which is for what is small), and calls are work on a
     * stream of the group's own: the next call and those after it begin when
     * what is queued on q now is done. A call that is done, by its return or by
     * wait(), is done on the GPU: what is queued anywhere afterwards sees its
     * result. */
    fleet_status (*after)(fl_comm *p, fl_queue *q);

    void (*abort)(fl_comm *p, const char *why);

    /* Ends it for this rank, whatever the others do; NULL is fine. */
    void (*destroy)(fl_comm *p);
} fl_comm_class;

struct fl_comm {
    const fl_comm_class *methods;
    int rank, size;
    bool ordered;        /* as the maker was asked */
    int64_t deadline_ms; /* of each wait for the others */
};

/* What a group is made with; zero is the default of each. */
typedef struct fl_comm_options {
    bool ordered;
    int64_t deadline_ms; /* of each call; 0: FL_COMM_DEADLINE_MS */
    struct fl_log *log;  /* NULL: no lines; lives as long as the group */

    /* Of ranks that find each other by themselves (nccl): */
    int rank, size;      /* size 0: this process alone */
    const char *address; /* where rank 0 listens, "tcp://ip:port", no name */
    int64_t connect_ms;  /* until all are there; 0: deadline_ms */
    int listener;        /* rank 0's: a socket that listens there already and
                         becomes the group's; 0: none */
    const char *job;     /* the same text for all ranks; NULL: "" */
    int device;          /* the GPU's number */
} fl_comm_options;

enum { FL_COMM_DEADLINE_MS = 30000 };

/* abort() that leaves this thread's last failure as it is: who gives up because
 * of one reports it still. why may be that failure's text. */
void fl_comm_abort(fl_comm *p, const char *why);

/* --- rounds ----------------------------------------------------------------
 *
 * What ranks do together they do in rounds, which begin with every rank's wish.
 * The highest one is done: who wished for it does it, the others serve it and
 * ask again. So ranks need not be equally far: one that waits in a barrier
 * takes part in the updates of those that still train, and gives rows to one
 * that evaluates.
 */
typedef enum fl_intent {
    FL_INTENT_NONE,    /* its pass is over, it waits for the others */
    FL_INTENT_UPDATE,  /* served by those who wish nothing, with no batch */
    FL_INTENT_ROWS,    /* of tables that are shared out over the ranks */
    FL_INTENT_COMMAND, /* of the facade: a save, a load, a hash */
    FL_N_INTENT
} fl_intent;

typedef struct fl_agreed {
    fl_intent
        done;    /* the rank's own wish; or an update, where it wished nothing
                   */
    int batches; /* UPDATE: of all ranks */
    int most;    /* of one rank */
    int ranks;   /* that have any */
    int first;   /* the first rank with that wish */
} fl_agreed;

/* What a rank does for the others: for rows and acts. */
typedef fleet_status fl_agree_serve(void *arg, const fl_agreed *round);

typedef struct fl_agree {
    fl_comm *comm;
    fl_comm *hierarchy; /* the same ranks, who sum by groups; NULL: as peers */
    fl_agree_serve *serve;
    void *arg;
} fl_agree;

/* Serve until this rank's wish is done; batches: that it has for an update. */
fleet_status fl_agree_on(const fl_agree *r, fl_intent wish, int batches,
                         fl_agreed *round);

/* abort() of all groups, as fl_comm_abort(). */
void fl_agree_abort(const fl_agree *r, const char *why);

#endif
