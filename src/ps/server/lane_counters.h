/* lane_counters.h - what a lane counts, for another thread to read at any time:
 * the numbers of lane_counters.def, and the log lines that print them.
 */
#pragma once

#include <stdatomic.h>

#include "base/log.h"
#include "ps/server/lane.h"

/* The lane's thread alone writes them. answer_bytes stays 0: the ledger knows,
 * from which ZeroMQ's threads take what has left. */
typedef struct fl_lane_counters {
#define FL_LANE_COUNTER(field, name) atomic_uint_least64_t field;
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
} fl_lane_counters;

/* One writer needs no atomic sum; `n` may be as much less. */
static inline void fl_counter_add(atomic_uint_least64_t *counter, uint64_t n)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, now + n, memory_order_relaxed);
}

/* The counter of that name in counts that were taken; false: there is none. */
bool fl_lane_counts_find(const fl_lane_counts *counts, const char *name,
                         uint64_t *value);

/* Packets that no worker of this job has sent: a scanner's, another job's.
 * lost: what the lane's socket has dropped. */
void fl_lane_counts_log_strays(const fl_lane_counts *counts, fl_log *log,
                               int server, int lane, uint64_t lost);

/* Strangers that the keys have kept out: connections, and messages. */
void fl_lane_counts_log_refused(const fl_lane_counts *counts, fl_log *log,
                                int server, int lane);

/* What a server has done, of all its lanes. */
void fl_lane_counts_add(fl_lane_counts *all, const fl_lane_counts *one);
void fl_lane_counts_log(const fl_lane_counts *all, fl_log *log, int server);
