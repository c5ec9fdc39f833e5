/* nccl.h - ranks on GPUs, a carrier of groups (comm_base.h): NCCL moves and sums
 * what lies in the GPUs' memory, a line to rank 0 (rendezvous.h) everything else.
 * nccl_open.c and nccl.c open groups, nccl.c has their messages, nccl_run.c
 * their calls.
 *
 * All ranks tell each other what they call before NCCL hears of it: what
 * does not match is named, and whoever is missing; NCCL itself would hang or
 * spoil memory. What NCCL computes otherwise than comm.h has it is made of
 * exchanges and a sum of our own.
 *
 * NCCL's work is in the order of ALL and GO on the lines, which is the same
 * for all ranks, on one stream.
 */
#ifndef FL_COLLECTIVE_NCCL_NCCL_H
#define FL_COLLECTIVE_NCCL_NCCL_H

#include "collective/comm_base.h"
#include "collective/rendezvous/rendezvous.h"
#include "collective/nccl/nccl_gpu.h"
#include "collective/nccl/nccl_lib.h"

enum { FL_NCCL_AFTER = 64 };

/* A call whose operands may have lain in the host's memory: nccl_host.c. */
typedef struct fl_nccl_visit {
    fl_work work; /* with those on the GPU */
    void *made[2];
    void *back; /* where the result belongs */
    int64_t n_back;
} fl_nccl_visit;

/* A message that has been posted; once it is let go, it is done when its event
 * is. */
typedef struct fl_nccl_message {
    bool is_posted, is_going;
    fl_event *done;
    fl_nccl_visit visit;
} fl_nccl_message;

typedef struct fl_nccl {
    fl_comm_base base;
    fl_rendezvous
        rendezvous; /* as for its children; meet and listener are not */
    fl_rendezvous_client *client;
    const fl_nccl_lib *lib;
    fl_nccl_comm *comm;
    int device, n_split;
    fl_queue *queue;
    fl_event *done; /* the call's */

    /* What callers' streams must have done: taken in turn. One that is taken
     * again too early makes an earlier call wait longer, no more. */
    fl_event *after[FL_NCCL_AFTER];
    int n_after;

    fl_nccl_message (*message)[FL_N_WAY]; /* by rank */
    void *room;                           /* in the GPU's memory */
    int64_t room_bytes;

    char *all; /* what ranks said about the call: see fl_nccl_said() */
    size_t n_all;
} fl_nccl;

static inline fl_nccl *fl_nccl_of(fl_comm_base *g)
{
    return (fl_nccl *)g;
}

/* A group of these ranks; *peers NULL unless it is one. */
fleet_status fl_nccl_open(const fl_comm_options *options, fl_comm **peers);
fleet_status fl_nccl_meet(const fl_rendezvous *m,
                          const fl_comm_options *options, fl_comm **peers);

/* What CUDA or NCCL gave, as a status with the call's name. */
fleet_status fl_nccl_cuda(fl_nccl *n, int result, const char *call);
fleet_status fl_nccl_check(fl_nccl *n, int result, const char *call);
#define FL_NCCL_CUDA(n, call) FL_TRY(fl_nccl_cuda(n, call, #call))
#define FL_NCCL_CALL(n, name, ...)                                             \
    FL_TRY(fl_nccl_check(n, (n)->lib->name(__VA_ARGS__), "nccl" #name))

/* All ranks are in this call, and in the same; they have said more about it. */
fleet_status fl_nccl_match(fl_nccl *n, const fl_call *call, const void *more,
                           size_t bytes);
const char *fl_nccl_said(const fl_nccl *n, int rank); /* behind its call */

/* Take what has come on the line, and let messages go that may. */
fleet_status fl_nccl_hear(fl_nccl *n);

/* Until what is on the queue is done; looks after everything else. */
fleet_status fl_nccl_finish(fl_nccl *n, const fl_call *call);

/* What lies in the host's memory on the GPU; and, after the call, its result in
 * the host's memory. The second goes with the first, also if that fails. */
fleet_status fl_nccl_bring(fl_nccl *n, const fl_work *w, fl_nccl_visit *v);
fleet_status fl_nccl_take_back(fl_nccl *n, fl_nccl_visit *v,
                               fleet_status status);

/* An all_gather of a few bytes goes to rank 0 with what is said about it, and
 * takes no turn on the GPUs. */
bool fl_nccl_goes_by_line(const fl_call *c);
fleet_status fl_nccl_gather_by_line(fl_nccl *n, const fl_work *w);

/* A call of all ranks, from its beginning to its end. */
fleet_status fl_nccl_run(fl_nccl *n, const fl_work *w);

/* NCCL's calls may go on after they have returned: until they are over. */
fleet_status fl_nccl_synchronize(fl_nccl *n, const char *call);

#endif
