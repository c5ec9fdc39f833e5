/* batch_buffer.h - a batch with the memory behind it: first raw lines, then
 * slots full of values. Buffers are used again and again, so that they soon
 * have grown to the size that batches need. */
#pragma once

#include "data/layout/batch.h"
#include "data/layout/layout.h"
#include "data/text/text_lines.h"

enum { FL_MOST_TOLD = 5 }; /* bad lines whose texts are kept */

typedef struct fl_batch_buffer {
    fl_batch batch; /* what the caller sees; first, so that it is the buffer */
    struct fl_batch_buffer *next;
    fl_lines lines;
    size_t *capacity;        /* of each slot's values, in elements */
    size_t *weight_capacity; /* of each slot's weights */
    size_t *offset_capacity; /* of each slot's offsets */
    fl_error error;          /* in place of a batch */
    int64_t n_bad;           /* lines that were left out of it */
    fl_error *bad; /* the first FL_MOST_TOLD of these; NULL: none so far */
    bool held;     /* by the caller */
    char *packed;  /* of a stream that makes a cache: the batch as a block */
    size_t packed_size, packed_capacity;
} fl_batch_buffer;

fleet_status fl_batch_buffer_create(fl_batch_buffer **buffer,
                                    const fl_layout *l);
void fl_batch_buffer_destroy(fl_batch_buffer *buffer, const fl_layout *l,
                             fl_blocks *blocks);

/* Room for rows: dense slots whole and padded, ragged slots empty. Of the slots
 * that lines have; made ones are begun one by one. */
fleet_status fl_batch_buffer_begin(fl_batch_buffer *buffer, const fl_layout *l,
                                   int64_t rows);

fleet_status fl_batch_buffer_begin_slot(fl_batch_buffer *buffer,
                                        const fl_layout *l, int slot);

/* Room for n values in a ragged slot, and their weights. */
fleet_status fl_batch_buffer_room(fl_batch_buffer *buffer, const fl_layout *l,
                                  int slot, size_t n);
