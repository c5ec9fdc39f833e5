/* nccl_internal.h - ranks on GPUs, a transport of comm_base.h: NCCL moves and
 * sums what is in the GPUs' memory, the connection to the rendezvous server
 * (rendezvous_client.h) carries everything else. nccl_options.c makes the
 * handshake of the caller's options, nccl.c opens communicators and has their
 * messages, nccl_run.c their calls, nccl_end.c their end, nccl_host.c operands
 * in the host's memory, nccl_gpu.cu what needs CUDA, nccl_lib.c NCCL's own
 * functions.
 *
 * Before NCCL is called all ranks send each other what they call: what does not
 * match is named, and so is a rank that is missing; NCCL itself would hang or
 * spoil memory. What NCCL computes otherwise than comm.h has it is made of
 * exchanges and a sum of our own.
 *
 * NCCL's work is in the order of the frames CALLS and MATCHED, which is the
 * same for all ranks, on one stream.
 */
#pragma once

#include "collective/comm_p2p.h"
#include "collective/rendezvous/rendezvous_client.h"
#include "collective/nccl/nccl_gpu.h"
#include "collective/nccl/nccl_lib.h"

enum { FL_NCCL_AFTER = 64 };

/* A call with its operands on the GPU: an operand that is in the host's memory
 * has a copy. */
typedef struct fl_nccl_staging {
    fl_work work;
    void *made[2];
    void *back; /* where the result belongs */
    int64_t n_back;
} fl_nccl_staging;

/* A message that has been posted; once both ranks have posted it, it is done
 * when its event is. */
typedef struct fl_nccl_message {
    bool is_posted, is_matched;
    fl_event *done;
    fl_nccl_staging staging;
} fl_nccl_message;

typedef struct fl_nccl {
    fl_comm_base base;
    fl_rendezvous_options rendezvous; /* address and listener apart, its
                                         children's, too */
    fl_rank_keys keys; /* a copy, if rendezvous.keys is not NULL */
    fl_rendezvous_client *client;
    const fl_nccl_lib *lib;
    fl_nccl_comm *comm;
    int device, n_split;
    fl_queue *queue;
    fl_event *done; /* the call's */

    /* For copies from and to the host's memory: where that is not pinned they
     * wait, without a deadline, for what is on their stream, and on this one no
     * other rank is waited for. */
    fl_queue *copies;
    fl_event *copied;

    /* What callers' streams must have done: used in turn. One that is used
     * again too early makes an earlier call wait longer, no more. */
    fl_event *after[FL_NCCL_AFTER];
    int n_after;

    fl_nccl_message (*message)[FL_N_WAY]; /* by rank */
    void *room;                           /* in the GPU's memory */
    int64_t room_bytes;

    char *all;            /* CALLS: see fl_nccl_data_of() */
    size_t n_all, n_call; /* bytes; of each rank's call with its data */
} fl_nccl;

static inline fl_nccl *fl_nccl_of(fl_comm_base *g)
{
    return (fl_nccl *)g;
}

/* Join the ranks of this rendezvous; *comm NULL unless they are joined. */
fleet_status fl_nccl_join(const fl_rendezvous_options *r,
                          const fl_comm_options *options, fl_comm **comm);

/* What CUDA or NCCL gave, as a status with the call's name. */
fleet_status fl_nccl_cuda(fl_nccl *n, int result, const char *call);
fleet_status fl_nccl_check(fl_nccl *n, int result, const char *call);
#define FL_NCCL_CUDA(n, call) FL_TRY(fl_nccl_cuda(n, call, #call))
#define FL_NCCL_CALL(n, name, ...)                                             \
    FL_TRY(fl_nccl_check(n, (n)->lib->name(__VA_ARGS__), "nccl" #name))

/* All ranks are in this call, and in the same; what each of them sends with
 * it. */
fleet_status fl_nccl_match(fl_nccl *n, const fl_call *call, const void *more,
                           size_t bytes);
const char *fl_nccl_data_of(const fl_nccl *n, int rank);

/* Until what is on the queue is done; messages move on meanwhile. */
fleet_status fl_nccl_finish(fl_nccl *n, const fl_call *call);

/* Copy operands that are in the host's memory to the GPU; and, after the call,
 * its result back. The second goes with the first, also if that fails. */
fleet_status fl_nccl_stage(fl_nccl *n, const fl_work *w, fl_nccl_staging *v);
fleet_status fl_nccl_unstage(fl_nccl *n, fl_nccl_staging *v,
                             fleet_status status);

/* An all_gather of a few bytes goes with the call to the rendezvous server, and
 * needs no GPU. */
bool fl_nccl_is_small_gather(const fl_call *c);
fleet_status fl_nccl_gather_small(fl_nccl *n, const fl_work *w);

/* A call of all ranks, from its beginning to its end. */
fleet_status fl_nccl_run(fl_nccl *n, const fl_work *w);
