/* lane_view.h - what a message's `view` says: in its lower half which map of
 * buckets its sender has (bucket_map.h), in its upper half which of two copies
 * of a lane leads, 4 e + part: that is the view of the lane, 0 if it is the
 * only copy. Of epoch e both copies know the same at part 0. In part 1 the
 * leader goes on alone, in part 2 the follower does; a worker makes one of them
 * so, and never the other: part 1 needs all workers, part 2 needs one. When a
 * copy that was lost was made again, epoch e + 1 begins.
 * docs/adr/0076, 0093. */
#pragma once

#include "net/message.h"

/* How many peer deadlines: until a copy that no worker wants ends, until a
 * worker that has found a new leader must have come to it, and until one that
 * finds none gives up. */
enum { FL_REPLICA_PATIENCE = 4 };

enum { FL_VIEW_BOTH = 0, FL_VIEW_ALONE = 1, FL_VIEW_TAKEN = 2 };

/* Of a copy that is none yet. */
enum { FL_VIEW_NONE = 0xffff, FL_MOST_EPOCH = 0x3ffe };

static inline uint32_t fl_view_epoch(uint32_t view)
{
    return view >> 2;
}

static inline uint32_t fl_view_part(uint32_t view)
{
    return view & 3;
}

static inline uint32_t fl_view_of(const fl_msg_head *head)
{
    return head->view >> 16;
}

/* The map of a message's sender, and the view, as they travel. */
static inline uint32_t fl_view_map(const fl_msg_head *head)
{
    return head->view & UINT16_MAX;
}

static inline uint32_t fl_view_with(uint32_t map, uint32_t view)
{
    return map | view << 16;
}
