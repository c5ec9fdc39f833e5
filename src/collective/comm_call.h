/* comm_call.h - a call of a communicator as ranks compare and name it, and the
 * errors that name calls: with the same texts for every transport. */
#pragma once

#include "base/error.h"
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

/* What ranks send each other about a call: all but `extra` must be equal. */
typedef struct fl_call {
    int32_t kind, how, type;
    int32_t root; /* or the other rank, of send and recv */
    int64_t n;    /* elements of reductions, else bytes */
    int64_t extra[2];
} fl_call;

enum { FL_OUT, FL_IN, FL_N_WAY }; /* the ways of a message */
enum { FL_CALL_TEXT = 120 };

bool fl_call_matches(const fl_call *a, const fl_call *b);
void fl_call_text(const fl_call *c, char text[FL_CALL_TEXT]);

/* FLEET_EINVAL, naming both calls. */
fleet_status fl_call_differs(int rank_a, const fl_call *a, int rank_b,
                             const fl_call *b);

/* FLEET_EINVAL: the two ends of a message have different sizes. */
fleet_status fl_call_sizes_differ(int from, int64_t sends, int to,
                                  int64_t expects);

/* FLEET_ETIMEDOUT: `missing` (-1: some rank) did not come within ms to the call
 * that `rank` waits in. */
fleet_status fl_call_timed_out(int missing, int64_t ms, int rank,
                               const fl_call *call);
