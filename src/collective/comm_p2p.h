/* comm_p2p.h - messages from rank to rank: each waits for its turn in the flow
 * of its pair of ranks, channel and direction, and begins with its size. These
 * functions are called by the thread that does the communicator's calls. */
#pragma once

#include "collective/comm_base.h"

/* Queue a message in its flow. */
void fl_p2p_start(fl_comm_base *g, fl_work *w, int channel);

/* Move what can be moved; whether anything was. */
fleet_status fl_p2p_advance(fl_comm_base *g, bool *moved);

/* A flow has a message that a call cannot go on without. */
bool fl_p2p_is_awaited(const fl_comm_base *g, int rank, int channel, int way);

/* Until that work is done, or, for NULL, for a while. */
fleet_status fl_p2p_drive(fl_comm_base *g, fl_work *until);

/* All messages end with this status. */
void fl_p2p_drop(fl_comm_base *g, fleet_status status);

/* A call's messages: to[r] bytes of out[r] to each rank, and from[r] of each to
 * in[r], until all are done. What goes to this rank is copied. */
typedef struct fl_p2p_set {
    const char *const *out;
    const int64_t *to;
    char *const *in;
    const int64_t *from;
} fl_p2p_set;
fleet_status fl_p2p_exchange(fl_comm_base *g, const fl_p2p_set *x);

/* The same for all_to_all_v's work. */
fleet_status fl_p2p_all_to_all(fl_comm_base *g, const fl_work *w);
