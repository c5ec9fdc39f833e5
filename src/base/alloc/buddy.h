/* buddy.h - a buddy allocator: blocks of 2^k cache lines, or of 3 * 2^k, cut
 * from chunks that grow until huge pages serve them. A table's index is many
 * arrays of a few pages each, looked up at random: in ordinary pages it would
 * wait for the TLB more than for the memory. An array that grows gives its
 * block back; free neighbours become one block again, and a chunk that is one
 * free block again is freed, unless it is the last one.
 *
 * One thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* 128 B << 0 .. 128 B << 14 = 2 MB, or three times as much. */
enum { FL_BUDDY_ORDERS = 15 };

struct fl_buddy_chunk;
struct fl_buddy_block;

/* All zero is an allocator without memory. */
typedef struct fl_buddy {
    bool by_three; /* blocks of 3 * 2^k lines */
    struct fl_buddy_chunk *chunk;
    struct fl_buddy_block *empty[FL_BUDDY_ORDERS]; /* free blocks, by size */
    int next_order;                                /* of the next chunk */
} fl_buddy;

/* `bytes` of zeros, aligned to a cache line; NULL: FLEET_ENOMEM. */
void *fl_buddy_alloc(fl_buddy *b, size_t bytes);
void fl_buddy_free(fl_buddy *b, void *p, size_t bytes); /* as was asked for */

/* Of blocks that are cut and not in use. */
size_t fl_buddy_free_bytes(const fl_buddy *b);

/* All of it, whatever is still in use. */
void fl_buddy_done(fl_buddy *b);
