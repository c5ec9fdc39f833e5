/* comm.h - a communicator: the ranks of a collective job, and the calls that
 * they make together. This is the interface between plans and src/collective,
 * which the facade connects. A single process is a communicator, too ("self");
 * on CPUs MPI joins the ranks, on GPUs NCCL.
 *
 * Every rank makes the same calls in the same order, with the same sizes. Calls
 * that do not match are FLEET_EINVAL, with a text that names both of them,
 * wherever the difference can be seen, and never give a wrong result. A rank
 * that cannot go on calls abort(): calls of all other ranks then fail with
 * FLEET_EPEER and its text. A rank that has died is FLEET_EPEER, too; a rank
 * that does not make the call by the deadline is FLEET_ETIMEDOUT; both are
 * named. After a failure every call fails with the same text.
 *
 * A call with `work` NULL returns when it is done. With `work` it is
 * asynchronous: it returns once it has begun, and until wait() the caller keeps
 * its buffers and does not touch them. Work that is not waited for ends with
 * the communicator.
 *
 * A call with invalid arguments (a negative size, a root that is no rank, a
 * mean of integers) is FLEET_EINVAL on this rank alone, before any other rank
 * hears of it; the communicator can still be used.
 *
 * Threads: one at a time; abort() from any.
 */
#pragma once

#include <stdbool.h>

#include <fleet/base.h>

#include "runtime/device/device.h"

/* The type of elements, as they are sent. */
typedef enum fl_wire_type {
    FL_WIRE_F32,
    FL_WIRE_F64,
    FL_WIRE_I32,
    FL_WIRE_I64,
    FL_WIRE_U8,
    FL_WIRE_F16,  /* sums are made in float32 and rounded once, to even */
    FL_WIRE_BF16, /* the same */
    FL_N_WIRE
} fl_wire_type;

/* FL_ALL_MEAN is for floats only. The largest of numbers with a NaN is NaN. */
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

    /* in: for each rank to_bytes[r] bytes, side by side in rank order; out: the
     * from_bytes[r] bytes that each rank has for this one. Both ranks of a pair
     * give the same count. */
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

    /* For the work of any call; *work is NULL afterwards. */
    fleet_status (*wait)(fl_comm *p, fl_work **work);

    /* A communicator of the ranks that give the same color, numbered by (key,
     * rank); color -1: none, *child is NULL. It is destroyed before its
     * parent. */
    fleet_status (*split)(fl_comm *p, int color, int key, fl_comm **child);

    /* Memory that ranks of one host reduce without a copy: the same size on all
     * ranks, in the same order. Ordinary memory if the transport has none
     * like that; zeroed, 64-byte aligned. */
    fleet_status (*get_memory)(fl_comm *p, int64_t bytes, void **memory);
    void (*free_memory)(fl_comm *p, void *memory);

    /* NULL: data is in memory of the host. Else it is in memory of a GPU, as
     * that of get_memory() is (data of the host is copied to the GPU and back,
     * which is meant for small data), and calls are work on a queue of the
     * communicator's own: the next call and those after it begin when what is
     * queued on q now is done. A call that is done, by its return or by wait(),
     * is done on the GPU: whatever is queued afterwards, on any queue, sees its
     * result. */
    fleet_status (*after)(fl_comm *p, fl_queue *q);

    void (*abort)(fl_comm *p, const char *why);

    /* For this rank, whatever other ranks do; NULL is fine. */
    void (*destroy)(fl_comm *p);
} fl_comm_class;

struct fl_comm {
    const fl_comm_class *methods;
    int rank, size;
    bool ordered;        /* as in the options */
    int64_t deadline_ms; /* of each wait for other ranks */
};

/* Keys of ranks that find each other by themselves (X25519): this rank's secret
 * one, and the public ones of all ranks, by their numbers. */
enum { FL_RANK_KEY = 32 };
typedef struct fl_rank_keys {
    uint8_t secret[FL_RANK_KEY];
    uint8_t (*of)[FL_RANK_KEY];
} fl_rank_keys;

/* What a communicator is made with; zero is the default of each. */
typedef struct fl_comm_options {
    bool ordered;
    int64_t deadline_ms; /* of each call; 0: FL_COMM_DEADLINE_MS */
    struct fl_log *log;  /* NULL: no lines; outlives the communicator */

    /* Of ranks that find each other by themselves (nccl): */
    int rank, size;      /* size 0: this process alone */
    const char *address; /* where rank 0 listens, "tcp://ip:port", no name */
    int64_t connect_ms;  /* until all have connected; 0: deadline_ms */
    int listener;        /* rank 0's: a socket that listens at `address` already
                          * and becomes the communicator's; 0: none */
    const char *job;     /* the same text for all ranks; NULL: "" */
    int device;          /* the GPU's number */
    const fl_rank_keys *keys; /* `size` of them, which are copied; NULL: every
                               * peer that knows the job's name may come */
} fl_comm_options;

enum { FL_COMM_DEADLINE_MS = 30000 };

/* The text of rank `root` on every rank, each of which gives one of its own;
 * for fl_free(), after a failure, too. */
fleet_status fl_comm_broadcast_text(fl_comm *p, const char *mine, int root,
                                    char **text);

/* abort() that leaves this thread's last failure as it is, so that a caller
 * that gives up because of a failure can still report it; `why` may be that
 * failure's text. */
void fl_comm_abort(fl_comm *p, const char *why);

/* After an abort: wait until no rank touches the buffers of the n works any
 * more. Works that are NULL are skipped; this thread's failure stays. */
void fl_comm_end_work(fl_comm *p, fl_work **work, int n);
