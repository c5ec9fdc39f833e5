/* piece.h - a piece of a worker's step, as a lane keeps it until the step is
 * applied. */
#pragma once

#include "net/message.h"
#include "ps/partition.h"

/* A piece of a step, read once, its columns aligned. */
typedef struct fl_piece {
    fl_packet_pool *pool; /* of its memory */
    fl_packet *packet;
    fl_msg msg;   /* without an answer; only the sections that it has */
    void *copied; /* columns that were not aligned, or in fewer bytes: a list */
    struct fl_piece *next;
} fl_piece;

fleet_status fl_piece_create(fl_piece **piece, fl_packet_pool *pool,
                             fl_packet *p, const fl_msg *msg);
void fl_piece_destroy(fl_piece *piece); /* and all after it */

/* Values that came in fewer bytes become floats: of a piece that was checked.
 * And how much memory that takes; 0: all came as floats. */
fleet_status fl_piece_widen(fl_piece *piece, const fl_partition *layout);
size_t fl_piece_wide_bytes(const fl_msg *msg, const fl_partition *layout);
