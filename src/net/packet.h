/* packet.h - a message as frames, and the pool its memory comes from.
 *
 * A packet is made, filled and sent, or received and read. Its references are
 * counted: dropping the last one gives its memory back. Frames are 64-byte
 * aligned in packets that this process made; in received ones they may lie
 * anywhere.
 *
 * Threads: fl_packet_keep(), fl_packet_drop() and the pool from any thread; the
 * rest while no other thread uses the packet.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/ledger.h"

/* No message of libfleet has more frames, or a longer one. */
enum { FL_MOST_FRAME = 512, FL_MOST_FRAME_BYTES = 64 << 20 };

/* Frames below that size are copied when they are sent, but for the first one
 * of a packet that is charged; a copy is cheaper than the hand-over. */
enum { FL_COPIED_BELOW = 16 << 10 };

typedef struct fl_frame {
    void *data;
    size_t size;
} fl_frame;

typedef struct fl_packet fl_packet;
struct fl_packet {
    _Atomic int refs;
    int n_frame, frame_capacity;
    fl_frame *frame;
    size_t bytes; /* of all frames */

    /* Give back frames and packet: the pool's, or the socket's. */
    void (*release)(fl_packet *p);
    void *owner; /* release's own */

    fl_ledger *ledger; /* NULL: it weighs on no account */
    int account;
    size_t charged; /* bytes */
};

/* Buffers that were used before: a step that sends as much as the last one
 * allocates nothing and touches no new page. Bounded: it keeps at most `most`
 * bytes of idle buffers. It lives on until the last packet is gone. In a child
 * of fork() it gives nothing (FLEET_ESTATE) and takes nothing back. */
typedef struct fl_packet_pool fl_packet_pool;

fleet_status fl_packet_pool_create(fl_packet_pool **pool, size_t most);
void fl_packet_pool_destroy(fl_packet_pool *pool); /* NULL is fine */

/* Memory of the pool as a frame's is, for what lives as long as a packet; give
 * it back with the size it was taken with. NULL: no memory, or a child of
 * fork(), with the error's text set. From any thread. */
void *fl_packet_pool_take(fl_packet_pool *pool, size_t size);
void fl_packet_pool_give(fl_packet_pool *pool, void *block, size_t size);

/* An empty packet with one reference. */
fleet_status fl_packet_create(fl_packet_pool *pool, fl_packet **p);

/* One more frame of `size` bytes, 64-byte aligned, not zeroed; NULL without
 * memory or with too many frames, with the error's text set. Size 0 is fine.
 * For packets of a pool; their frames may be made shorter (with `bytes`). */
void *fl_packet_add(fl_packet *p, size_t size);

/* From now until it is released, all memory that the packet takes, and what it
 * takes while it is sent, weighs on that account; once, of a packet of a pool,
 * when it has all its frames. */
void fl_packet_charge(fl_packet *p, fl_ledger *ledger, int account);

fl_packet *fl_packet_keep(fl_packet *p);
void fl_packet_drop(fl_packet *p); /* NULL is fine */
